package store

import (
	"context"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

// LeaderLease is work that one process at a time does for all of a database. Whoever has it has it for a time, by the
// database's clock, and may take it again before that is over.
type LeaderLease struct {
	h            *db.Handle
	name, holder string
}

// NewLeaderLease returns the duty of that name, as holder would take it.
func NewLeaderLease(d *db.DB, name, holder string) *LeaderLease {
	return &LeaderLease{d.Platform(), name, holder}
}

// Acquire takes the duty for a time, or renews it, and reports whether it is the holder's now.
func (d *LeaderLease) Acquire(ctx context.Context, duration time.Duration) (bool, error) {
	var n int64
	var b db.Batch
	b.Exec(&n, `INSERT INTO duty (name, holder, until) VALUES ($1, $2, stoa_now() + CAST($3 AS BIGINT))
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
		WHERE duty.holder = excluded.holder OR duty.until < stoa_now()`, d.name, d.holder, duration.Microseconds())
	if err := d.h.Do(ctx, &b); err != nil {
		return false, fmt.Errorf("take the duty %s: %w", d.name, err)
	}
	return n > 0, nil
}

// Release gives the duty up, if it is the holder's.
func (d *LeaderLease) Release(ctx context.Context) error {
	var b db.Batch
	b.Exec(nil, `DELETE FROM duty WHERE name = $1 AND holder = $2`, d.name, d.holder)
	if err := d.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("leave the duty %s: %w", d.name, err)
	}
	return nil
}
