package ratelimit

import (
	"time"

	"stoa/tenancy/db"
)

// CountCounters returns how many counters of a tenant are kept.
func (m *Memory) CountCounters(tenant db.ID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.tenants[tenant]; l != nil {
		return len(l.tracked)
	}
	return 0
}

// SetClockOffset sets the estimated offset of a backend's clock.
func SetClockOffset(p Backend, d time.Duration) {
	switch p := p.(type) {
	case *SQL:
		p.clock.offset.Store(int64(d))
	case *Redis:
		p.clock.offset.Store(int64(d))
	}
}

// SetFallbackCooldown sets how long a failed backend is not used.
func SetFallbackCooldown(p Backend, d time.Duration) { p.(*fallback).cooldown = d }

// QueuedCount returns how many calls are queued.
func (r *Redis) QueuedCount() int {
	r.coalescer.mu.Lock()
	defer r.coalescer.mu.Unlock()
	return len(r.coalescer.queued)
}

// InFlightCount returns how many scripts or pipelines are under way.
func (r *Redis) InFlightCount() int {
	r.coalescer.mu.Lock()
	defer r.coalescer.mu.Unlock()
	return r.coalescer.inFlight
}

// RunTogether sends n identical calls in one group and returns their answers.
func (r *Redis) RunTogether(n int, keys []string, args ...any) ([][]int64, error) {
	group := make([]*scriptCall, n)
	for i := range group {
		group[i] = &scriptCall{keys: keys, args: args, done: make(chan scriptReply, 1)}
	}
	r.coalescer.sendGroup(group)
	replies := make([][]int64, n)
	for i, a := range group {
		got := <-a.done
		if got.err != nil {
			return nil, got.err
		}
		replies[i] = got.numbers
	}
	return replies, nil
}
