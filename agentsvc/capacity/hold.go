package capacity

import (
	"context"
	"sync"

	"stoa/tenancy/db"
)

const (
	// Free is how many bytes a hold has without taking any from its pool: most work never gets there, and touches no lock of others.
	Free = 64 << 10
	// step is what a hold takes at once when it grows little by little.
	step = 256 << 10
)

// Hold is what one piece of work has in memory: it takes bytes from the pool as the work grows, until Release. The zero value
// and nil have no bound. It may be used by several goroutines at once.
type Hold struct {
	pool   *Pool
	app    db.ID
	factor int64 // bytes of the pool for each byte that is added

	mu    sync.Mutex
	added int64 // bytes
	taken int64 // from the pool
}

// Hold returns an empty hold of an app. Each byte that is added to it counts for factor bytes of the pool.
func (p *Pool) Hold(app db.ID, factor int64) *Hold {
	h := &Hold{}
	h.Init(p, app, factor)
	return h
}

// Init makes h, which is zero, what [Pool.Hold] returns: for holds that are part of another value.
func (h *Hold) Init(p *Pool, app db.ID, factor int64) { h.pool, h.app, h.factor = p, app, factor }

// Beside returns an empty hold of the same pool and app, for a part of the work that ends before the rest.
func (h *Hold) Beside(factor int64) *Hold {
	if h == nil || h.pool == nil {
		return nil
	}
	return h.pool.Hold(h.app, factor)
}

// Add says that the work is about to have n bytes more in memory, and waits for them if need be. It returns [ErrFull], a
// [*TooLargeError] or the cause of ctx's end; then they are not taken, and the work is to end.
func (h *Hold) Add(ctx context.Context, n int64) error {
	if h == nil || h.pool == nil || n <= 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.grow(ctx, h.added+n)
}

// Reach is Add where the work has fewer than n bytes.
func (h *Hold) Reach(ctx context.Context, n int64) error {
	if h == nil || h.pool == nil || n <= Free {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.grow(ctx, max(h.added, n))
}

// grow takes what h lacks to have total bytes. mu is held.
func (h *Hold) grow(ctx context.Context, total int64) error {
	if total > Free {
		if lacks := total*h.factor - h.taken; lacks > 0 {
			lacks = max(lacks, min(step, h.pool.size/64)) // so that a small pool is not taken by two
			if err := h.pool.take(ctx, h.app, lacks); err != nil {
				return err
			}
			h.taken += lacks
		}
	}
	h.added = total
	return nil
}

// Release gives everything back. The hold is then empty, and may be used again.
func (h *Hold) Release() {
	if h == nil || h.pool == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.taken > 0 {
		h.pool.give(h.app, h.taken)
	}
	h.added, h.taken = 0, 0
}

// Key is what [Of] looks for in a context. A context type of one's own may answer it with a *Hold.
type Key struct{}

// With returns a context whose work is held by h.
func With(ctx context.Context, h *Hold) context.Context { return context.WithValue(ctx, Key{}, h) }

// Of returns the hold of the work that ctx belongs to, nil where it has none.
func Of(ctx context.Context) *Hold {
	h, _ := ctx.Value(Key{}).(*Hold)
	return h
}
