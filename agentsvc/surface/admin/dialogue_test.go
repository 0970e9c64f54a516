package admin_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/admin"
	"stoa/agentsvc/surface/billingapi"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/agentsvc/surface/tenantapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRoutes(h *surfacetest.Fixture) []surface.Route {
	return slices.Concat(
		ext.Routes(ext.Options{}), tenantapi.Routes(h.Apps, h.Billing.Usage), billingapi.Routes(billingapi.Options{Apps: h.Apps, Keys: h.Keys, Billing: h.Billing}),
		admin.Routes(admin.Options{Apps: h.Apps, Issuer: h.Issuer, Keys: h.Keys, DB: h.DB, DeadLetters: h.DeadLetters}),
	)
}

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.RunDialogues(t, newRoutes)
}
