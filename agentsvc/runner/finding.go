package runner

import (
	"slices"
	"sync"

	"stoa/agentsvc"
)

// findings collects what guardrails report during a turn. Guardrails run in goroutines of model and tool calls.
type findings struct {
	mu sync.Mutex
	// unrecorded findings are not on the log yet. Guarded by mu.
	unrecorded []agentsvc.Finding
	// recorded findings are on the log or in pending, each distinct one once. Used only by the goroutine of the run.
	recorded []agentsvc.Finding
}

// addFinding adds a finding. It is safe for concurrent use.
func (f *findings) addFinding(found agentsvc.Finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unrecorded = append(f.unrecorded, found)
}

// drainEvents returns the unrecorded findings as events and forgets them.
func (f *findings) drainEvents() (evs []agentsvc.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, found := range f.unrecorded {
		evs = append(evs, agentsvc.Event{Finding: &found})
	}
	f.unrecorded = nil
	return evs
}

// markRecorded adds a finding to those that the last message's metadata lists, once.
func (f *findings) markRecorded(found agentsvc.Finding) {
	if !slices.Contains(f.recorded, found) {
		f.recorded = append(f.recorded, found)
	}
}

// toMetadata returns the recorded findings as the last message's metadata shows them, in the order of their first
// occurrence.
func (f *findings) toMetadata() []any {
	list := make([]any, len(f.recorded))
	for i, found := range f.recorded {
		item := map[string]any{
			"guardrail": found.Guardrail, "phase": found.Phase, "rule": found.Rule, "action": found.Action, "severity": found.Severity,
		}
		if found.Shadow {
			item["shadow"] = true
		}
		list[i] = item
	}
	return list
}
