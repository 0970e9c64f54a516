package a2a_test

import (
	"testing"

	"stoa/agentsvc/surface/surfacetest"
)

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.RunDialogues(t, newRoutes)
}

func TestPage(t *testing.T) {
	t.Parallel()
	surfacetest.CheckPage(t, "../../../docs/api/a2a.md", newRoutes)
	surfacetest.CheckPage(t, "../../../docs/notifications.md", newRoutes)
}
