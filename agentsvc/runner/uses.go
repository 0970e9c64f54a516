package runner

import (
	"context"
	"maps"
	"slices"
	"sync"

	"stoa/agentsvc"
)

// uses are what model calls of a turn have used whose agents have not told of it: they may have been stopped before they
// could.
type uses struct {
	mu    sync.Mutex
	calls map[string]agentsvc.Usage
}

// tell takes usage, from any goroutine.
func (s *uses) tell(u agentsvc.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[string]agentsvc.Usage{}
	}
	s.calls[u.Call] = u
}

// known says that an agent has told of u.
func (s *uses) known(u agentsvc.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, u.Call)
}

// untold returns as facts what no agent has told of.
func (s *uses) untold() (evs []agentsvc.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range slices.Collect(maps.Values(s.calls)) {
		evs = append(evs, agentsvc.Event{Usage: &u})
	}
	return evs
}

// leave tells of what was used and is not on the log: its turn has ended, and perhaps lost its task to somebody else.
func (t *turn) leave(ctx context.Context) {
	evs := slices.Concat(t.unsaid, usageOf(t.pending), t.uses.untold())
	t.rec.Leave(ctx, evs)
	var s Spent
	for _, ev := range evs {
		s.Tokens += tokens(*ev.Usage)
	}
	if t.spend != nil && s.Tokens > 0 {
		t.spend(ctx, *t.run, s)
	}
}

// usageOf returns those of evs that tell of usage.
func usageOf(evs []agentsvc.Event) []agentsvc.Event {
	return slices.DeleteFunc(slices.Clone(evs), func(ev agentsvc.Event) bool { return ev.Usage == nil })
}
