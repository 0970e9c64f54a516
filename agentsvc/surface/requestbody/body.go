// Package requestbody reads the bodies of requests and the messages of WebSockets. Memory and time have bounds, since
// every sender is untrusted: all bodies share the quotas of a [Budget] by app (budget.go, pool.go), are read in small
// steps (meter.go) at a rate per app (rate.go), must arrive in time (timed.go), and their JSON values are counted before
// they are decoded. See "Bounds on what comes in" in docs/security.md.
package requestbody

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/decode"
	"stoa/tenancy/db"
)

// Bounds of a request's body, see "Bounds on what comes in" in docs/security.md.
const (
	MaxBody    = 1 << 20  // bytes of a body on most routes
	MaxMessage = 28 << 20 // bytes of a message, which may have files
	// MaxFile is the bytes of a body with one file: a document of 20 MiB with the boundaries of a form around it.
	MaxFile = 20<<20 + 64<<10
)

// Body is the body of one request or one message of a WebSocket: what bounds it and what is reserved for it. One
// goroutine uses it at a time.
type Body struct {
	// App is the app that the body counts for, "" = the platform.
	App    db.ID
	budget *Budget
	// maxBytes bounds the body, 0 = the request has none.
	maxBytes int64
	// values is the number of JSON values that were read, size their bytes.
	values, size int
	reservation  bodyReservation
}

// NewBody returns a body that takes its memory from the budget.
func (b *Budget) NewBody(app db.ID) Body { return Body{App: app, budget: b} }

// Limit replaces r.Body by one of at most maxBytes that must arrive within totalTimeout, each of its pieces within
// pieceTimeout. w must be the connection's own writer. It does not read the body.
func (b *Body) Limit(w http.ResponseWriter, r *http.Request, maxBytes int64, pieceTimeout, totalTimeout time.Duration) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	b.maxBytes = maxBytes
	// The connection's own writer lets MaxBytesReader close the connection of a client that sends too much.
	in := http.MaxBytesReader(w, r.Body, maxBytes)
	if r.ContentLength > maxBytes {
		in = oversizedBody{in, maxBytes}
	}
	r.Body = &timedBody{ReadCloser: in, controller: http.NewResponseController(w), pieceTimeout: pieceTimeout, totalTimeout: totalTimeout}
}

// Read reads the body of r and reserves the memory for it and its JSON values. It may wait, for at most maxWait at each
// step and for the app's rate. The result is JSON within the bounds of decode.CountValues, not validated any further,
// or empty. The errors are for the caller: too large, too many values, too slow, or 429 if there is no memory.
func (b *Body) Read(r *http.Request) ([]byte, error) {
	body, refused, err := b.readCounted(r.Body, r.ContentLength, b.maxBytes, b.newMeter(r, &b.reservation))
	switch {
	case refused:
		return nil, err
	case err != nil:
		return nil, describeReadError(err)
	}
	return body, b.reserveRead(r.Context())
}

// ReadFile is [Body.Read] for a body that is a file: what it contains is not counted as JSON.
func (b *Body) ReadFile(r *http.Request) ([]byte, error) {
	body, err := readMetered(r.Body, r.ContentLength, b.maxBytes, b.newMeter(r, &b.reservation))
	if err != nil {
		return nil, describeReadError(err)
	}
	b.size, b.values = len(body), 0
	return body, b.reserveRead(r.Context())
}

// ReadUnverified reads the body of r, whose sender is not known yet, and writes it to verifier. The body takes its
// memory from a separate quota, until release is called, and its bytes count against a separate rate: such bodies
// cannot use up the app's own. [Body.Reserve] must be called once the sender is verified, before release.
func (b *Body) ReadUnverified(r *http.Request, verifier io.Writer) (body []byte, release func(), err error) {
	var unverified bodyReservation
	body, err = readMetered(io.TeeReader(r.Body, verifier), r.ContentLength, b.maxBytes, b.newMeter(r, &unverified).useUnverifiedPool())
	if err != nil {
		unverified.release()
		return nil, nil, describeReadError(err)
	}
	return body, unverified.release, nil
}

// RefusedError is the reason for which a message was refused. It was read to its end, so that the next one can be
// received.
type RefusedError struct{ Err error }

// Error returns the reason.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Err }

// discardSize is how many bytes of a refused message are read at a time.
const discardSize = 64 << 10

// Receive reads one message of at most [MaxMessage] bytes, of an unknown size, until the end of in. cutOff aborts a read
// of in, see quotaPool.reserveBody; pause is called before the server stops reading for a while, and what it returns
// after. It returns a [*RefusedError] for a message that is refused, by its content or because there is no memory for
// its bytes. [Body.ReserveReceived] must be called before the message is decoded.
func (b *Body) Receive(ctx context.Context, in io.Reader, cutOff func(), pause func() (resume func())) ([]byte, error) {
	a := newMeter(ctx, b.budget, b.App, &b.reservation, cutOff)
	a.pause = pause
	body, refused, err := b.readCounted(in, -1, MaxMessage, a)
	var own *agentsvc.Error
	switch {
	case err == nil:
		return body, nil
	case !refused && !errors.As(err, &own):
		b.Release()
		return nil, err
	}
	// The rest of a refused message is read and dropped. Its bytes count against the app's rate, so that sending
	// refused messages is not cheaper than sending good ones.
	b.Release()
	for lost := error(nil); lost == nil; {
		var n int64
		n, lost = io.CopyN(io.Discard, in, discardSize)
		b.budget.rates.chargeApp(b.App, n)
		_ = b.budget.rates.waitForDebt(ctx, b.App) // if ctx ended, the next read fails
		if lost != nil && !errors.Is(lost, io.EOF) {
			return nil, lost
		}
	}
	return nil, &RefusedError{err}
}

// ReserveReceived waits for the memory of the JSON values of a message that [Body.Receive] returned.
func (b *Body) ReserveReceived(ctx context.Context) error { return b.reserveRead(ctx) }

// readCounted reads a body, counts its values and sets b.size and b.values. refused says that err is about its content.
func (b *Body) readCounted(r io.Reader, size, maximum int64, a *meter) (body []byte, refused bool, err error) {
	in := &decode.CountingReader{Reader: r}
	body, err = readMetered(in, size, maximum, a)
	if in.Refused != nil {
		a.chargeRefused(in.Counter.TotalValues())
		return nil, true, in.Refused
	}
	b.size, b.values = len(body), in.Counter.TotalValues()
	return body, false, err
}

// reserveRead reserves the memory of what readCounted read.
func (b *Body) reserveRead(ctx context.Context) error {
	return b.reservation.reserveDecoded(ctx, b.budget, b.App, b.size, b.values)
}

// newMeter returns the meter for r's body, whose memory is reserved in h.
func (b *Body) newMeter(r *http.Request, h *bodyReservation) *meter {
	a := newMeter(r.Context(), b.budget, b.App, h, nil)
	if p, ok := r.Body.(*timedBody); ok { // else the body was read before, and r.Body is a copy in memory
		a.cutOff, a.pause = p.abortRead, p.pauseTimeout
	}
	return a
}

// Size returns how many bytes were read.
func (b *Body) Size() int { return b.size }

// Reserve waits for the memory of a received body of size bytes with so many values.
func (b *Body) Reserve(ctx context.Context, size, values int) error {
	return b.reservation.reserveDecoded(ctx, b.budget, b.App, size, values)
}

// Release returns everything that is reserved. It may be called more than once.
func (b *Body) Release() { b.reservation.release() }

// Slot is the right to receive one message whose size is not known beforehand.
type Slot struct{ reservation *poolReservation }

// ReserveSlot waits until a message of unknown size may be received, at most maxWait. If receiving it takes
// longer than slowMessageGrace while other messages of the app wait, cutOff is called, under a lock of all apps: at most
// once, and not after [Slot.MarkReceived]. It must not block.
func (b *Body) ReserveSlot(ctx context.Context, cutOff func()) (Slot, error) {
	place, err := b.budget.messageSlots.reserveBody(ctx, b.App, 1, 1, cutOff)
	return Slot{place}, err
}

// MarkReceived says that the whole message was received. It returns [ErrTooSlow] if cutOff was called before.
func (s Slot) MarkReceived() error { return s.reservation.markReceived() }

// Release lets the next message be received. It may be called more than once.
func (s Slot) Release() { s.reservation.release() }
