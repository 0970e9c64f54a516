package webhook_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/admin"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/agentsvc/surface/tenantapi"
	"stoa/agentsvc/surface/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRoutes(h *surfacetest.Fixture) []surface.Route {
	return slices.Concat(tenantapi.Routes(h.Apps, h.Billing.Usage), admin.Routes(admin.Options{Apps: h.Apps, Issuer: h.Issuer, Keys: h.Keys, DB: h.DB, DeadLetters: h.DeadLetters}), webhook.Routes(webhook.Options{DB: h.DB}))
}

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.RunDialogues(t, newRoutes)
}
