package db

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// pendingBatch is a batch on its way to the database with the scope it runs under.
type pendingBatch struct {
	// ctx is the caller's context; nil if there is none.
	ctx    context.Context
	role   string
	tenant ID
	batch  *Batch
	// readErr is the first error of the batch's read functions. It is written by the goroutine that executes the batch.
	readErr error
	// done (capacity 1) receives the outcome of a grouped batch.
	done chan error
	// span is the caller's span; nil if it is not recorded.
	span trace.Span

	// started means that a writer has taken the batch. started and withdrawn are guarded by the coalescer's mu; at most
	// one of them is set.
	started bool
	// withdrawn means that the caller gave up while the batch was queued: it must not be executed.
	withdrawn bool

	// resultMu guards abandoned and is held while a result is written into the caller's variables.
	resultMu sync.Mutex
	// abandoned means that the caller has returned: its variables must not be written any more.
	abandoned bool
}

// abandonResults stops results from reaching the caller. When it returns, no write into the caller's variables is under
// way.
func (b *pendingBatch) abandonResults() {
	b.resultMu.Lock()
	b.abandoned = true
	b.resultMu.Unlock()
}

// setRowCount stores the number of affected rows in n, unless n is nil or the caller has returned.
func (b *pendingBatch) setRowCount(n *int64, rows int64) {
	if n == nil {
		return
	}
	b.resultMu.Lock()
	defer b.resultMu.Unlock()
	if !b.abandoned {
		*n = rows
	}
}

// resetRowCounts clears the row counts that the failed shared statements have set.
func (b *pendingBatch) resetRowCounts() {
	for _, s := range b.batch.Shared.stmts {
		b.setRowCount(s.affected, 0)
	}
}

// hasSameScope reports whether both batches run under the same role and tenant.
func (b *pendingBatch) hasSameScope(other *pendingBatch) bool {
	return b.role == other.role && b.tenant == other.tenant
}

// rowReader returns the read function of s, which does nothing after the caller has returned.
func (b *pendingBatch) rowReader(s stmt) func(Row) error {
	return func(r Row) error {
		b.resultMu.Lock()
		defer b.resultMu.Unlock()
		if b.abandoned {
			return nil
		}
		return s.readRow(r)
	}
}
