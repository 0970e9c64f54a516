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
	memoryParts    = 64
	tenantCounters = 10_000 // of one tenant; beyond that those are forgotten whose windows end first
	forgetEvery    = time.Minute
)

// Memory counts in this process, for this process alone, and forgets everything with it. What a tenant can make it hold
// is bounded.
type Memory struct {
	seed  maphash.Seed
	parts [memoryParts]memoryPart
}

// memoryPart holds some tenants, so that counting contends with few others.
type memoryPart struct {
	mu      sync.Mutex
	tenants map[db.ID]*ledger
	forgot  time.Time
}

// NewMemory returns a place in which nothing has been counted.
func NewMemory() *Memory {
	m := &Memory{seed: maphash.MakeSeed()}
	for i := range m.parts {
		m.parts[i].tenants = map[db.ID]*ledger{}
	}
	return m
}

func (m *Memory) add(ctx context.Context, tenant db.ID, at func(now time.Time) []counter) (outcome, error) {
	p := &m.parts[maphash.String(m.seed, string(tenant))%memoryParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.forget(now)
	l := p.tenants[tenant]
	if l == nil {
		l = newLedger()
		p.tenants[tenant] = l
	}
	return l.add(ctx, now, at(now))
}

// forget drops, now and then, counters whose windows are over, and tenants that have none.
func (p *memoryPart) forget(now time.Time) {
	if now.Sub(p.forgot) < forgetEvery {
		return
	}
	p.forgot = now
	for tenant, l := range p.tenants {
		if l.forget(now); len(l.ends) == 0 {
			delete(p.tenants, tenant)
		}
	}
}

// ledger holds the counters of one tenant. Its store counts and starts anew when a window is over; the ledger knows which
// counters there are.
type ledger struct {
	store limiter.Store
	known map[string]bool
	ends  ends
}

func newLedger() *ledger {
	// No cleaner: counters go when their window is over or their tenant has too many.
	return &ledger{store: memory.NewStoreWithOptions(limiter.StoreOptions{}), known: map[string]bool{}}
}

func (l *ledger) add(ctx context.Context, now time.Time, cs []counter) (outcome, error) {
	out := outcome{counters: cs, used: make([]int64, len(cs)), now: now}
	for i, c := range cs {
		seen, err := l.store.Peek(ctx, c.key, limiter.Rate{Limit: unlimited})
		if err != nil {
			return out, err
		}
		out.used[i] = unlimited - seen.Remaining
	}
	if out.fits = fits(cs, out.used); !out.fits {
		return out, nil
	}
	for i, c := range cs {
		change := max(c.amount, -out.used[i])
		if change == 0 {
			continue
		}
		l.know(ctx, now, c)
		if _, err := l.store.Increment(ctx, c.key, change, limiter.Rate{Period: c.end.Sub(now), Limit: c.limit}); err != nil {
			return out, err
		}
	}
	return out, nil
}

// know notes a counter, and makes room for it where there are too many.
func (l *ledger) know(ctx context.Context, now time.Time, c counter) {
	if l.known[c.key] {
		return
	}
	if len(l.ends) >= tenantCounters {
		if l.forget(now); len(l.ends) >= tenantCounters {
			l.drop(ctx)
		}
	}
	l.known[c.key] = true
	heap.Push(&l.ends, ending{c.key, c.end})
}

func (l *ledger) forget(now time.Time) {
	for len(l.ends) > 0 && !now.Before(l.ends[0].at) {
		l.drop(context.Background())
	}
}

// drop forgets the counter whose window ends first.
func (l *ledger) drop(ctx context.Context) {
	first := heap.Pop(&l.ends).(ending)
	delete(l.known, first.key)
	_, _ = l.store.Reset(ctx, first.key, limiter.Rate{}) // in memory it cannot fail
}

// ending is the end of a counter's window.
type ending struct {
	key string
	at  time.Time
}

// ends is a heap, the first end first.
type ends []ending

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(ending)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
