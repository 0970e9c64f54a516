package runner

import (
	"context"
	"maps"
	"slices"
	"sync"

	"stoa/agentsvc"
)

// usageTracker are what model calls of a turn have used whose agents have not told of it: they may have been stopped before they
// could.
type usageTracker struct {
	mu    sync.Mutex
	calls map[string]agentsvc.Usage
}

// addUsage takes usage, from any goroutine.
func (s *usageTracker) addUsage(u agentsvc.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[string]agentsvc.Usage{}
	}
	s.calls[u.Call] = u
}

// removeReported says that an agent has told of u.
func (s *usageTracker) removeReported(u agentsvc.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, u.Call)
}

// unreportedEvents returns as facts what no agent has told of.
func (s *usageTracker) unreportedEvents() (evs []agentsvc.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range slices.Collect(maps.Values(s.calls)) {
		evs = append(evs, agentsvc.Event{Usage: &u})
	}
	return evs
}

// reportUnwritten tells of what was used and is not on the log: its turn has ended, and perhaps lost its task to somebody else.
func (t *execution) reportUnwritten(ctx context.Context) {
	evs := slices.Concat(t.unwrittenUsage, filterUsage(t.pending), t.unreportedUsage.unreportedEvents())
	t.recorder.ObserveUnrecorded(ctx, evs)
	var s UsageUpdate
	for _, ev := range evs {
		s.Tokens += countTokens(*ev.Usage)
	}
	if t.usageObserver != nil && s.Tokens > 0 {
		t.usageObserver(ctx, *t.run, s)
	}
}

// filterUsage returns those of evs that tell of usage.
func filterUsage(evs []agentsvc.Event) []agentsvc.Event {
	return slices.DeleteFunc(slices.Clone(evs), func(ev agentsvc.Event) bool { return ev.Usage == nil })
}
