package surface

import (
	"context"
	"errors"
	"io"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

// bodyMeter is how a body comes in: where it takes room once it is not small, and at which rate its bytes are taken.
type bodyMeter struct {
	ctx         context.Context
	budget      *bodyBudget
	pool        *quotaPool
	rates       *bodyRates
	app         db.ID
	reservation *bodyReservation       // has the room
	cutOff      func()                 // ends the reading, see [pool.reserveBody]
	pause       func() (resume func()) // is called when the body is not read for a while through no fault of its sender's, nil = nobody wants to know
	reread      bool                   // the same body was read before: it has its room
	isSmall     bool                   // it says so of itself: it is paid for with its request
	refused     chan struct{}          // is closed when the body is refused while it arrives, nil = it has no room yet
}

// newBodyMeter is for a body of an app's that holds its room in h.
func newBodyMeter(ctx context.Context, r *bodyBudget, app db.ID, h *bodyReservation, cutOff func()) *bodyMeter {
	return &bodyMeter{ctx: ctx, budget: r, pool: r.bytes, rates: r.rates, app: app, reservation: h, cutOff: cutOff, reread: h.body != nil || h.smallBytes > 0}
}

// useUnverifiedPool has the body take the room of those of which nobody has proven that they are the app's.
func (a *bodyMeter) useUnverifiedPool() *bodyMeter {
	a.pool, a.rates = a.budget.unverified, a.budget.unverifiedRates
	return a
}

func (a *bodyMeter) pauseTimeout() (resume func()) {
	if a.pause == nil {
		return func() {}
	}
	return a.pause()
}

// reserveBuffer waits for room for a buffer of size bytes, for a body of which so many have arrived and that has at most as many as most.
func (a *bodyMeter) reserveBuffer(size, arrived, maximum int64) (err error) {
	if a.reread {
		return nil
	}
	defer a.pauseTimeout()()
	before := int64(0)
	if a.reservation.body == nil {
		a.refused = make(chan struct{})
		end := func() {
			close(a.refused)
			if a.cutOff != nil {
				a.cutOff()
			}
		}
		if a.reservation.body, err = a.pool.reserveBody(a.ctx, a.app, max(maximum, size), size, end); err != nil {
			return err
		}
		a.reservation.body.received.Store(arrived)
	} else {
		before = a.reservation.body.used
		if err = a.reservation.body.growBy(a.ctx, size-before); err != nil {
			return err
		}
	}
	a.reservation.addLargeBytes(a.budget, size-before)
	return nil
}

// waitForDebt waits until the app has paid for what it has sent before, unless the body is a small one.
func (a *bodyMeter) waitForDebt(size int64) error {
	a.isSmall = size >= 0 && size <= smallBodyBytes
	if a.reread || a.isSmall {
		return nil
	}
	return a.waitUnlessRefused(a.rates.debtDuration(a.app))
}

// recordReceived says that n more bytes have arrived, and waits until the app may send more.
func (a *bodyMeter) recordReceived(n int) error {
	if a.reread || a.reservation.body == nil {
		return nil
	}
	a.reservation.body.received.Add(int64(n))
	return a.waitUnlessRefused(a.rates.chargeApp(a.app, int64(n)))
}

// waitUnlessRefused waits until the app has paid, or the body is refused for others' sake.
func (a *bodyMeter) waitUnlessRefused(wait time.Duration) error {
	if wait == 0 {
		return nil
	}
	defer a.pauseTimeout()()
	if a.reservation.body != nil {
		a.reservation.body.pausedNanos.Add(int64(wait))
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-a.refused:
		return ErrTooSlow
	case <-a.ctx.Done():
		return errBodyBudgetExhausted
	}
}

// chargeRefused has the app pay for a body that is refused for its so many values: it costs more than one that is taken.
func (a *bodyMeter) chargeRefused(values int) {
	if !a.reread && !a.isSmall {
		a.rates.chargeApp(a.app, refusedCost+int64(values)*valueCost)
	}
}

// markReceived says that all of the body is there.
func (a *bodyMeter) markReceived() error {
	if a.reread || a.reservation.body == nil {
		return nil
	}
	return a.reservation.body.markReceived()
}

// maxReadSize is how much of a large body is read before others have their turn: large bodies that arrive as fast as they are read would have
// small requests wait for all of them.
const maxReadSize = 32 << 10 // bytes

// readMetered reads a body that says that it has size bytes, -1 = it does not say, and that has at most as many as most. One that is
// not small takes room before its buffer grows, which is at most four times what has arrived: a body's own word about its size costs its
// sender nothing. Buffers that a body has outgrown, or that a refused one leaves, are used for others.
func readMetered(r io.Reader, size, maximum int64, a *bodyMeter) (_ []byte, err error) {
	if err := a.waitForDebt(size); err != nil {
		return nil, err
	}
	first := int64(4 << 10)
	if size >= 0 {
		first, maximum = min(size, smallBodyBytes)+1, min(size, maximum) // the byte more is for the end to be seen
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

// nextBufferSize returns the size of the buffer for a body that has outgrown one: the power of two up to the double, as long as such buffers are
// used again. Larger ones are garbage when they are outgrown: they grow up to fourfold where the size is known, in few equal steps to it.
// The last one has a byte more for the end to be seen.
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

// Buffers of these sizes are used again: powers of two.
const (
	smallestBuffer = 128 << 10 // bytes
	largestBuffer  = 1 << 20
)

var bufferPools [4]sync.Pool // of *[]byte; the first are of smallestBuffer, the last of largestBuffer

// selectBufferPool returns where buffers of that many bytes are kept, nil = nowhere.
func selectBufferPool(size int64) *sync.Pool {
	if size < smallestBuffer || size > largestBuffer || size&(size-1) != 0 {
		return nil
	}
	return &bufferPools[bits.TrailingZeros64(uint64(size))-bits.TrailingZeros64(smallestBuffer)]
}

// newBuffer returns an empty buffer for so many bytes.
func newBuffer(size int64) []byte {
	if class := selectBufferPool(size); class != nil {
		if b, ok := class.Get().(*[]byte); ok {
			return (*b)[:0]
		}
	}
	return make([]byte, 0, size)
}

// recycleBuffer keeps a buffer for others, of which nobody may have a part any more.
func recycleBuffer(b []byte) {
	if class := selectBufferPool(int64(cap(b))); class != nil {
		class.Put(&b)
	}
}

const minCollectInterval = time.Second

var lastCollected atomic.Int64 // when collectGarbage collected last, in Unix nanoseconds

// collectGarbage has garbage collected, of which a large message has left much, at most once in minCollectInterval: a collection takes
// processor time of all, and who sends large messages in a loop would have one for each.
func collectGarbage() {
	now := time.Now().UnixNano()
	if last := lastCollected.Load(); now-last >= int64(minCollectInterval) && lastCollected.CompareAndSwap(last, now) {
		runtime.GC()
	}
}
