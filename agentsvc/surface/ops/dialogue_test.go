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

func routes(h *surfacetest.House) []surface.Route {
	return slices.Concat(ext.Routes(ext.Options{}), ops.Routes(ops.Options{Apps: h.Apps, Issuer: h.Issuer, Keys: h.Keys, DB: h.DB, Dead: h.Dead, Billing: h.Billing}))
}

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.Dialogues(t, routes)
}
