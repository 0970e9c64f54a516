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

func routes(*surfacetest.House) []surface.Route {
	return mcp.Routes(mcp.Options{BlockFor: 5 * time.Second})
}

// newHouse is a house with [surfacetest.Script] as the default app, and as the apps acme and globex.
func newHouse(t *testing.T) *surfacetest.House {
	t.Helper()
	return surfacetest.Scripted(t, surfacetest.Options{}, routes)
}

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.Dialogues(t, routes)
}

func TestPage(t *testing.T) {
	t.Parallel()
	surfacetest.Page(t, "../../../docs/api/mcp.md", routes)
}
