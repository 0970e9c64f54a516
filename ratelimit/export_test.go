package ratelimit

import (
	"hash/maphash"
	"time"

	"stoa/tenancy/db"
)

// Counters is how many counters of a tenant are kept.
func (m *Memory) Counters(tenant db.ID) int {
	p := &m.parts[maphash.String(m.seed, string(tenant))%memoryParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.tenants[tenant]; l != nil {
		return len(l.known)
	}
	return 0
}

// Ahead has a place believe that its clock is ahead of this process's.
func Ahead(p Place, d time.Duration) {
	switch p := p.(type) {
	case *SQL:
		p.clock.ahead.Store(int64(d))
	case *Redis:
		p.clock.ahead.Store(int64(d))
	}
}

// Spare has a place be left alone for d after it failed.
func Spare(p Place, d time.Duration) { p.(*orElse).spare = d }

// Queued is how many callers wait until what is under way has come back.
func (r *Redis) Queued() int {
	r.adding.mu.Lock()
	defer r.adding.mu.Unlock()
	return len(r.adding.queued)
}

// UnderWay is how many runs, or pipelines of runs, are under way.
func (r *Redis) UnderWay() int {
	r.adding.mu.Lock()
	defer r.adding.mu.Unlock()
	return r.adding.underWay
}

// Together has n who ask for the same go together, and returns what each is told.
func (r *Redis) Together(n int, keys []string, args ...any) ([][]int64, error) {
	group := make([]*ask, n)
	for i := range group {
		group[i] = &ask{keys: keys, args: args, done: make(chan answer, 1)}
	}
	r.adding.send(group)
	told := make([][]int64, n)
	for i, a := range group {
		got := <-a.done
		if got.err != nil {
			return nil, got.err
		}
		told[i] = got.numbers
	}
	return told, nil
}
