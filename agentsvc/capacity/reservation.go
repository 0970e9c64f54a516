package capacity

import (
	"context"
	"sync"

	"stoa/tenancy/db"
)

const (
	// FreeBytes is how many bytes a hold has without taking any from its pool: most work never gets there, and touches no lock of others.
	FreeBytes = 64 << 10
	// minGrowth is what a hold takes at once when it grows little by little.
	minGrowth = 256 << 10
)

// Reservation is what one piece of work has in memory: it takes bytes from the pool as the work grows, until Release. The zero value
// and nil have no bound. It may be used by several goroutines at once.
type Reservation struct {
	pool   *Pool
	app    db.ID
	factor int64 // bytes of the pool for each byte that is added

	mu            sync.Mutex
	usedBytes     int64 // bytes
	reservedBytes int64 // from the pool
}

// NewReservation returns an empty hold of an app. Each byte that is added to it counts for factor bytes of the pool.
func (p *Pool) NewReservation(app db.ID, factor int64) *Reservation {
	h := &Reservation{}
	h.InitReservation(p, app, factor)
	return h
}

// InitReservation makes h, which is zero, what [Pool.Hold] returns: for holds that are part of another value.
func (h *Reservation) InitReservation(p *Pool, app db.ID, factor int64) {
	h.pool, h.app, h.factor = p, app, factor
}

// NewPart returns an empty hold of the same pool and app, for a part of the work that ends before the rest.
func (h *Reservation) NewPart(factor int64) *Reservation {
	if h == nil || h.pool == nil {
		return nil
	}
	return h.pool.NewReservation(h.app, factor)
}

// ReserveBytes says that the work is about to have n bytes more in memory, and waits for them if need be. It returns [ErrFull], a
// [*TooLargeError] or the cause of ctx's end; then they are not taken, and the work is to end.
func (h *Reservation) ReserveBytes(ctx context.Context, n int64) error {
	if h == nil || h.pool == nil || n <= 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.raiseTotal(ctx, h.usedBytes+n)
}

// ReserveTotal is Add where the work has fewer than n bytes.
func (h *Reservation) ReserveTotal(ctx context.Context, n int64) error {
	if h == nil || h.pool == nil || n <= FreeBytes {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.raiseTotal(ctx, max(h.usedBytes, n))
}

// raiseTotal takes what h lacks to have total bytes. mu is held.
func (h *Reservation) raiseTotal(ctx context.Context, total int64) error {
	if total > FreeBytes {
		if missing := total*h.factor - h.reservedBytes; missing > 0 {
			missing = max(missing, min(minGrowth, h.pool.size/64)) // so that a small pool is not taken by two
			if err := h.pool.reserveBytes(ctx, h.app, missing); err != nil {
				return err
			}
			h.reservedBytes += missing
		}
	}
	h.usedBytes = total
	return nil
}

// ReleaseBytes gives everything back. The hold is then empty, and may be used again.
func (h *Reservation) ReleaseBytes() {
	if h == nil || h.pool == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reservedBytes > 0 {
		h.pool.releaseBytes(h.app, h.reservedBytes)
	}
	h.usedBytes, h.reservedBytes = 0, 0
}

// ContextKey is what [ReservationFrom] looks for in a context. A context type of one's own may answer it with a *Hold.
type ContextKey struct{}

// WithReservation returns a context whose work is held by h.
func WithReservation(ctx context.Context, h *Reservation) context.Context {
	return context.WithValue(ctx, ContextKey{}, h)
}

// ReservationFrom returns the hold of the work that ctx belongs to, nil where it has none.
func ReservationFrom(ctx context.Context) *Reservation {
	h, _ := ctx.Value(ContextKey{}).(*Reservation)
	return h
}
