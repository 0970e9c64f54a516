package ops_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/ops"
	"stoa/agentsvc/surface/surfacetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRoutes(h *surfacetest.Fixture) []surface.Route {
	return slices.Concat(ext.Routes(ext.Options{}), ops.Routes(ops.Options{Apps: h.Apps, Issuer: h.Issuer, Keys: h.Keys, DB: h.DB, DeadLetters: h.DeadLetters, Billing: h.Billing}))
}

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.RunDialogues(t, newRoutes)
}
