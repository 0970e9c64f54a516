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

const (
	maxGroup  = 128       // batches that share one commit
	largeCall = 256 << 10 // bytes of a batch from which on it is committed alone: it takes the database 10 ms and more
)

// patience is how long a group may keep a smaller one waiting.
const patience = 50 * time.Millisecond

// coalescer turns concurrent writes into group commits: a writer takes what is queued, at most [maxGroup], and commits
// it at once. It waits for nobody: a lone write goes out alone. A large batch is committed alone, and while others are
// queued each second commit is one of theirs, so that nobody waits for more than one large batch of others. With two
// writers one group is put together and answered while the other is being committed. The second goes when it is as large
// as the first: a commit costs as much as several writes, and what comes too soon for a group of its own is in the next.
type coalescer struct {
	engine  engine
	max     int // writers at a time
	grouped func(ctx context.Context, batches int)

	mu      sync.Mutex
	small   callQueue
	large   callQueue
	others  bool // the next group is of small calls, if there are any: the last was a large one
	closed  bool
	writers int
	under   int            // calls that are being committed
	late    int            // groups that are, for longer than patience
	work    sync.WaitGroup // of writers
}

func newCoalescer(e engine, writers int) *coalescer {
	return &coalescer{engine: e, max: writers, small: newCallQueue(), large: newCallQueue()}
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
	if w.batch.size() < largeCall {
		c.small.push(w)
	} else {
		c.large.push(w)
	}
	c.staff()
	return true
}

// queued returns how many calls no writer has taken. c.mu is held.
func (c *coalescer) queued() int { return c.small.n + c.large.n }

// staff begins with another writer if there is work for it. c.mu is held.
func (c *coalescer) staff() {
	if c.queued() > 0 && c.writers < c.max && (c.writers == 0 || c.worth()) {
		c.writers++
		c.work.Add(1)
		go c.drain()
	}
}

// worth reports whether what is queued is to go beside what is under way. c.mu is held.
func (c *coalescer) worth() bool { return c.under > 0 && c.queued() >= c.under || c.late > 0 }

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

// take removes a large call, or up to maxGroup others, and orders those by the rows they lock. The writer that is given
// nothing has ended.
func (c *coalescer) take() []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var group []*call
	if c.under == 0 || c.worth() { // or it is the next of whoever writes the group under way
		if c.large.n > 0 && !(c.others && c.small.n > 0) {
			group, c.others = c.large.pop(1), true
		}
		if len(group) == 0 {
			group, c.others = c.small.pop(maxGroup), false
		}
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

// callQueue has the calls of each tenant in their order, and gives one of each tenant in turn. The coalescer's lock guards it.
type callQueue struct {
	calls map[ID][]*call
	order []ID // tenants with calls, the next to serve first
	n     int
}

func newCallQueue() callQueue { return callQueue{calls: map[ID][]*call{}} }

func (q *callQueue) push(w *call) {
	if len(q.calls[w.tenant]) == 0 {
		q.order = append(q.order, w.tenant)
	}
	q.calls[w.tenant] = append(q.calls[w.tenant], w)
	q.n++
}

// pop removes up to most calls. Those whose waiter has given up are left out.
func (q *callQueue) pop(most int) []*call {
	group := make([]*call, 0, min(q.n, most))
	for q.n > 0 && len(group) < most {
		t := q.order[0]
		q.order = q.order[1:]
		calls := q.calls[t]
		if w := calls[0]; !w.withdrawn {
			w.taken = true
			group = append(group, w)
		}
		q.n--
		if len(calls) == 1 {
			delete(q.calls, t)
		} else {
			q.calls[t] = calls[1:]
			q.order = append(q.order, t)
		}
	}
	if len(q.order) == 0 {
		q.order = nil
	}
	return group
}
