package store

import (
	"context"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

// Duty is work that one process at a time does for all of a database. Whoever has it has it for a time, by the
// database's clock, and may take it again before that is over.
type Duty struct {
	h            *db.Handle
	name, holder string
}

// NewDuty returns the duty of that name, as holder would take it.
func NewDuty(d *db.DB, name, holder string) *Duty { return &Duty{d.Platform(), name, holder} }

// Take takes the duty for a time, or renews it, and reports whether it is the holder's now.
func (d *Duty) Take(ctx context.Context, lasting time.Duration) (bool, error) {
	var n int64
	var b db.Batch
	b.Exec(&n, `INSERT INTO duty (name, holder, until) VALUES ($1, $2, stoa_now() + CAST($3 AS BIGINT))
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
		WHERE duty.holder = excluded.holder OR duty.until < stoa_now()`, d.name, d.holder, lasting.Microseconds())
	if err := d.h.Do(ctx, &b); err != nil {
		return false, fmt.Errorf("take the duty %s: %w", d.name, err)
	}
	return n > 0, nil
}

// Leave gives the duty up, if it is the holder's.
func (d *Duty) Leave(ctx context.Context) error {
	var b db.Batch
	b.Exec(nil, `DELETE FROM duty WHERE name = $1 AND holder = $2`, d.name, d.holder)
	if err := d.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("leave the duty %s: %w", d.name, err)
	}
	return nil
}
