package db

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
)

// maxGroup bounds how many batches share one commit.
const maxGroup = 128

// coalescer turns concurrent writes into group commits: a writer takes what is queued, at most [maxGroup], and commits
// it at once. It waits for nobody: a lone write goes out alone. With two writers one group is put together and answered
// while the other is being committed.
type coalescer struct {
	engine  engine
	max     int // writers at a time
	grouped func(ctx context.Context, batches int)

	mu      sync.Mutex
	queued  map[ID][]*call
	order   []ID // tenants with queued calls, the next to serve first
	n       int
	closed  bool
	writers int
	work    sync.WaitGroup // of writers
}

func newCoalescer(e engine, writers int) *coalescer {
	return &coalescer{engine: e, max: writers, queued: map[ID][]*call{}}
}

func (c *coalescer) write(ctx context.Context, w *call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !c.put(w) {
		return ErrClosed
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	if c.withdraw(w) {
		return ctx.Err()
	}
	w.leave()
	select {
	case err := <-w.done:
		return err
	default:
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
	}
}

// withdraw reports whether w was still queued. Then it is left out of every group.
func (c *coalescer) withdraw(w *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.withdrawn = !w.taken
	return w.withdrawn
}

func (c *coalescer) put(w *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if len(c.queued[w.tenant]) == 0 {
		c.order = append(c.order, w.tenant)
	}
	c.queued[w.tenant] = append(c.queued[w.tenant], w)
	c.n++
	if c.writers < c.max {
		c.writers++
		c.work.Add(1)
		go c.drain()
	}
	return true
}

// drain writes group after group until nothing is queued.
func (c *coalescer) drain() {
	defer c.work.Done()
	runtime.Gosched() // whoever is about to write may still join
	for {
		group := c.take()
		if len(group) == 0 {
			return
		}
		c.commit(group)
	}
}

// commit writes a group, and tells of it.
func (c *coalescer) commit(group []*call) {
	ctx, span := together(group)
	c.engine.runGroup(group)
	if span != nil {
		span.End()
	}
	if c.grouped != nil {
		c.grouped(ctx, len(group))
	}
}

// take removes up to maxGroup calls, one of each tenant in turn, and orders them by the rows they lock. Calls whose
// waiter has given up are left out. The writer for whom nothing is left has ended.
func (c *coalescer) take() []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	group := make([]*call, 0, min(c.n, maxGroup))
	for c.n > 0 && len(group) < maxGroup {
		t := c.order[0]
		c.order = c.order[1:]
		q := c.queued[t]
		if w := q[0]; !w.withdrawn {
			w.taken = true
			group = append(group, w)
		}
		c.n--
		if len(q) == 1 {
			delete(c.queued, t)
		} else {
			c.queued[t] = q[1:]
			c.order = append(c.order, t)
		}
	}
	if len(c.order) == 0 {
		c.order = nil
	}
	if len(group) == 0 {
		c.writers--
	}
	slices.SortStableFunc(group, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.batch.Key, b.batch.Key))
	})
	return group
}

// close refuses new writes and returns when the queued ones are done.
func (c *coalescer) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.work.Wait()
}
