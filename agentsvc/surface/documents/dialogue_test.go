package documents_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/admin"
	"stoa/agentsvc/surface/documents"
	"stoa/agentsvc/surface/surfacetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newRoutes returns the routes of documents, and those of the operator for the audit trail.
func newRoutes(h *surfacetest.Fixture) []surface.Route {
	return slices.Concat(documents.Routes(), admin.Routes(admin.Options{Apps: h.Apps, Issuer: h.Issuer, Keys: h.Keys, DB: h.DB, DeadLetters: h.DeadLetters}))
}

func TestDialogues(t *testing.T) {
	t.Parallel()
	surfacetest.RunDialogues(t, newRoutes)
}

// TestPage checks the examples of the documentation.
func TestPage(t *testing.T) {
	t.Parallel()
	surfacetest.CheckPage(t, "../../../docs/api/documents.md", newRoutes)
}
