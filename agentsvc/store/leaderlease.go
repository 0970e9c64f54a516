package store

import (
	"context"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

// LeaderLease makes one process at a time do some work for a whole database, such as retention. The lease is a row
// that names its holder until a time of the database's clock; the holder may renew it before.
type LeaderLease struct {
	h            *db.Handle
	name, holder string
}

// NewLeaderLease returns the lease called name as holder sees it. It acquires nothing.
func NewLeaderLease(d *db.DB, name, holder string) *LeaderLease {
	return &LeaderLease{d.Platform(), name, holder}
}

// Acquire takes the lease for duration, or renews it, and reports whether the holder has it now.
func (d *LeaderLease) Acquire(ctx context.Context, duration time.Duration) (bool, error) {
	var n int64
	var b db.Batch
	// One statement decides: the row is inserted, or updated if it is the holder's own or has expired. Otherwise no
	// row is touched.
	b.Exec(&n, `INSERT INTO duty (name, holder, until) VALUES ($1, $2, stoa_now() + CAST($3 AS BIGINT))
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
		WHERE duty.holder = excluded.holder OR duty.until < stoa_now()`, d.name, d.holder, duration.Microseconds())
	if err := d.h.Do(ctx, &b); err != nil {
		return false, fmt.Errorf("take the duty %s: %w", d.name, err)
	}
	return n > 0, nil
}

// Release gives the lease up if the holder has it.
func (d *LeaderLease) Release(ctx context.Context) error {
	var b db.Batch
	b.Exec(nil, `DELETE FROM duty WHERE name = $1 AND holder = $2`, d.name, d.holder)
	if err := d.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("leave the duty %s: %w", d.name, err)
	}
	return nil
}
