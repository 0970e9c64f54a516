package db

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// maxGroup bounds how many batches share one commit.
const maxGroup = 128

// patience is how long a group may keep a smaller one waiting.
const patience = 50 * time.Millisecond

// coalescer turns concurrent writes into group commits: a writer takes what is queued, at most [maxGroup], and commits
// it at once. It waits for nobody: a lone write goes out alone. With two writers one group is put together and answered
// while the other is being committed. The second goes when it is as large as the first: a commit costs as much as several
// writes, and what comes too soon for a group of its own is in the next.
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
	under   int            // calls that are being committed
	late    int            // groups that are, for longer than patience
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
	c.staff()
	return true
}

// staff begins with another writer if there is work for it. c.mu is held.
func (c *coalescer) staff() {
	if c.n > 0 && c.writers < c.max && (c.writers == 0 || c.worth()) {
		c.writers++
		c.work.Add(1)
		go c.drain()
	}
}

// worth reports whether what is queued is to go beside what is under way. c.mu is held.
func (c *coalescer) worth() bool { return c.under > 0 && c.n >= c.under || c.late > 0 }

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
	var late, over bool // under c.mu
	timer := time.AfterFunc(patience, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if late = !over; late {
			c.late++
			c.staff()
		}
	})
	ctx, span := together(group)
	c.engine.runGroup(group)
	timer.Stop()
	c.mu.Lock()
	over = true
	c.under -= len(group)
	if late {
		c.late--
	}
	c.mu.Unlock()
	if span != nil {
		span.End()
	}
	if c.grouped != nil {
		c.grouped(ctx, len(group))
	}
}

// take removes up to maxGroup calls, one of each tenant in turn, and orders them by the rows they lock. Calls whose
// waiter has given up are left out. The writer that is given nothing has ended.
func (c *coalescer) take() []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine := c.under == 0 || c.worth() // or it is the next of whoever writes the group under way
	group := make([]*call, 0, min(c.n, maxGroup))
	for mine && c.n > 0 && len(group) < maxGroup {
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
	if c.under += len(group); len(group) == 0 {
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
