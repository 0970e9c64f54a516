package mcp_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/mcp"
	"stoa/agentsvc/surface/surfacetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRoutes(*surfacetest.Fixture) []surface.Route {
	return mcp.Routes(mcp.Options{BlockFor: 5 * time.Second})
}

// newFixture serves [surfacetest.Script] as the default app and as the apps acme and globex.
func newFixture(t *testing.T) *surfacetest.Fixture {
	t.Helper()
	return surfacetest.NewScripted(t, surfacetest.Options{}, newRoutes)
}

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.RunDialogues(t, newRoutes)
}

func TestPage(t *testing.T) {
	t.Parallel()
	surfacetest.CheckPage(t, "../../../docs/api/mcp.md", newRoutes)
}
