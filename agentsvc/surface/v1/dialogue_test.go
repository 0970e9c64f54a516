package v1_test

import (
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/surfacetest"
	v1 "stoa/agentsvc/surface/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRoutes(*surfacetest.Fixture) []surface.Route { return v1.Routes(v1.Options{}) }

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.RunDialogues(t, newRoutes)
}

func TestPage(t *testing.T) {
	t.Parallel()
	surfacetest.CheckPage(t, "../../../docs/api/v1.md", newRoutes)
}
