package corpus

import (
	"context"
	"errors"
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
	Epoch  int64
	// Cursor is what the holder of the pass before left, "" if that came to its end.
	Cursor string
	// Attempts is how many passes have failed since one succeeded.
	Attempts int64
	Lease    time.Duration
}

// Claim leases the pass that is due of the tenant that was served least recently. Tenants in busy, those of the passes that
// the process holds, and tenants that are not active are left out. found is false if no pass is due.
func (p *Passes) Claim(ctx context.Context, holder string, lease time.Duration, busy []db.ID) (pass Pass, found bool, err error) {
	return Pass{}, false, errors.ErrUnsupported
}

// Renew extends the lease of a pass from now on. The error is [ErrPassLost] if another process has claimed it.
// [Index.CommitDocument] renews the lease as well.
func (p *Passes) Renew(ctx context.Context, pass Pass) error {
	return errors.ErrUnsupported
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
	return errors.ErrUnsupported
}

// OldestPending returns when the document that waits longest for its indexing was received, over all tenants, by the
// database's clock, with that clock's time; zero if none waits.
func (p *Passes) OldestPending(ctx context.Context) (oldest, now time.Time, err error) {
	return time.Time{}, time.Time{}, errors.ErrUnsupported
}
