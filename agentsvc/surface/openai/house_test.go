package openai_test

import (
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/openai"
	"stoa/agentsvc/surface/surfacetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func routes(*surfacetest.House) []surface.Route { return openai.Routes(openai.Options{}) }

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.Dialogues(t, routes)
}

func TestPage(t *testing.T) {
	t.Parallel()
	surfacetest.Page(t, "../../../docs/api/openai.md", routes)
}
