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
	maxGroupSize   = 128       // batches that share one commit
	largeBatchSize = 256 << 10 // bytes of a batch from which on it is committed alone: it takes the database 10 ms and more
)

// slowCommitAfter is how long a group may keep a smaller one waiting.
const slowCommitAfter = 50 * time.Millisecond

// coalescer turns concurrent writes into group commits: a writer takes what is queued, at most [maxGroupSize], and commits
// it at once. It waits for nobody: a lone write goes out alone. A large batch is committed alone, and while others are
// queued each second commit is one of theirs, so that nobody waits for more than one large batch of others. With two
// writers one group is put together and answered while the other is being committed. The second goes when it is as large
// as the first: a commit costs as much as several writes, and what comes too soon for a group of its own is in the next.
type coalescer struct {
	engine     engine
	maxWriters int // writers at a time
	onCommit   func(ctx context.Context, batches int)

	mu          sync.Mutex
	small       batchQueue
	large       batchQueue
	preferSmall bool // the next group is of small calls, if there are any: the last was a large one
	closed      bool
	writers     int
	committing  int            // calls that are being committed
	slowCommits int            // groups that are, for longer than patience
	work        sync.WaitGroup // of writers
}

func newCoalescer(e engine, writers int) *coalescer {
	return &coalescer{engine: e, maxWriters: writers, small: newBatchQueue(), large: newBatchQueue()}
}

func (c *coalescer) writeBatch(ctx context.Context, w *pendingBatch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !c.enqueue(w) {
		return ErrClosed
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	if c.withdrawQueued(w) {
		return ctx.Err()
	}
	w.abandonResults()
	select {
	case err := <-w.done:
		return err
	default:
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
	}
}

// withdrawQueued reports whether w was still queued. Then it is left out of every group.
func (c *coalescer) withdrawQueued(w *pendingBatch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.withdrawn = !w.started
	return w.withdrawn
}

func (c *coalescer) enqueue(w *pendingBatch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if w.batch.payloadSize() < largeBatchSize {
		c.small.pushBatch(w)
	} else {
		c.large.pushBatch(w)
	}
	c.maybeStartWriter()
	return true
}

// queuedCount returns how many calls no writer has taken. c.mu is held.
func (c *coalescer) queuedCount() int { return c.small.length + c.large.length }

// maybeStartWriter begins with another writer if there is work for it. c.mu is held.
func (c *coalescer) maybeStartWriter() {
	if c.queuedCount() > 0 && c.writers < c.maxWriters && (c.writers == 0 || c.canCommitNext()) {
		c.writers++
		c.work.Add(1)
		go c.runWriter()
	}
}

// canCommitNext reports whether what is queued is to go beside what is under way. c.mu is held.
func (c *coalescer) canCommitNext() bool {
	return c.committing > 0 && c.queuedCount() >= c.committing || c.slowCommits > 0
}

// runWriter writes group after group until nothing is queued.
func (c *coalescer) runWriter() {
	defer c.work.Done()
	runtime.Gosched() // whoever is about to write may still join
	for {
		group := c.nextGroup()
		if len(group) == 0 {
			return
		}
		c.commitGroup(group)
	}
}

// commitGroup writes a group, and tells of it.
func (c *coalescer) commitGroup(group []*pendingBatch) {
	var late, over bool // under c.mu
	timer := time.AfterFunc(slowCommitAfter, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if late = !over; late {
			c.slowCommits++
			c.maybeStartWriter()
		}
	})
	ctx, span := startCommitSpan(group)
	c.engine.runGroup(group)
	timer.Stop()
	c.mu.Lock()
	over = true
	c.committing -= len(group)
	if late {
		c.slowCommits--
	}
	c.mu.Unlock()
	if span != nil {
		span.End()
	}
	if c.onCommit != nil {
		c.onCommit(ctx, len(group))
	}
}

// nextGroup removes a large call, or up to maxGroupSize others, and orders those by the rows they lock. The writer that is given
// nothing has ended.
func (c *coalescer) nextGroup() []*pendingBatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	var group []*pendingBatch
	if c.committing == 0 || c.canCommitNext() { // or it is the next of whoever writes the group under way
		if c.large.length > 0 && !(c.preferSmall && c.small.length > 0) {
			group, c.preferSmall = c.large.popGroup(1), true
		}
		if len(group) == 0 {
			group, c.preferSmall = c.small.popGroup(maxGroupSize), false
		}
	}
	if c.committing += len(group); len(group) == 0 {
		c.writers--
	}
	slices.SortStableFunc(group, func(a, b *pendingBatch) int {
		return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.batch.Key, b.batch.Key))
	})
	return group
}

// closeAndWait refuses new writes and returns when the queued ones are done.
func (c *coalescer) closeAndWait() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.work.Wait()
}

// batchQueue has the calls of each tenant in their order, and gives one of each tenant in turn. The coalescer's lock guards it.
type batchQueue struct {
	batches map[ID][]*pendingBatch
	order   []ID // tenants with calls, the next to serve first
	length  int
}

func newBatchQueue() batchQueue { return batchQueue{batches: map[ID][]*pendingBatch{}} }

func (q *batchQueue) pushBatch(w *pendingBatch) {
	if len(q.batches[w.tenant]) == 0 {
		q.order = append(q.order, w.tenant)
	}
	q.batches[w.tenant] = append(q.batches[w.tenant], w)
	q.length++
}

// popGroup removes up to most calls. Those whose waiter has given up are left out.
func (q *batchQueue) popGroup(most int) []*pendingBatch {
	group := make([]*pendingBatch, 0, min(q.length, most))
	for q.length > 0 && len(group) < most {
		t := q.order[0]
		q.order = q.order[1:]
		calls := q.batches[t]
		if w := calls[0]; !w.withdrawn {
			w.started = true
			group = append(group, w)
		}
		q.length--
		if len(calls) == 1 {
			delete(q.batches, t)
		} else {
			q.batches[t] = calls[1:]
			q.order = append(q.order, t)
		}
	}
	if len(q.order) == 0 {
		q.order = nil
	}
	return group
}
