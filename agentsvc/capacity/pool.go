// Package capacity bounds how many bytes of answers, tasks and conversations are in memory at a time. A [Pool] is an amount of
// bytes that the apps of a process share; a [Hold] is what one piece of work, a request or a run, has taken from it. Code that is
// about to make or read many bytes calls [Hold.ReserveBytes] of the hold in its context first, and whoever began the work releases the hold.
package capacity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"stoa/tenancy/db"
)

// MaxWait is how long bytes are waited for.
const MaxWait = 10 * time.Second

// ErrFull says that bytes were not free in time. It may pass.
var ErrFull = errors.New("too many large answers are in memory, try again shortly")

// TooLargeError says that something has more bytes than one app may ever have in memory at a time. It does not pass.
type TooLargeError struct{ Bytes, MaxBytes int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("this takes %.1f MiB of memory and there are at most %.1f MiB for it: ask for less of it", float64(e.Bytes)/(1<<20), float64(e.MaxBytes)/(1<<20))
}

// Pool is an amount of bytes that apps share. An app may have as many as it leaves free: alone it gets half of them, and N apps
// that take all they may leave a part of 1/(N+1) to the next. The zero value is of no use; a nil pool has no bound.
type Pool struct {
	size     int64
	onChange func(reserved int64) // is told of each change, nil = nobody wants to know; called under mu

	mu            sync.Mutex
	reserved      int64
	reservedByApp map[db.ID]int64
	waiters       []*waiter // in the order of their coming
}

// waiter waits for bytes.
type waiter struct {
	app     db.ID
	n       int64
	granted chan struct{} // closed under Pool.mu when the bytes are taken
}

// NewPool returns a pool of size bytes. It tells watch, which may be nil and must not block, how many of them are taken.
func NewPool(size int64, watch func(reserved int64)) *Pool {
	return &Pool{size: size, onChange: watch, reservedByApp: map[db.ID]int64{}}
}

// canReserve reports whether an app may have n bytes more. mu is held.
func (p *Pool) canReserve(app db.ID, n int64) bool {
	return p.reservedByApp[app]+n <= p.size-p.reserved-n
}

// reserveBytes takes n bytes for an app, and waits for them at most for [MaxWait].
func (p *Pool) reserveBytes(ctx context.Context, app db.ID, n int64) error {
	if n > p.size/2 {
		return &TooLargeError{n, p.size / 2}
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
	case <-r.granted: // in this instant
		return nil
	default:
	}
	for i, other := range p.waiters {
		if other == r {
			p.waiters = append(p.waiters[:i], p.waiters[i+1:]...)
			break
		}
	}
	p.grantWaiters() // those behind it may fit
	return err
}

// hasWaiter reports whether an app has a request that waits. mu is held.
func (p *Pool) hasWaiter(app db.ID) bool {
	for _, r := range p.waiters {
		if r.app == app {
			return true
		}
	}
	return false
}

// adjustReserved takes bytes, or gives back where n is negative. mu is held.
func (p *Pool) adjustReserved(app db.ID, n int64) {
	p.reserved += n
	if p.reservedByApp[app] += n; p.reservedByApp[app] == 0 {
		delete(p.reservedByApp, app)
	}
	if p.onChange != nil {
		p.onChange(p.reserved)
	}
}

func (p *Pool) releaseBytes(app db.ID, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.adjustReserved(app, -n)
	p.grantWaiters()
}

// grantWaiters has those who wait take what is free, in their order; an app that has to wait keeps no other one waiting. mu is held.
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
