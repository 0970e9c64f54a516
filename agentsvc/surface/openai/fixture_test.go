package openai_test

import (
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/openai"
	"stoa/agentsvc/surface/surfacetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRoutes(*surfacetest.Fixture) []surface.Route { return openai.Routes(openai.Options{}) }

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.RunDialogues(t, newRoutes)
}

func TestPage(t *testing.T) {
	t.Parallel()
	surfacetest.CheckPage(t, "../../../docs/api/openai.md", newRoutes)
}
