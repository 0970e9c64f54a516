package db

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// pendingBatch is a batch on its way to the database.
type pendingBatch struct {
	ctx     context.Context // the caller's; nil = it has none
	role    string
	tenant  ID
	batch   *Batch
	readErr error // of the batch's read functions
	done    chan error
	span    trace.Span // nil = nobody records it

	// Of a grouped call, under the coalescer's lock:
	started   bool // it is on its way
	withdrawn bool // nobody waits for it, and nobody will take it

	resultMu  sync.Mutex // held while the waiter is told something
	abandoned bool       // nobody waits for what the batch finds, under telling
}

// abandonResults says that nobody waits any more. When it returns nothing is told, now or later.
func (c *pendingBatch) abandonResults() {
	c.resultMu.Lock()
	c.abandoned = true
	c.resultMu.Unlock()
}

// setRowCount tells the waiter, where it asked by n, how many rows a statement touched.
func (c *pendingBatch) setRowCount(n *int64, rows int64) {
	if n == nil {
		return
	}
	c.resultMu.Lock()
	defer c.resultMu.Unlock()
	if !c.abandoned {
		*n = rows
	}
}

// resetRowCounts takes back what the waiter was told by what its batch shares.
func (c *pendingBatch) resetRowCounts() {
	for _, s := range c.batch.Shared.stmts {
		c.setRowCount(s.affected, 0)
	}
}

// hasSameScope reports whether both calls reach the same rows.
func (c *pendingBatch) hasSameScope(other *pendingBatch) bool {
	return c.role == other.role && c.tenant == other.tenant
}

// rowReader returns the read function of s, which does nothing once the waiter has left.
func (c *pendingBatch) rowReader(s stmt) func(Row) error {
	return func(r Row) error {
		c.resultMu.Lock()
		defer c.resultMu.Unlock()
		if c.abandoned {
			return nil
		}
		return s.readRow(r)
	}
}
