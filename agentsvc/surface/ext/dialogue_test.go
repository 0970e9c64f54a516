package ext_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/surfacetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRoutes(h *surfacetest.Fixture) []surface.Route {
	return ext.Routes(ext.Options{
		Version: "v1.2.3", JWKS: func() []byte { return []byte(`{"keys":[]}`) },
		Database: func(ctx context.Context) error { return h.DB.Ping(ctx) },
	})
}

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.RunDialogues(t, newRoutes)
}
