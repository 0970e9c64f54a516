package runner

import (
	"slices"
	"sync"

	"stoa/agentsvc"
)

// findings are what guardrails find in a turn while its agents are at work.
type findings struct {
	mu  sync.Mutex
	new []agentsvc.Finding // not on record yet
	all []agentsvc.Finding // one of each kind; only for the turn's own goroutine
}

// tell takes a finding, from any goroutine.
func (f *findings) tell(found agentsvc.Finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.new = append(f.new, found)
}

// take returns the new ones as facts.
func (f *findings) take() (evs []agentsvc.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, found := range f.new {
		evs = append(evs, agentsvc.Event{Finding: &found})
	}
	f.new = nil
	return evs
}

// note keeps a finding that is on record for what the last message tells.
func (f *findings) note(found agentsvc.Finding) {
	if !slices.Contains(f.all, found) {
		f.all = append(f.all, found)
	}
}

// metadata is how the last message of a turn tells of what was found: each kind once.
func (f *findings) metadata() []any {
	list := make([]any, len(f.all))
	for i, found := range f.all {
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
