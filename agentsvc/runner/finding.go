package runner

import (
	"slices"
	"sync"

	"stoa/agentsvc"
)

// findings are what guardrails find in a turn while its agents are at work.
type findings struct {
	mu         sync.Mutex
	unrecorded []agentsvc.Finding // not on record yet
	recorded   []agentsvc.Finding // one of each kind; only for the turn's own goroutine
}

// addFinding takes a finding, from any goroutine.
func (f *findings) addFinding(found agentsvc.Finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unrecorded = append(f.unrecorded, found)
}

// drainEvents returns the new ones as facts.
func (f *findings) drainEvents() (evs []agentsvc.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, found := range f.unrecorded {
		evs = append(evs, agentsvc.Event{Finding: &found})
	}
	f.unrecorded = nil
	return evs
}

// markRecorded keeps a finding that is on record for what the last message tells.
func (f *findings) markRecorded(found agentsvc.Finding) {
	if !slices.Contains(f.recorded, found) {
		f.recorded = append(f.recorded, found)
	}
}

// toMetadata is how the last message of a turn tells of what was found: each kind once.
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
