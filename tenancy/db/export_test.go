package db

import (
	"context"
	"slices"
	"sync"
	"time"
)

// SummarizeSQL exports summarizeSQL to the tests.
var SummarizeSQL = summarizeSQL

// WriteCounts returns how many writes are queued, and how many writers run.
func (d *DB) WriteCounts() (queued, writers int) {
	d.coalescer.mu.Lock()
	defer d.coalescer.mu.Unlock()
	return d.coalescer.queuedCount(), d.coalescer.writers
}

// PipelineSQL returns the statements that PostgreSQL gets for a group whose i-th batch belongs to the i-th tenant, and
// how many rows each inserts.
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

// BlockedEngine is an engine whose commits complete only when the test allows it.
type BlockedEngine struct {
	engine
	Proceed chan struct{} // each value lets the oldest commit complete

	mu         sync.Mutex
	groupSizes []int
}

// GroupSizes returns the number of batches of each commit, in the order in which the commits began.
func (be *BlockedEngine) GroupSizes() []int {
	be.mu.Lock()
	defer be.mu.Unlock()
	return slices.Clone(be.groupSizes)
}

func (be *BlockedEngine) runGroup(calls []*pendingBatch) {
	be.mu.Lock()
	be.groupSizes = append(be.groupSizes, len(calls))
	be.mu.Unlock()
	<-be.Proceed
	for _, c := range calls {
		c.done <- nil
	}
}

// NewWriter returns a function that writes a batch as [Handle.Write] does, and one that returns when everything is
// written.
func (be *BlockedEngine) NewWriter(e Engine) (write func(*Batch) error, end func()) {
	c := newCoalescer(be, maxWriters[e])
	return func(b *Batch) error {
		return c.writeBatch(context.Background(), &pendingBatch{tenant: "t", batch: b, done: make(chan error, 1)})
	}, c.closeAndWait
}

// ManySQL returns the statement for the rows of several batches.
func (in *InsertTarget) ManySQL() string { return in.sql }

// ValuesSQL returns the statement for n rows, n being small.
func (in *InsertTarget) ValuesSQL(n int) string { return in.values[n-1] }

// SetSharedBackoff sets how long a tenant uses no shared statements after one failed.
func (d *DB) SetSharedBackoff(long time.Duration) {
	if p, ok := d.engine.(*postgresEngine); ok {
		p.sharedBackoffTime = long
	}
}
