package tenantapi

import (
	"context"
	"errors"
	"testing"

	"stoa/agentsvc/processor"
	"stoa/tenancy"
)

// TestConfigTurns checks that a request about a configuration waits while others have all turns, as long as its context
// allows, and that a turn ends with its request.
func TestConfigTurns(t *testing.T) {
	t.Parallel()
	h := configHandler{turns: processor.NewSemaphore(1)}
	failed := errors.New("failed")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.takeTurn(t.Context(), "acme", func() (tenancy.App, error) {
		if _, err := h.takeTurn(ended, "globex", func() (tenancy.App, error) { return tenancy.App{}, failed }); !errors.Is(err, context.Canceled) {
			t.Errorf("a second turn: %v, want %v", err, context.Canceled)
		}
		return tenancy.App{}, failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("the first turn: %v", err)
	}
	if app, err := h.takeTurn(t.Context(), "globex", func() (tenancy.App, error) { return tenancy.App{Name: "globex"}, nil }); err != nil || app.Name != "globex" {
		t.Errorf("a later turn: %v, %v", app.Name, err)
	}
}
