// Package leader makes one process at a time do some work for a whole database.
package leader

import (
	"context"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

// Lease makes one process at a time do some work for a whole database, such as retention. The lease is a row
// that names its holder until a time of the database's clock; the holder may renew it before.
type Lease struct {
	h            *db.Handle
	name, holder string
}

// New returns the lease called name as holder sees it. It acquires nothing.
func New(d *db.DB, name, holder string) *Lease {
	return &Lease{d.Platform(), name, holder}
}

// Acquire takes the lease for duration, or renews it, and reports whether the holder has it now.
func (l *Lease) Acquire(ctx context.Context, duration time.Duration) (bool, error) {
	var n int64
	var b db.Batch
	// One statement decides: the row is inserted, or updated if it is the holder's own or has expired. Otherwise no
	// row is touched.
	b.Exec(&n, `INSERT INTO duty (name, holder, until) VALUES ($1, $2, stoa_now() + CAST($3 AS BIGINT))
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
		WHERE duty.holder = excluded.holder OR duty.until < stoa_now()`, l.name, l.holder, duration.Microseconds())
	if err := l.h.Do(ctx, &b); err != nil {
		return false, fmt.Errorf("acquire the lease %s: %w", l.name, err)
	}
	return n > 0, nil
}

// Release gives the lease up if the holder has it.
func (l *Lease) Release(ctx context.Context) error {
	var b db.Batch
	b.Exec(nil, `DELETE FROM duty WHERE name = $1 AND holder = $2`, l.name, l.holder)
	if err := l.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("release the lease %s: %w", l.name, err)
	}
	return nil
}
