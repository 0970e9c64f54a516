package ratelimit

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"stoa/tenancy/db"
)

// Bounds of the memory that counters use.
const (
	// maxTenantCounters bounds the counters of one tenant; beyond it those whose windows end first are dropped.
	maxTenantCounters = 10_000
	// forgetInterval is the time between two sweeps of all counters.
	forgetInterval = time.Minute
)

// Memory is a [Backend] in the memory of this process. Counts are not shared and end with the process. The memory that
// a tenant can use is bounded by maxTenantCounters.
type Memory struct {
	// mu guards the other fields and the counters.
	mu         sync.Mutex
	tenants    map[db.ID]*counterSet
	lastForget time.Time
}

// NewMemory returns an empty backend.
func NewMemory() *Memory { return &Memory{tenants: map[db.ID]*counterSet{}} }

// addCounters implements [Backend].
func (m *Memory) addCounters(ctx context.Context, tenant db.ID, at func(now time.Time) []counter) (outcome, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.forgetExpired(now)
	l := m.tenants[tenant]
	if l == nil {
		l = newCounterSet()
		m.tenants[tenant] = l
	}
	return l.applyChanges(ctx, now, at(now))
}

// forgetExpired drops, at most once in forgetInterval, counters whose windows have ended and tenants without counters.
// The caller holds m.mu.
func (m *Memory) forgetExpired(now time.Time) {
	if now.Sub(m.lastForget) < forgetInterval {
		return
	}
	m.lastForget = now
	for tenant, l := range m.tenants {
		if l.forgetExpired(now); len(l.ends) == 0 {
			delete(m.tenants, tenant)
		}
	}
}

// counterSet holds the counters of one tenant. The store counts and resets a counter when its window ends, but cannot
// list its counters; tracked and ends record which exist, to bound their number. It is guarded by [Memory]'s mu.
type counterSet struct {
	store   limiter.Store
	tracked map[string]bool
	ends    windowEndHeap
}

func newCounterSet() *counterSet {
	// Without a cleaner: forgetExpired and trackCounter remove counters.
	return &counterSet{store: memory.NewStoreWithOptions(limiter.StoreOptions{}), tracked: map[string]bool{}}
}

// applyChanges reads the counts and adds the amounts if all fit.
func (s *counterSet) applyChanges(ctx context.Context, now time.Time, cs []counter) (outcome, error) {
	out := outcome{counters: cs, used: make([]int64, len(cs)), now: now}
	for i, c := range cs {
		seen, err := s.store.Peek(ctx, c.key, limiter.Rate{Limit: unlimited})
		if err != nil {
			return out, err
		}
		out.used[i] = unlimited - seen.Remaining
	}
	if out.fits = areWithinLimits(cs, out.used); !out.fits {
		return out, nil
	}
	for i, c := range cs {
		change := max(c.amount, -out.used[i])
		if change == 0 {
			continue
		}
		s.trackCounter(ctx, now, c)
		if _, err := s.store.Increment(ctx, c.key, change, limiter.Rate{Period: c.end.Sub(now), Limit: c.limit}); err != nil {
			return out, err
		}
	}
	return out, nil
}

// trackCounter records a counter, and drops another if the tenant has too many.
func (s *counterSet) trackCounter(ctx context.Context, now time.Time, c counter) {
	if s.tracked[c.key] {
		return
	}
	if len(s.ends) >= maxTenantCounters {
		if s.forgetExpired(now); len(s.ends) >= maxTenantCounters {
			s.forgetFirst(ctx)
		}
	}
	s.tracked[c.key] = true
	heap.Push(&s.ends, windowEnd{c.key, c.end})
}

// forgetExpired drops the counters whose windows have ended.
func (s *counterSet) forgetExpired(now time.Time) {
	for len(s.ends) > 0 && !now.Before(s.ends[0].at) {
		s.forgetFirst(context.Background())
	}
}

// forgetFirst drops the counter whose window ends first.
func (s *counterSet) forgetFirst(ctx context.Context) {
	first := heap.Pop(&s.ends).(windowEnd)
	delete(s.tracked, first.key)
	_, _ = s.store.Reset(ctx, first.key, limiter.Rate{}) // in memory it cannot fail
}

// windowEnd is the end of a counter's window.
type windowEnd struct {
	key string
	at  time.Time
}

// windowEndHeap implements [heap.Interface], the earliest end first.
type windowEndHeap []windowEnd

func (e windowEndHeap) Len() int           { return len(e) }
func (e windowEndHeap) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e windowEndHeap) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *windowEndHeap) Push(x any)        { *e = append(*e, x.(windowEnd)) }
func (e *windowEndHeap) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
