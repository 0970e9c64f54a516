package surface

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// ServeNonHTTP takes r, which a server of another protocol than HTTP's received, through the door of a tenant's route and hands it to
// route.Serve, whose writer is for headers alone: what is written to it goes nowhere. It returns what the caller is to be told of
// what went wrong, nil where nothing did or nobody listens any more. The headers that the door has for the caller are in header.
func (s *Server) ServeNonHTTP(route Route, r *http.Request, header http.Header) (reported *Fault) {
	route.Kind = Tenant
	route.EncodeError = func(f Fault) (int, any) {
		reported = &f
		return f.Status, nil
	}
	s.instrumentHandler(s.serveRoute(&route)).ServeHTTP(headerWriter(header), r)
	return reported
}

// headerWriter is an answer of which the headers alone are told.
type headerWriter http.Header

func (n headerWriter) Header() http.Header         { return http.Header(n) }
func (n headerWriter) Write(b []byte) (int, error) { return len(b), nil }
func (n headerWriter) WriteHeader(int)             {}

// WriteEvents has say tell each event of f in a dialect, with its sequence, until they end: it is [Request.StreamEvents] for other protocols. An
// error of say ends the telling and is nobody's fault; a stream that the server ends returns [ErrStopping].
func (v *Request) WriteEvents(f *Subscription, d StreamEncoder, write func(seq int64, body any) error) error {
	v.server.openStreams.Add(1)
	defer v.server.openStreams.Add(-1)
	err := f.writeEvents(d, write)
	switch {
	case errors.Is(err, errClientGone):
		return nil
	case errors.Is(err, errStreamsEnding):
		return ErrStopping
	}
	return err
}

// MessageSlot is a message of unknown size that is being received.
type MessageSlot struct{ reservation *poolReservation }

// ReserveMessageSlot waits until a message of unknown size may be received. Where it takes long and other messages of its app wait, cut is
// called, at most once and not after [Receiving.MarkReceived], and must not block.
func (v *Request) ReserveMessageSlot(ctx context.Context, cutOff func()) (MessageSlot, error) {
	place, err := v.server.bodyBudget.messageSlots.reserveBody(ctx, v.App.ID, 1, 1, cutOff)
	return MessageSlot{place}, err
}

// MarkReceived says that the message is there. It returns an error if it was cut before.
func (r MessageSlot) MarkReceived() error { return r.reservation.markReceived() }

// Release lets others receive. It may be called again.
func (r MessageSlot) Release() { r.reservation.release() }

// ReserveBody waits for room for a message of size bytes that holds so many values, until the visit leaves the app.
func (v *Request) ReserveBody(ctx context.Context, size, values int) error {
	return v.record.bodyReservation.reserveDecoded(ctx, v.server.bodyBudget, v.App.ID, size, values)
}

// Bounds of what comes in, in any protocol.
const (
	MaxMessage = maxMessage // bytes of a message
	MaxHeader  = maxHeader  // bytes of what is shown beside it
	MaxDepth   = maxDepth   // levels of JSON in each other
	MaxStreams = maxStreams // calls under way on one connection
	MaxValues  = maxValues  // values in a message
	MaxList    = maxList    // items of a list that is no value itself
)

// ErrMessageTooLong says that a message has more bytes than that.
var ErrMessageTooLong = &responseError{
	code: ResourceExhausted, status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("the message is too large, %d MiB are allowed", maxMessage>>20),
}
