package server

import (
	"errors"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/guardrail"
	"stoa/agentsvc/store"
)

// TestWithoutTelemetry checks that events are accepted where nothing records them.
func TestWithoutTelemetry(t *testing.T) {
	t.Parallel()
	var none telemetry
	none.recordFinding(t.Context(), "acme", guardrail.Finding{})
	none.recordCommitGroup(t.Context(), 1)
	none.recordRunEnd(t.Context(), "acme", store.Run{}, agentsvc.Failed, 0)
	if err := none.recordOutcome(t.Context(), "acme", agentsvc.ErrLeaseLost); !errors.Is(err, agentsvc.ErrLeaseLost) {
		t.Errorf("the outcome is %v", err)
	}
}
