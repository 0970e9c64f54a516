package runner

import (
	"maps"
	"slices"
	"sync"

	"stoa/agentsvc"
)

// usageTracker keeps the usage of model calls that the agent has not yielded as an event yet. An agent that is
// stopped between a model's answer and its usage event would otherwise lose it, and the tokens would not be billed.
type usageTracker struct {
	mu sync.Mutex
	// calls is keyed by Usage.Call, so a call that reports again replaces its earlier report. Guarded by mu.
	calls map[string]agentsvc.Usage
}

// addUsage adds the usage of a call. It is the Record function of the run's [agentsvc.UsageRecorder] and safe for
// concurrent use.
func (t *usageTracker) addUsage(u agentsvc.Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		t.calls = map[string]agentsvc.Usage{}
	}
	t.calls[u.Call] = u
}

// removeReported forgets the call of u: the agent has yielded its usage, which is now in pending or on the log.
func (t *usageTracker) removeReported(u agentsvc.Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.calls, u.Call)
}

// unreportedEvents returns the remaining usage as events, in no particular order.
func (t *usageTracker) unreportedEvents() (evs []agentsvc.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, u := range slices.Collect(maps.Values(t.calls)) {
		evs = append(evs, agentsvc.Event{Usage: &u})
	}
	return evs
}

// filterUsage returns the usage events of evs.
func filterUsage(evs []agentsvc.Event) []agentsvc.Event {
	return slices.DeleteFunc(slices.Clone(evs), func(ev agentsvc.Event) bool { return ev.Usage == nil })
}
