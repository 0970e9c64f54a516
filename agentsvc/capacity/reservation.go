package capacity

import (
	"context"
	"errors"
	"io"
	"sync"

	"stoa/tenancy/db"
)

const (
	// FreeBytes is the number of bytes that a reservation may have without taking any from its pool. Most requests stay
	// below it and never lock the pool.
	FreeBytes = 64 << 10
	// minGrowth is the least number of bytes that a growing reservation takes from the pool at once, so that an answer
	// that grows by single words does not lock the pool for each.
	minGrowth = 256 << 10
)

// MemoryReservation is the memory of one piece of work. It takes bytes from the pool as the work grows, until ReleaseBytes.
// Nil and the zero value have no bound. It is safe for concurrent use.
type MemoryReservation struct {
	// pool, app and factor are set by InitReservation, then read-only.
	pool *Pool
	app  db.ID
	// factor is the number of bytes of the pool for each byte of the work, because one byte of text exists several
	// times (decoded, as event, as row).
	factor int64

	// mu guards the fields below. It is held while raiseTotal waits for the pool, so a concurrent ReserveBytes waits
	// too.
	mu sync.Mutex
	// usedBytes is what the work has reported, without factor.
	usedBytes int64
	// reservedBytes is what was taken from the pool, with factor. It may exceed usedBytes*factor by minGrowth.
	reservedBytes int64
}

// NewReservation returns an empty reservation of an app. Each byte added to it counts as factor bytes of the pool.
func (p *Pool) NewReservation(app db.ID, factor int64) *MemoryReservation {
	h := &MemoryReservation{}
	h.InitReservation(p, app, factor)
	return h
}

// InitReservation initializes r, a zero MemoryReservation that is a field of another value, like [Pool.NewReservation]. It
// saves an allocation for each request.
func (r *MemoryReservation) InitReservation(p *Pool, app db.ID, factor int64) {
	r.pool, r.app, r.factor = p, app, factor
}

// NewPart returns an empty reservation of the same pool and app, for a part of the work that is released before the
// rest. It returns nil, which has no bound, if r has none. The part is independent: releasing r does not release it.
func (r *MemoryReservation) NewPart(factor int64) *MemoryReservation {
	if r == nil || r.pool == nil {
		return nil
	}
	return r.pool.NewReservation(r.app, factor)
}

// ReserveBytes adds n bytes to what the work has in memory, and waits for the pool if necessary. It returns [ErrFull],
// an error with [agentsvc.CodeTooLarge] or the cause of ctx's end; then the bytes are not added, and the caller must
// stop the work.
func (r *MemoryReservation) ReserveBytes(ctx context.Context, n int64) error {
	if r == nil || r.pool == nil || n <= 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.raiseTotal(ctx, r.usedBytes+n)
}

// ReserveTotal raises the work's bytes to n if it has fewer, and does nothing otherwise. It waits and fails like
// ReserveBytes. It is for a size that is known again and again, such as that of a buffer.
func (r *MemoryReservation) ReserveTotal(ctx context.Context, n int64) error {
	if r == nil || r.pool == nil || n <= FreeBytes {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.raiseTotal(ctx, max(r.usedBytes, n))
}

// TryReserveBytes adds n bytes like ReserveBytes if the pool has them now, and reports whether it did. It never waits for
// the pool. It is for what stays in memory for long, where the wait for another piece of work makes no sense.
func (r *MemoryReservation) TryReserveBytes(n int64) bool {
	if r == nil || r.pool == nil || n <= 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	total := r.usedBytes + n
	if missing := total*r.factor - r.reservedBytes; total > FreeBytes && missing > 0 {
		if !r.pool.tryReserveBytes(r.app, missing) {
			return false
		}
		r.reservedBytes += missing
	}
	r.usedBytes = total
	return true
}

// ReturnBytes takes n bytes off what the work has in memory, and returns to the pool what it then has too much.
func (r *MemoryReservation) ReturnBytes(n int64) {
	if r == nil || r.pool == nil || n <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usedBytes = max(0, r.usedBytes-n)
	needed := r.usedBytes * r.factor
	if r.usedBytes <= FreeBytes {
		needed = 0
	}
	if surplus := r.reservedBytes - needed; surplus > 0 {
		r.pool.releaseBytes(r.app, surplus)
		r.reservedBytes = needed
	}
}

// ReadAll reads from to its end, at most maxBytes, and reserves the memory before the bytes are read. It returns
// [ErrTooManyBytes] if there are more, and the errors of ReserveBytes.
func (r *MemoryReservation) ReadAll(ctx context.Context, from io.Reader, maxBytes int) ([]byte, error) {
	const first = 4 << 10
	body := make([]byte, 0, min(first, maxBytes+1))
	reserved := 0
	for {
		if len(body) == cap(body) {
			if len(body) > maxBytes {
				return nil, ErrTooManyBytes
			}
			size := min(2*cap(body), maxBytes+1)
			if err := r.ReserveBytes(ctx, int64(size-reserved)); err != nil {
				return nil, err
			}
			reserved = size
			body = append(make([]byte, 0, size), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case errors.Is(err, io.EOF) && len(body) <= maxBytes:
			return body, nil
		case errors.Is(err, io.EOF):
			return nil, ErrTooManyBytes
		case err != nil:
			return nil, err
		}
	}
}

// ErrTooManyBytes reports that a reader of [MemoryReservation.ReadAll] has more bytes than it may.
var ErrTooManyBytes = errors.New("more bytes than allowed")

// raiseTotal sets the work's bytes to total and takes what is missing from the pool. On an error nothing changes. The
// caller holds r.mu.
func (r *MemoryReservation) raiseTotal(ctx context.Context, total int64) error {
	if total > FreeBytes {
		// The end of other work would not give it that much memory.
		if total*r.factor > r.pool.size/2 {
			return newTooLargeError(total*r.factor, r.pool.size/2)
		}
		if missing := total*r.factor - r.reservedBytes; missing > 0 {
			// At most 1/64 of the pool, else two growing reservations would use up a small pool.
			missing = max(missing, min(minGrowth, r.pool.size/64))
			if err := r.pool.reserveBytes(ctx, r.app, missing); err != nil {
				return err
			}
			r.reservedBytes += missing
		}
	}
	r.usedBytes = total
	return nil
}

// ReleaseBytes returns everything to the pool. The reservation is then empty and may be used again; releasing it twice
// is harmless.
func (r *MemoryReservation) ReleaseBytes() {
	if r == nil || r.pool == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reservedBytes > 0 {
		r.pool.releaseBytes(r.app, r.reservedBytes)
	}
	r.usedBytes, r.reservedBytes = 0, 0
}
