package requestbody

import (
	"context"
	"errors"
	"io"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"time"

	"stoa/tenancy/db"
)

// meter controls how one request body is read: where the memory for it is reserved once it is not small, and at
// which rate its bytes are read. One goroutine uses it; only refused is closed by another.
type meter struct {
	ctx    context.Context
	budget *Budget
	// pool and rates are the quotas that the body counts against: budget.bytes and budget.rates, or those for
	// unverified deliveries.
	pool  *quotaPool
	rates *rateLimits
	app   db.ID
	// reservation gets what is reserved. Its owner releases it.
	reservation *bodyReservation
	// cutOff aborts the reading of the body, see quotaPool.reserveBody; nil = nothing needs to be aborted.
	cutOff func()
	// pause is called before the server stops reading for a while, and what it returns after: the client's timeouts do
	// not run meanwhile. nil = there are none.
	pause func() (resume func())
	// reread says that the body was read before and is only read again from memory: everything is reserved.
	reread bool
	// isSmall says that the body announced a small size. It does not count against the app's rate. Set by waitForDebt.
	isSmall bool
	// refused is closed when the pool refuses the body; nil = nothing is reserved in the pool yet. Set by
	// reserveBuffer.
	refused chan struct{}
}

// newMeter returns the meter for a body of app that reserves its memory in h.
func newMeter(ctx context.Context, r *Budget, app db.ID, h *bodyReservation, cutOff func()) *meter {
	return &meter{ctx: ctx, budget: r, pool: r.bytes, rates: r.rates, app: app, reservation: h, cutOff: cutOff, reread: h.body != nil || h.smallBytes > 0}
}

// useUnverifiedPool makes the body count against the quotas for deliveries whose signature is not verified yet, and
// returns a.
func (m *meter) useUnverifiedPool() *meter {
	m.pool, m.rates = m.budget.unverified, m.budget.unverifiedRates
	return m
}

// pauseTimeout calls pause if it is set. The caller must call resume.
func (m *meter) pauseTimeout() (resume func()) {
	if m.pause == nil {
		return func() {}
	}
	return m.pause()
}

// reserveBuffer waits until a buffer of size bytes may be allocated, for a body of which arrived bytes have come and
// that has at most maximum. The first call announces maximum to the pool; later ones reserve the difference.
func (m *meter) reserveBuffer(size, arrived, maximum int64) (err error) {
	if m.reread {
		return nil
	}
	defer m.pauseTimeout()()
	before := int64(0)
	if m.reservation.body == nil {
		m.refused = make(chan struct{})
		// The pool calls end under its lock. Closing refused ends a wait for the rate; cutOff ends a read.
		end := func() {
			close(m.refused)
			if m.cutOff != nil {
				m.cutOff()
			}
		}
		if m.reservation.body, err = m.pool.reserveBody(m.ctx, m.app, max(maximum, size), size, end); err != nil {
			return err
		}
		m.reservation.body.received.Store(arrived)
	} else {
		before = m.reservation.body.used
		if err = m.reservation.body.growBy(m.ctx, size-before); err != nil {
			return err
		}
	}
	m.reservation.addLargeBytes(m.budget, size-before)
	return nil
}

// waitForDebt waits until the app is not in debt, unless the body announces a small size (-1 = it announces none).
func (m *meter) waitForDebt(size int64) error {
	m.isSmall = size >= 0 && size <= smallBodyBytes
	if m.reread || m.isSmall {
		return nil
	}
	return m.waitUnlessRefused(m.rates.debtDuration(m.app))
}

// recordReceived counts n bytes that have arrived and waits until the app may send more. Until a body is large, that
// is, has reserved memory, its bytes are not charged.
func (m *meter) recordReceived(n int) error {
	if m.reread || m.reservation.body == nil {
		return nil
	}
	m.reservation.body.received.Add(int64(n))
	return m.waitUnlessRefused(m.rates.chargeApp(m.app, int64(n)))
}

// waitUnlessRefused waits. It returns ErrTooSlow at once if the pool refuses the body meanwhile, and
// errBodyBudgetExhausted if the request ends. The time counts as paused, so that waiting does not make the body slow.
func (m *meter) waitUnlessRefused(wait time.Duration) error {
	if wait == 0 {
		return nil
	}
	defer m.pauseTimeout()()
	if m.reservation.body != nil {
		m.reservation.body.pausedNanos.Add(int64(wait))
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-m.refused:
		return ErrTooSlow
	case <-m.ctx.Done():
		return errBodyBudgetExhausted
	}
}

// chargeRefused charges the app for a body that was refused for its number of values. It costs more than one that is
// accepted, or refused bodies would be the cheapest way to use the server's processors.
func (m *meter) chargeRefused(values int) {
	if !m.reread && !m.isSmall {
		m.rates.chargeApp(m.app, refusedCost+int64(values)*valueCost)
	}
}

// markReceived says that the whole body has arrived. It returns ErrTooSlow if the pool refused it before.
func (m *meter) markReceived() error {
	if m.reread || m.reservation.body == nil {
		return nil
	}
	return m.reservation.body.markReceived()
}

// maxReadSize bounds one read of a large body, in bytes. After each such read other goroutines get the processor: large
// bodies that arrive as fast as they are read would make small requests wait for all of them.
const maxReadSize = 32 << 10

// readMetered reads a body that announces size bytes, -1 = none, and that may have at most maximum. It returns the
// errors of r and of a.
//
// Memory is reserved before the buffer grows, and the buffer is at most four times what has arrived: an announced size
// costs the sender nothing and reserves nothing. Outgrown buffers, and the buffer of a body that is refused, go to the
// pools of buffers.
func readMetered(r io.Reader, size, maximum int64, a *meter) (_ []byte, err error) {
	if err := a.waitForDebt(size); err != nil {
		return nil, err
	}
	first := int64(4 << 10)
	if size >= 0 {
		first, maximum = min(size, smallBodyBytes)+1, min(size, maximum) // one byte more lets the read that fills the body see its end
	}
	body := make([]byte, 0, first)
	defer func() {
		if err != nil {
			recycleBuffer(body)
		}
	}()
	for {
		n, err := r.Read(body[len(body):min(cap(body), len(body)+maxReadSize)])
		body = body[:len(body)+n]
		if n > 0 {
			if own := a.recordReceived(n); own != nil {
				return nil, own
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if err := a.markReceived(); err != nil {
				return nil, err
			}
			return slices.Clip(body), nil
		case err != nil:
			return nil, err
		case len(body) == cap(body):
			next := nextBufferSize(int64(len(body)), maximum, size >= 0)
			if next > smallBodyBytes+1 {
				if err := a.reserveBuffer(next, int64(len(body)), maximum); err != nil {
					return nil, err
				}
			}
			former := body
			body = append(newBuffer(next), former...)
			recycleBuffer(former)
		case n == maxReadSize:
			runtime.Gosched()
		}
	}
}

// nextBufferSize returns the size of the next buffer for a body that has outgrown one of has bytes. Up to largestBuffer
// it is the largest power of two that is at most twice has, since those are pooled. Beyond that outgrown buffers are
// garbage, so if the size is known the buffer grows by up to four times in few equal steps to maximum. The last buffer
// has one byte more, which lets the read that fills the body see its end.
func nextBufferSize(has, maximum int64, known bool) int64 {
	next := int64(1) << (bits.Len64(uint64(2*has)) - 1) //nolint:gosec // it is positive
	if known && next > largestBuffer {
		for next = maximum; next > 4*has; next = (next + 3) / 4 {
		}
	}
	if next >= maximum {
		next = max(maximum, has) + 1
	}
	return next
}

// Buffers of these sizes, in bytes, and the powers of two between them are pooled.
const (
	smallestBuffer = 128 << 10 // bytes
	largestBuffer  = 1 << 20
)

// bufferPools contain *[]byte. Pool i has buffers of smallestBuffer<<i bytes, so four pools reach largestBuffer.
var bufferPools [4]sync.Pool

// selectBufferPool returns the pool for buffers of size bytes, nil if such buffers are not pooled.
func selectBufferPool(size int64) *sync.Pool {
	if size < smallestBuffer || size > largestBuffer || size&(size-1) != 0 {
		return nil
	}
	return &bufferPools[bits.TrailingZeros64(uint64(size))-bits.TrailingZeros64(smallestBuffer)]
}

// newBuffer returns an empty buffer with the capacity size, a pooled one if there is one.
func newBuffer(size int64) []byte {
	if class := selectBufferPool(size); class != nil {
		if b, ok := class.Get().(*[]byte); ok {
			return (*b)[:0]
		}
	}
	return make([]byte, 0, size)
}

// recycleBuffer puts a buffer into its pool. The caller must have the only reference to it.
func recycleBuffer(b []byte) {
	if class := selectBufferPool(int64(cap(b))); class != nil {
		class.Put(&b)
	}
}
