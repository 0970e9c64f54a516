package a2a_test

import (
	"testing"

	"stoa/agentsvc/surface/surfacetest"
)

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.Dialogues(t, routes)
}

func TestPage(t *testing.T) {
	t.Parallel()
	surfacetest.Page(t, "../../../docs/api/a2a.md", routes)
	surfacetest.Page(t, "../../../docs/notifications.md", routes)
}
