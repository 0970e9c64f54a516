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
	// maxGroupSize is how many batches share one commit at most.
	maxGroupSize = 128
	// largeBatchSize is the size in bytes from which on a batch is committed alone: writing it takes the database 10 ms
	// and more, for which smaller ones would wait.
	largeBatchSize = 256 << 10
)

// slowCommitAfter is the time after which a second writer may start regardless of how many batches are queued.
const slowCommitAfter = 50 * time.Millisecond

// coalescer turns concurrent writes into group commits. A writer takes what is queued, at most maxGroupSize batches,
// and commits it at once: it does not wait for more, so a single write is committed alone without delay. While it
// commits, the next group gathers.
//
// A large batch is committed alone. While small ones are queued, every second commit is one of theirs, so that no batch
// waits for more than one large batch of others. With two writers (see maxWriters) the second one starts when as many
// batches are queued as are being committed, or when the commit under way is slow: a commit costs as much as several
// writes, so a smaller group is better merged into the next one.
type coalescer struct {
	engine engine
	// maxWriters is how many writers may run at a time. engine, maxWriters and onCommit are read-only after the DB is
	// opened.
	maxWriters int
	onCommit   func(ctx context.Context, batches int)

	// mu guards the fields below, the queues and the fields of queued batches included.
	mu    sync.Mutex
	small batchQueue
	large batchQueue
	// preferSmall is set after a large batch: the next group is one of small batches if there are any.
	preferSmall bool
	// closed is set by closeAndWait; enqueue then refuses.
	closed bool
	// writers is the number of writers that run.
	writers int
	// committing is the number of batches that are being committed.
	committing int
	// slowCommits is the number of commits that have taken longer than slowCommitAfter.
	slowCommits int
	// work counts the writers, for closeAndWait.
	work sync.WaitGroup
}

func newCoalescer(e engine, writers int) *coalescer {
	return &coalescer{engine: e, maxWriters: writers, small: newBatchQueue(), large: newBatchQueue()}
}

// writeBatch queues w and returns its outcome. If ctx ends first, a batch that is still queued is withdrawn and has no
// effect. One that was started continues; its outcome is returned if it is there already, else it is unknown.
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

// withdrawQueued withdraws w if no writer has taken it yet, and reports whether it did.
func (c *coalescer) withdrawQueued(w *pendingBatch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.withdrawn = !w.started
	return w.withdrawn
}

// enqueue queues w, starts a writer if needed, and reports false after closeAndWait.
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

// queuedCount returns the number of queued batches. The caller holds c.mu.
func (c *coalescer) queuedCount() int { return c.small.length + c.large.length }

// maybeStartWriter starts another writer if there is work for one. The caller holds c.mu.
func (c *coalescer) maybeStartWriter() {
	if c.queuedCount() > 0 && c.writers < c.maxWriters && (c.writers == 0 || c.canCommitNext()) {
		c.writers++
		c.work.Add(1)
		go c.runWriter()
	}
}

// canCommitNext reports whether the queued batches should be committed in parallel with the commit under way. The
// caller holds c.mu.
func (c *coalescer) canCommitNext() bool {
	return c.committing > 0 && c.queuedCount() >= c.committing || c.slowCommits > 0
}

// runWriter commits group after group until nothing is queued.
func (c *coalescer) runWriter() {
	defer c.work.Done()
	runtime.Gosched() // lets goroutines that are about to write join the group
	for {
		group := c.nextGroup()
		if len(group) == 0 {
			return
		}
		c.commitGroup(group)
	}
}

// commitGroup commits a group and calls onCommit. A timer counts the commit as slow after slowCommitAfter and lets a
// second writer start.
func (c *coalescer) commitGroup(group []*pendingBatch) {
	var late, over bool // guarded by c.mu
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
	// The commit is over: if the timer fires now it must not count it as slow, for which the function checks over.
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

// nextGroup removes one large batch or up to maxGroupSize small ones from the queues. It orders them by tenant and key,
// which is the order in which they lock rows. If it returns nothing the calling writer is no longer counted and must
// end.
func (c *coalescer) nextGroup() []*pendingBatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	var group []*pendingBatch
	if c.committing == 0 || c.canCommitNext() { // else another writer commits, which takes these batches next
		// Large and small groups alternate while both are queued.
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

// closeAndWait refuses further writes and returns when the queued ones are committed.
func (c *coalescer) closeAndWait() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.work.Wait()
}

// batchQueue holds queued batches per tenant in their order and serves the tenants in turn, so that a tenant with many
// writes does not delay the others. It is guarded by the coalescer's mu.
type batchQueue struct {
	batches map[ID][]*pendingBatch
	// order lists the tenants with queued batches, the next one to serve first.
	order []ID
	// length is the number of batches of all tenants, withdrawn ones included.
	length int
}

func newBatchQueue() batchQueue { return batchQueue{batches: map[ID][]*pendingBatch{}} }

func (q *batchQueue) pushBatch(w *pendingBatch) {
	if len(q.batches[w.tenant]) == 0 {
		q.order = append(q.order, w.tenant)
	}
	q.batches[w.tenant] = append(q.batches[w.tenant], w)
	q.length++
}

// popGroup removes up to most batches, marks them as started, and drops withdrawn ones.
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
