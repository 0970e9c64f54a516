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

// arrival is how a body comes in: where it takes room once it is not small, and at which rate its bytes are taken.
type arrival struct {
	ctx   context.Context
	rooms *rooms
	pool  *pool
	rates *bodyRates
	app   db.ID
	hold  *hold                  // has the room
	cut   func()                 // ends the reading, see [pool.take]
	pause func() (resume func()) // is called when the body is not read for a while through no fault of its sender's, nil = nobody wants to know
	again bool                   // the same body was read before: it has its room
	small bool                   // it says so of itself: it is paid for with its request
	ended chan struct{}          // is closed when the body is refused while it arrives, nil = it has no room yet
}

// newArrival is for a body of an app's that holds its room in h.
func newArrival(ctx context.Context, r *rooms, app db.ID, h *hold, cut func()) *arrival {
	return &arrival{ctx: ctx, rooms: r, pool: r.bytes, rates: r.rates, app: app, hold: h, cut: cut, again: h.body != nil || h.small > 0}
}

// unproven has the body take the room of those of which nobody has proven that they are the app's.
func (a *arrival) unproven() *arrival {
	a.pool, a.rates = a.rooms.unproven, a.rooms.unprovenRates
	return a
}

func (a *arrival) idle() (resume func()) {
	if a.pause == nil {
		return func() {}
	}
	return a.pause()
}

// reserve waits for room for a buffer of size bytes, for a body of which so many have arrived and that has at most as many as most.
func (a *arrival) reserve(size, arrived, most int64) (err error) {
	if a.again {
		return nil
	}
	defer a.idle()()
	before := int64(0)
	if a.hold.body == nil {
		a.ended = make(chan struct{})
		end := func() {
			close(a.ended)
			if a.cut != nil {
				a.cut()
			}
		}
		if a.hold.body, err = a.pool.take(a.ctx, a.app, max(most, size), size, end); err != nil {
			return err
		}
		a.hold.body.arrived.Store(arrived)
	} else {
		before = a.hold.body.has
		if err = a.hold.body.grow(a.ctx, size-before); err != nil {
			return err
		}
	}
	a.hold.weigh(a.rooms, size-before)
	return nil
}

// begin waits until the app has paid for what it has sent before, unless the body is a small one.
func (a *arrival) begin(size int64) error {
	a.small = size >= 0 && size <= smallBody
	if a.again || a.small {
		return nil
	}
	return a.owe(a.rates.owed(a.app))
}

// received says that n more bytes have arrived, and waits until the app may send more.
func (a *arrival) received(n int) error {
	if a.again || a.hold.body == nil {
		return nil
	}
	a.hold.body.arrived.Add(int64(n))
	return a.owe(a.rates.charge(a.app, int64(n)))
}

// owe waits until the app has paid, or the body is refused for others' sake.
func (a *arrival) owe(wait time.Duration) error {
	if wait == 0 {
		return nil
	}
	defer a.idle()()
	if a.hold.body != nil {
		a.hold.body.excused.Add(int64(wait))
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-a.ended:
		return ErrSlow
	case <-a.ctx.Done():
		return errNoRoom
	}
}

// refuse has the app pay for a body that is refused for its so many values: it costs more than one that is taken.
func (a *arrival) refuse(values int) {
	if !a.again && !a.small {
		a.rates.charge(a.app, refusedCost+int64(values)*valueCost)
	}
}

// finish says that all of the body is there.
func (a *arrival) finish() error {
	if a.again || a.hold.body == nil {
		return nil
	}
	return a.hold.body.finish()
}

// slice is how much of a large body is read before others have their turn: large bodies that arrive as fast as they are read would have
// small requests wait for all of them.
const slice = 32 << 10 // bytes

// takeBody reads a body that says that it has size bytes, -1 = it does not say, and that has at most as many as most. One that is
// not small takes room before its buffer grows, which is at most four times what has arrived: a body's own word about its size costs its
// sender nothing. Buffers that a body has outgrown, or that a refused one leaves, are used for others.
func takeBody(r io.Reader, size, most int64, a *arrival) (_ []byte, err error) {
	if err := a.begin(size); err != nil {
		return nil, err
	}
	first := int64(4 << 10)
	if size >= 0 {
		first, most = min(size, smallBody)+1, min(size, most) // the byte more is for the end to be seen
	}
	body := make([]byte, 0, first)
	defer func() {
		if err != nil {
			recycle(body)
		}
	}()
	for {
		n, err := r.Read(body[len(body):min(cap(body), len(body)+slice)])
		body = body[:len(body)+n]
		if n > 0 {
			if own := a.received(n); own != nil {
				return nil, own
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if err := a.finish(); err != nil {
				return nil, err
			}
			return slices.Clip(body), nil
		case err != nil:
			return nil, err
		case len(body) == cap(body):
			next := nextBuffer(int64(len(body)), most, size >= 0)
			if next > smallBody+1 {
				if err := a.reserve(next, int64(len(body)), most); err != nil {
					return nil, err
				}
			}
			former := body
			body = append(newBuffer(next), former...)
			recycle(former)
		case n == slice:
			runtime.Gosched()
		}
	}
}

// nextBuffer returns the size of the buffer for a body that has outgrown one: the power of two up to the double, as long as such buffers are
// used again. Larger ones are garbage when they are outgrown: they grow up to fourfold where the size is known, in few equal steps to it.
// The last one has a byte more for the end to be seen.
func nextBuffer(has, most int64, known bool) int64 {
	next := int64(1) << (bits.Len64(uint64(2*has)) - 1) //nolint:gosec // it is positive
	if known && next > largestBuffer {
		for next = most; next > 4*has; next = (next + 3) / 4 {
		}
	}
	if next >= most {
		next = max(most, has) + 1
	}
	return next
}

// Buffers of these sizes are used again: powers of two.
const (
	smallestBuffer = 128 << 10 // bytes
	largestBuffer  = 1 << 20
)

var buffers [4]sync.Pool // of *[]byte; the first are of smallestBuffer, the last of largestBuffer

// bufferClass returns where buffers of that many bytes are kept, nil = nowhere.
func bufferClass(size int64) *sync.Pool {
	if size < smallestBuffer || size > largestBuffer || size&(size-1) != 0 {
		return nil
	}
	return &buffers[bits.TrailingZeros64(uint64(size))-bits.TrailingZeros64(smallestBuffer)]
}

// newBuffer returns an empty buffer for so many bytes.
func newBuffer(size int64) []byte {
	if class := bufferClass(size); class != nil {
		if b, ok := class.Get().(*[]byte); ok {
			return (*b)[:0]
		}
	}
	return make([]byte, 0, size)
}

// recycle keeps a buffer for others, of which nobody may have a part any more.
func recycle(b []byte) {
	if class := bufferClass(int64(cap(b))); class != nil {
		class.Put(&b)
	}
}

const collectAgain = time.Second

var collected atomic.Int64 // when collectReceived collected last, in Unix nanoseconds

// collectReceived has garbage collected, of which a large message has left much, at most once in collectAgain: a collection takes
// processor time of all, and who sends large messages in a loop would have one for each.
func collectReceived() {
	now := time.Now().UnixNano()
	if last := collected.Load(); now-last >= int64(collectAgain) && collected.CompareAndSwap(last, now) {
		runtime.GC()
	}
}
