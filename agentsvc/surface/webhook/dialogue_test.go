package webhook_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/ops"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/agentsvc/surface/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func routes(h *surfacetest.House) []surface.Route {
	return slices.Concat(ops.Routes(ops.Options{Apps: h.Apps, Issuer: h.Issuer, Keys: h.Keys, DB: h.DB, Dead: h.Dead}), webhook.Routes(webhook.Options{DB: h.DB}))
}

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.Dialogues(t, routes)
}
