package ratelimit

import (
	"container/heap"
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"stoa/tenancy/db"
)

// Bounds of what is counted in memory.
const (
	memoryShards      = 64
	maxTenantCounters = 10_000 // of one tenant; beyond that those are forgotten whose windows end first
	forgetInterval    = time.Minute
)

// Memory counts in this process, for this process alone, and forgets everything with it. What a tenant can make it hold
// is bounded.
type Memory struct {
	seed   maphash.Seed
	shards [memoryShards]memoryShard
}

// memoryShard holds some tenants, so that counting contends with few others.
type memoryShard struct {
	mu         sync.Mutex
	tenants    map[db.ID]*counterSet
	lastForget time.Time
}

// NewMemory returns a place in which nothing has been counted.
func NewMemory() *Memory {
	m := &Memory{seed: maphash.MakeSeed()}
	for i := range m.shards {
		m.shards[i].tenants = map[db.ID]*counterSet{}
	}
	return m
}

func (m *Memory) addCounters(ctx context.Context, tenant db.ID, at func(now time.Time) []counter) (outcome, error) {
	p := &m.shards[maphash.String(m.seed, string(tenant))%memoryShards]
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.forgetExpired(now)
	l := p.tenants[tenant]
	if l == nil {
		l = newCounterSet()
		p.tenants[tenant] = l
	}
	return l.applyChanges(ctx, now, at(now))
}

// forgetExpired drops, now and then, counters whose windows are over, and tenants that have none.
func (p *memoryShard) forgetExpired(now time.Time) {
	if now.Sub(p.lastForget) < forgetInterval {
		return
	}
	p.lastForget = now
	for tenant, l := range p.tenants {
		if l.forgetExpired(now); len(l.ends) == 0 {
			delete(p.tenants, tenant)
		}
	}
}

// counterSet holds the counters of one tenant. Its store counts and starts anew when a window is over; the ledger knows which
// counters there are.
type counterSet struct {
	store   limiter.Store
	tracked map[string]bool
	ends    windowEndHeap
}

func newCounterSet() *counterSet {
	// No cleaner: counters go when their window is over or their tenant has too many.
	return &counterSet{store: memory.NewStoreWithOptions(limiter.StoreOptions{}), tracked: map[string]bool{}}
}

func (l *counterSet) applyChanges(ctx context.Context, now time.Time, cs []counter) (outcome, error) {
	out := outcome{counters: cs, used: make([]int64, len(cs)), now: now}
	for i, c := range cs {
		seen, err := l.store.Peek(ctx, c.key, limiter.Rate{Limit: unlimited})
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
		l.trackCounter(ctx, now, c)
		if _, err := l.store.Increment(ctx, c.key, change, limiter.Rate{Period: c.end.Sub(now), Limit: c.limit}); err != nil {
			return out, err
		}
	}
	return out, nil
}

// trackCounter notes a counter, and makes room for it where there are too many.
func (l *counterSet) trackCounter(ctx context.Context, now time.Time, c counter) {
	if l.tracked[c.key] {
		return
	}
	if len(l.ends) >= maxTenantCounters {
		if l.forgetExpired(now); len(l.ends) >= maxTenantCounters {
			l.forgetFirst(ctx)
		}
	}
	l.tracked[c.key] = true
	heap.Push(&l.ends, windowEnd{c.key, c.end})
}

func (l *counterSet) forgetExpired(now time.Time) {
	for len(l.ends) > 0 && !now.Before(l.ends[0].at) {
		l.forgetFirst(context.Background())
	}
}

// forgetFirst forgets the counter whose window ends first.
func (l *counterSet) forgetFirst(ctx context.Context) {
	first := heap.Pop(&l.ends).(windowEnd)
	delete(l.tracked, first.key)
	_, _ = l.store.Reset(ctx, first.key, limiter.Rate{}) // in memory it cannot fail
}

// windowEnd is the end of a counter's window.
type windowEnd struct {
	key string
	at  time.Time
}

// windowEndHeap is a heap, the first end first.
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
