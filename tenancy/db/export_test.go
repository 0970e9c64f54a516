package db

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Summarize is for the tests.
var Summarize = summarize

// Writes returns how many writes are queued, and how many groups are put together or on their way.
func (d *DB) Writes() (queued, writers int) {
	d.group.mu.Lock()
	defer d.group.mu.Unlock()
	return d.group.queued(), d.group.writers
}

// Pipeline returns the statements that go to PostgreSQL for a group, the i-th batch of which is of the i-th tenant, and how
// many rows each inserts.
func Pipeline(tenants []ID, batches ...*Batch) (sql []string, rows []int) {
	calls := make([]*call, len(batches))
	for i, b := range batches {
		calls[i] = &call{tenant: tenants[i], batch: b}
	}
	steps, _ := pipeline("enter", "", nil, calls)
	for _, s := range steps {
		sql, rows = append(sql, s.sql), append(rows, len(s.rows))
	}
	return sql, rows
}

// Held is a database whose commits end when they may.
type Held struct {
	engine
	Gate chan struct{} // the oldest commit ends for each that it receives

	mu     sync.Mutex
	groups []int
}

// Groups returns how many batches each commit holds, in the order of their beginning.
func (h *Held) Groups() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.groups)
}

func (h *Held) runGroup(calls []*call) {
	h.mu.Lock()
	h.groups = append(h.groups, len(calls))
	h.mu.Unlock()
	<-h.Gate
	for _, c := range calls {
		c.done <- nil
	}
}

// Writer returns a function that writes a batch as [Handle.Write] does on an engine, and one that ends when all is written.
func (h *Held) Writer(e Engine) (write func(*Batch) error, end func()) {
	c := newCoalescer(h, writers[e])
	return func(b *Batch) error {
		return c.write(context.Background(), &call{tenant: "t", batch: b, done: make(chan error, 1)})
	}, c.close
}

// Many is the statement that inserts rows.
func (in *Into) Many() string { return in.sql }

// Wary sets how long a database goes without what batches share after it was not as they said.
func (d *DB) Wary(long time.Duration) {
	if p, ok := d.engine.(*postgres); ok {
		p.wariness = long
	}
}
