package requestbody

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
)

// oversizedBody is a body whose Content-Length exceeds maxBytes. Reading it fails at once, without waiting for the
// client.
type oversizedBody struct {
	io.ReadCloser
	maxBytes int64
}

func (b oversizedBody) Read([]byte) (int, error) { return 0, &http.MaxBytesError{Limit: b.maxBytes} }

// timedBody is a body of which each piece must arrive within pieceTimeout and the whole within totalTimeout. It uses
// the connection's read deadline. Without it a slow sender would keep its reservation for as long as it likes.
type timedBody struct {
	io.ReadCloser
	controller                 *http.ResponseController
	pieceTimeout, totalTimeout time.Duration
	// deadline is when the whole body must have arrived; zero = nothing has been read yet. Only the reader writes it.
	deadline time.Time
	// aborted is set by abortRead, from another goroutine.
	aborted atomic.Bool
}

// Read implements [io.Reader]. It returns ErrTooSlow once abortRead was called.
func (t *timedBody) Read(b []byte) (int, error) {
	now := time.Now()
	if t.deadline.IsZero() {
		t.deadline = now.Add(t.totalTimeout)
	}
	by := now.Add(t.pieceTimeout)
	if by.After(t.deadline) {
		by = t.deadline
	}
	// abortRead sets aborted before the deadline. So either it sets its deadline after this one and ends the read
	// below, or the check below sees aborted. An error means that the connection has no deadlines, as in tests.
	_ = t.controller.SetReadDeadline(by)
	if t.aborted.Load() {
		return 0, ErrTooSlow
	}
	n, err := t.ReadCloser.Read(b)
	switch {
	case t.aborted.Load():
		return n, ErrTooSlow // the expired deadline stays: the rest of the body is not read
	case err != nil:
		_ = t.controller.SetReadDeadline(time.Time{})
	}
	return n, err
}

// abortRead ends a read that is under way, at once, and makes every later one fail. Any goroutine may call it.
func (t *timedBody) abortRead() {
	t.aborted.Store(true)
	_ = t.controller.SetReadDeadline(expiredDeadline)
}

// expiredDeadline is a read deadline that has always passed.
var expiredDeadline = time.Unix(1, 0)

// pauseTimeout suspends the deadlines while the server does not read for reasons of its own. resume extends the
// deadline of the whole body by the time that has passed. Only the reader calls them.
func (t *timedBody) pauseTimeout() (resume func()) {
	began := time.Now()
	_ = t.controller.SetReadDeadline(time.Time{})
	return func() {
		if !t.deadline.IsZero() {
			t.deadline = t.deadline.Add(time.Since(began))
		}
		by := time.Now().Add(t.pieceTimeout)
		if t.aborted.Load() {
			by = expiredDeadline
		}
		_ = t.controller.SetReadDeadline(by)
	}
}

// describeReadError returns the error for the caller for err, which reading a body returned.
func describeReadError(err error) error {
	var large *http.MaxBytesError
	var own *agentsvc.Error
	switch {
	case errors.As(err, &own):
		return err
	case errors.As(err, &large):
		return agentsvc.NewError(apierror.CodeBodyTooLarge, "the body is too large, %d MiB are allowed", large.Limit>>20)
	}
	return agentsvc.NewError(apierror.CodeMalformed, "the body was not received completely")
}

// ErrMessageTooLong says that a message has more than [MaxMessage] bytes.
var ErrMessageTooLong = agentsvc.NewError(apierror.CodeBodyTooLarge, "the message is too large, %d MiB are allowed", MaxMessage>>20)
