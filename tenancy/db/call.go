package db

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// call is a batch on its way to the database.
type call struct {
	ctx     context.Context // the caller's; nil = it has none
	role    string
	tenant  ID
	batch   *Batch
	readErr error // of the batch's read functions
	done    chan error
	span    trace.Span // nil = nobody records it

	// Of a grouped call, under the coalescer's lock:
	taken     bool // it is on its way
	withdrawn bool // nobody waits for it, and nobody will take it

	telling sync.Mutex // held while the waiter is told something
	gone    bool       // nobody waits for what the batch finds, under telling
}

// leave says that nobody waits any more. When it returns nothing is told, now or later.
func (c *call) leave() {
	c.telling.Lock()
	c.gone = true
	c.telling.Unlock()
}

// count tells the waiter, where it asked by n, how many rows a statement touched.
func (c *call) count(n *int64, rows int64) {
	if n == nil {
		return
	}
	c.telling.Lock()
	defer c.telling.Unlock()
	if !c.gone {
		*n = rows
	}
}

// untell takes back what the waiter was told by what its batch shares.
func (c *call) untell() {
	for _, s := range c.batch.Shared.stmts {
		c.count(s.n, 0)
	}
}

// beside reports whether both calls reach the same rows.
func (c *call) beside(other *call) bool { return c.role == other.role && c.tenant == other.tenant }

// reader returns the read function of s, which does nothing once the waiter has left.
func (c *call) reader(s stmt) func(Row) error {
	return func(r Row) error {
		c.telling.Lock()
		defer c.telling.Unlock()
		if c.gone {
			return nil
		}
		return s.read(r)
	}
}
