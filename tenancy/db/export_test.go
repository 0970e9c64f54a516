package db

import (
	"context"
	"slices"
	"sync"
	"time"
)

// SummarizeSQL is for the tests.
var SummarizeSQL = summarizeSQL

// WriteCounts returns how many writes are queued, and how many groups are put together or on their way.
func (d *DB) WriteCounts() (queued, writers int) {
	d.coalescer.mu.Lock()
	defer d.coalescer.mu.Unlock()
	return d.coalescer.queuedCount(), d.coalescer.writers
}

// PipelineSQL returns the statements that go to PostgreSQL for a group, the i-th batch of which is of the i-th tenant, and how
// many rows each inserts.
func PipelineSQL(tenants []ID, batches ...*Batch) (sql []string, rows []int) {
	calls := make([]*pendingBatch, len(batches))
	for i, b := range batches {
		calls[i] = &pendingBatch{tenant: tenants[i], batch: b}
	}
	steps, _ := buildPipeline("enter", "", nil, calls)
	for _, s := range steps {
		sql, rows = append(sql, s.sql), append(rows, len(s.rows))
	}
	return sql, rows
}

// BlockedEngine is a database whose commits end when they may.
type BlockedEngine struct {
	engine
	Proceed chan struct{} // the oldest commit ends for each that it receives

	mu         sync.Mutex
	groupSizes []int
}

// GroupSizes returns how many batches each commit holds, in the order of their beginning.
func (h *BlockedEngine) GroupSizes() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.groupSizes)
}

func (h *BlockedEngine) runGroup(calls []*pendingBatch) {
	h.mu.Lock()
	h.groupSizes = append(h.groupSizes, len(calls))
	h.mu.Unlock()
	<-h.Proceed
	for _, c := range calls {
		c.done <- nil
	}
}

// NewWriter returns a function that writes a batch as [Handle.Write] does on an engine, and one that ends when all is written.
func (h *BlockedEngine) NewWriter(e Engine) (write func(*Batch) error, end func()) {
	c := newCoalescer(h, maxWriters[e])
	return func(b *Batch) error {
		return c.writeBatch(context.Background(), &pendingBatch{tenant: "t", batch: b, done: make(chan error, 1)})
	}, c.closeAndWait
}

// ManySQL is the statement that inserts rows.
func (in *InsertTarget) ManySQL() string { return in.sql }

// SetSharedBackoff sets how long a database goes without what batches share after it was not as they said.
func (d *DB) SetSharedBackoff(long time.Duration) {
	if p, ok := d.engine.(*postgresEngine); ok {
		p.sharedBackoffTime = long
	}
}
