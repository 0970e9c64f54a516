package corpus

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

// Passes are the passes of all tenants: which document store is indexed when, and by which process.
type Passes struct{ h *db.Handle }

// NewPasses returns the passes of all tenants.
func NewPasses(d *db.DB) *Passes { return &Passes{d.Platform()} }

// Pass is a claimed pass. Its holder may write to the index of the store until the lease ends, and renews it before.
type Pass struct {
	Tenant db.ID
	Store  string
	Holder string
	// Epoch grows with each claim of the store's pass, and fences the writes of holders before. It is the pass's own, not
	// that of a task.
	Epoch int64
	// Cursor is what the holder of the pass before left, "" if that came to its end.
	Cursor string
	// Attempts is how many passes have failed since one succeeded.
	Attempts int64
	Lease    time.Duration
}

// Claim leases the pass that is due of the tenant that was served least recently. Tenants in busy, those of the passes that
// the process holds, and tenants that are not active are left out. found is false if no pass is due. holder must not be
// empty.
func (p *Passes) Claim(ctx context.Context, holder string, lease time.Duration, busy []db.ID) (pass Pass, found bool, err error) {
	if busy == nil {
		busy = []db.ID{}
	}
	names, err := json.Marshal(busy)
	if err != nil {
		return pass, false, err
	}
	all := rows{h: p.h}
	skip := ""
	if p.h.Engine() == db.Postgres {
		skip = " FOR UPDATE SKIP LOCKED"
	}
	pass = Pass{Holder: holder, Lease: lease}
	var b db.Batch
	// MATERIALIZED makes PostgreSQL evaluate the selection once, see agentsvc/store.
	b.Query(func(r db.Row) error {
		found = true
		return r.Scan((*string)(&pass.Tenant), &pass.Store, &pass.Epoch, &pass.Cursor, &pass.Attempts)
	}, `WITH due AS MATERIALIZED (SELECT p.tenant, p.store FROM index_pass p
			WHERE p.due_at <= stoa_now() AND NOT `+all.inList("p.tenant", "$3")+`
				AND NOT EXISTS (SELECT 1 FROM app a WHERE a.tenant = p.tenant AND a.status <> 'active')
			ORDER BY (SELECT MAX(q.served_at) FROM index_pass q WHERE q.tenant = p.tenant), p.due_at, p.tenant, p.store LIMIT 1`+skip+`)
		UPDATE index_pass SET epoch = epoch + 1, holder = $1, due_at = stoa_now() + $2, requested = FALSE, served_at = stoa_now()
			WHERE (tenant, store) IN (SELECT tenant, store FROM due)
		RETURNING tenant, store, epoch, cursor, attempts`, holder, lease.Microseconds(), string(names))
	if err := p.h.Do(ctx, &b); err != nil {
		return Pass{}, false, fmt.Errorf("claim an indexing pass: %w", err)
	}
	return pass, found, nil
}

// Renew extends the lease of a pass from now on. The error is [ErrPassLost] if another process has claimed it. The writes of
// [Index] that take a pass renew the lease as well.
func (p *Passes) Renew(ctx context.Context, pass Pass) error {
	var n int64
	var b db.Batch
	b.Exec(&n, `UPDATE index_pass SET due_at = stoa_now() + $5 WHERE tenant = $1 AND store = $2 AND epoch = $3 AND holder = $4`,
		string(pass.Tenant), pass.Store, pass.Epoch, pass.Holder, pass.Lease.Microseconds())
	return p.execFenced(ctx, &b, &n, "renew the lease of an indexing pass")
}

// Release says how a pass ended.
type Release struct {
	// After is when the next pass is due, from now on; 0 = at once, after those of other tenants. A pass that was requested
	// meanwhile is due at once.
	After time.Duration
	// Cursor is for the next pass.
	Cursor string
	// Failure is why the source could not be read, in words for the tenant; "" = the pass succeeded.
	Failure string
}

// Release ends a pass. The error is [ErrPassLost] if another process has claimed it.
func (p *Passes) Release(ctx context.Context, pass Pass, r Release) error {
	var n int64
	var b db.Batch
	failed := int64(0)
	if r.Failure != "" {
		failed = 1
	}
	// The store's row is locked before the pass, as in [Index.EnsureStore].
	b.Exec(nil, `UPDATE document_store SET error = $5, updated_at = stoa_now() WHERE tenant = $1 AND store = $2 AND error <> $5
		AND EXISTS (SELECT 1 FROM index_pass WHERE tenant = $1 AND store = $2 AND epoch = $3 AND holder = $4)`,
		string(pass.Tenant), pass.Store, pass.Epoch, pass.Holder, cutText(r.Failure, 1000))
	b.Exec(&n, `UPDATE index_pass SET holder = '', due_at = CASE WHEN requested THEN stoa_now() ELSE stoa_now() + $5 END, requested = FALSE, cursor = $6,
			attempts = CASE WHEN $7 = 1 THEN attempts + 1 ELSE 0 END, served_at = stoa_now()
		WHERE tenant = $1 AND store = $2 AND epoch = $3 AND holder = $4`,
		string(pass.Tenant), pass.Store, pass.Epoch, pass.Holder, r.After.Microseconds(), r.Cursor, failed)
	return p.execFenced(ctx, &b, &n, "release an indexing pass")
}

// Settle records that a pass that keeps its lease has caught up: the failures before it do not count any more. It reports whether
// a pass was requested since the claim or the last Settle. The error is [ErrPassLost] if another process has claimed it.
func (p *Passes) Settle(ctx context.Context, pass Pass) (requested bool, err error) {
	var n, asked int64
	var b db.Batch
	args := []any{string(pass.Tenant), pass.Store, pass.Epoch, pass.Holder}
	const held = ` WHERE tenant = $1 AND store = $2 AND epoch = $3 AND holder = $4`
	// The store's row is locked before the pass, as in Release.
	b.Exec(nil, `UPDATE document_store SET error = '', updated_at = stoa_now() WHERE tenant = $1 AND store = $2 AND error <> ''
		AND EXISTS (SELECT 1 FROM index_pass`+held+`)`, args...)
	b.Exec(&asked, `UPDATE index_pass SET requested = FALSE`+held+` AND requested`, args...)
	b.Exec(&n, `UPDATE index_pass SET attempts = 0`+held, args...)
	err = p.execFenced(ctx, &b, &n, "settle an indexing pass")
	return asked > 0, err
}

// execFenced executes a batch whose conditional statement counts its rows into n.
func (p *Passes) execFenced(ctx context.Context, b *db.Batch, n *int64, what string) error {
	if err := p.h.Do(ctx, b); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if *n == 0 {
		return ErrPassLost
	}
	return nil
}

// OldestPending returns when the document that waits longest for its indexing was received, over all active tenants,
// by the database's clock, with that clock's time; zero if none waits.
func (p *Passes) OldestPending(ctx context.Context) (oldest, now time.Time, err error) {
	var since, at int64
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&since, &at) },
		`SELECT COALESCE((SELECT d.waiting_since FROM document d WHERE d.state = 'pending'
			AND NOT EXISTS (SELECT 1 FROM app a WHERE a.tenant = d.tenant AND a.status <> 'active') ORDER BY d.waiting_since LIMIT 1), 0), stoa_now()`)
	if err := p.h.Do(ctx, &b); err != nil {
		return time.Time{}, time.Time{}, fmt.Errorf("find the oldest pending document: %w", err)
	}
	return fromMicros(since), fromMicros(at), nil
}
