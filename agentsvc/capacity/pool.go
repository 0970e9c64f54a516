// Package capacity bounds how many bytes of answers, tasks and conversations are in memory at the same time. A [Pool]
// is an amount of bytes that the apps of a process share. A [MemoryReservation] is what one piece of work (a request or a
// run) has taken from it.
//
// The entry point of a request or a run makes a MemoryReservation, passes it to what builds or reads many bytes, and releases
// it at the end ([MemoryReservation.ReleaseBytes]). A function with a MemoryReservation as its parameter or option calls
// [MemoryReservation.ReserveBytes] or [MemoryReservation.ReserveTotal] first, and stops if that returns an error. The numbers are
// estimates of the caller, not measured memory.
//
// The pool is fair between apps: see [Pool]. It does not bound the number of requests and streams: the rate limits of
// apps do, and the bounds of connections and open requests in package listener.
package capacity

import (
	"context"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// MaxWait is how long a reservation waits for bytes before it fails with [ErrFull].
const MaxWait = 10 * time.Second

// ErrFull reports that the bytes were not available within [MaxWait]. A later attempt may succeed.
var ErrFull = agentsvc.NewError(agentsvc.CodeBusy, "too many large answers are in memory, try again shortly")

// newTooLargeError reports that one piece of work needs more bytes than an app can ever have, even if no other app has
// any. A later attempt fails as well.
func newTooLargeError(bytes, maxBytes int64) error {
	const format = "this takes %.1f MiB of memory and there are at most %.1f MiB for it: ask for less of it"
	return agentsvc.NewError(agentsvc.CodeTooLarge, format, float64(bytes)/(1<<20), float64(maxBytes)/(1<<20))
}

// Pool is an amount of bytes that apps share. An app may reserve up to as many bytes as would then remain free: a
// single app gets at most half of the pool, and N apps that each take all they may leave 1/(N+1) of it for the next
// one. So no number of requests of one app makes the pool unusable for another. A nil pool has no bound; the zero value
// must not be used.
type Pool struct {
	// size is in bytes. It and onChange are set by NewPool, then read-only.
	size int64
	// onChange receives the sum after each change; nil: none. It is called with mu locked, in the order of the changes,
	// so it must not block or call the pool.
	onChange func(reserved int64)

	// mu guards the fields below.
	mu sync.Mutex
	// reserved is the sum of reservedByApp, in bytes.
	reserved int64
	// reservedByApp has an entry for each app with reserved bytes, and none for others.
	reservedByApp map[db.ID]int64
	// waiters are the requests that wait, in order of arrival.
	waiters []*waiter
}

// waiter is a request for n bytes that could not be granted at once.
type waiter struct {
	app db.ID
	n   int64
	// granted is closed, with Pool.mu locked, after the bytes have been reserved for the waiter.
	granted chan struct{}
}

// NewPool returns a pool of size bytes. It calls watch, which may be nil and must not block, with the reserved bytes
// after each change.
func NewPool(size int64, watch func(reserved int64)) *Pool {
	return &Pool{size: size, onChange: watch, reservedByApp: map[db.ID]int64{}}
}

// canReserve reports whether app may reserve n bytes more: afterwards it has at most as many as are free. The caller
// holds p.mu.
func (p *Pool) canReserve(app db.ID, n int64) bool {
	return p.reservedByApp[app]+n <= p.size-p.reserved-n
}

// reserveBytes reserves n bytes for app. It waits up to [MaxWait] and returns [ErrFull], an error with
// [agentsvc.CodeTooLarge] or the cause of ctx's end; then nothing is reserved. A request queues behind earlier ones of
// its own app, so that many small requests do not starve a large one.
func (p *Pool) reserveBytes(ctx context.Context, app db.ID, n int64) error {
	if n > p.size/2 {
		return newTooLargeError(n, p.size/2)
	}
	p.mu.Lock()
	if !p.hasWaiter(app) && p.canReserve(app, n) {
		p.adjustReserved(app, n)
		p.mu.Unlock()
		return nil
	}
	r := &waiter{app, n, make(chan struct{})}
	p.waiters = append(p.waiters, r)
	p.mu.Unlock()
	timer := time.NewTimer(MaxWait)
	defer timer.Stop()
	err := ErrFull
	select {
	case <-r.granted:
		return nil
	case <-timer.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-r.granted: // granted between the end of the wait and the lock: the bytes are reserved
		return nil
	default:
	}
	for i, other := range p.waiters {
		if other == r {
			p.waiters = append(p.waiters[:i], p.waiters[i+1:]...)
			break
		}
	}
	p.grantWaiters() // later requests of the same app may fit now
	return err
}

// tryReserveBytes reserves n bytes for app if that is possible now, and reports whether it did.
func (p *Pool) tryReserveBytes(app db.ID, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasWaiter(app) || !p.canReserve(app, n) {
		return false
	}
	p.adjustReserved(app, n)
	return true
}

// hasWaiter reports whether a request of app waits. The caller holds p.mu.
func (p *Pool) hasWaiter(app db.ID) bool {
	for _, r := range p.waiters {
		if r.app == app {
			return true
		}
	}
	return false
}

// adjustReserved adds n bytes, negative to release them, to what app has. The caller holds p.mu.
func (p *Pool) adjustReserved(app db.ID, n int64) {
	p.reserved += n
	if p.reservedByApp[app] += n; p.reservedByApp[app] == 0 {
		delete(p.reservedByApp, app)
	}
	if p.onChange != nil {
		p.onChange(p.reserved)
	}
}

// releaseBytes returns n bytes of app to the pool and grants waiting requests.
func (p *Pool) releaseBytes(app db.ID, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.adjustReserved(app, -n)
	p.grantWaiters()
}

// grantWaiters grants waiting requests in order of arrival. If a request does not fit, later ones of the same app keep
// waiting, while those of other apps may still be granted. The caller holds p.mu.
func (p *Pool) grantWaiters() {
	var left []*waiter
	blocked := map[db.ID]bool{}
	for _, r := range p.waiters {
		if blocked[r.app] || !p.canReserve(r.app, r.n) {
			blocked[r.app] = true
			left = append(left, r)
			continue
		}
		p.adjustReserved(r.app, r.n)
		close(r.granted)
	}
	p.waiters = left
}
