package surface

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// ServeNonHTTP serves a request of a protocol other than HTTP (gRPC) as a tenant route: r carries its address, headers
// and context, and passes the same steps as an HTTP request up to route.Serve. The response headers of these steps are
// put into header; a body that Serve writes is dropped, since Serve answers through the other protocol. It returns the
// error for the caller, nil if there was none or the client disconnected.
func (s *Server) ServeNonHTTP(route Route, r *http.Request, header http.Header) (reported *Fault) {
	route.Kind = Tenant
	route.EncodeError = func(f Fault) (int, any) {
		reported = &f
		return f.Status, nil
	}
	s.instrumentHandler(s.serveRoute(&route)).ServeHTTP(headerWriter(header), r)
	return reported
}

// headerWriter is a ResponseWriter that keeps the headers and drops everything else.
type headerWriter http.Header

func (n headerWriter) Header() http.Header         { return http.Header(n) }
func (n headerWriter) Write(b []byte) (int, error) { return len(b), nil }
func (n headerWriter) WriteHeader(int)             {}

// WriteEvents is [Request.StreamEvents] for other transports: it passes each event of f, encoded by d, to write
// together with its sequence, until the events end. An error of write ends it and is not returned: it means that the
// client disconnected. It returns [ErrStopping] if the server ends its streams, else the error of the subscription.
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

// MessageSlot is the right to receive one message whose size is not known beforehand.
type MessageSlot struct{ reservation *poolReservation }

// ReserveMessageSlot waits until a message of unknown size may be received, at most bodyBudgetWait. If receiving it
// takes longer than slowMessageGrace while other messages of the app wait, cutOff is called, under a lock of all apps:
// at most once, and not after [MessageSlot.MarkReceived]. It must not block.
func (v *Request) ReserveMessageSlot(ctx context.Context, cutOff func()) (MessageSlot, error) {
	place, err := v.server.bodyBudget.messageSlots.reserveBody(ctx, v.App.ID, 1, 1, cutOff)
	return MessageSlot{place}, err
}

// MarkReceived says that the whole message was received. It returns [ErrTooSlow] if cutOff was called before.
func (r MessageSlot) MarkReceived() error { return r.reservation.markReceived() }

// Release lets the next message be received. It may be called more than once.
func (r MessageSlot) Release() { r.reservation.release() }

// ReserveBody waits for the memory of a received message of size bytes with so many values. It is released by
// [Request.ReleaseApp].
func (v *Request) ReserveBody(ctx context.Context, size, values int) error {
	return v.record.bodyReservation.reserveDecoded(ctx, v.server.bodyBudget, v.App.ID, size, values)
}

// Bounds on input that hold in every protocol, for packages that receive it themselves.
const (
	MaxMessage = maxMessage // bytes of a message
	MaxHeader  = maxHeader  // bytes of the headers of a request
	MaxDepth   = maxDepth   // levels of nested JSON
	MaxStreams = maxStreams // concurrent requests on one connection
	MaxValues  = maxValues  // values in a message
	MaxList    = maxList    // items of a list in a message
)

// ErrMessageTooLong says that a message has more than [MaxMessage] bytes.
var ErrMessageTooLong = &responseError{
	code: ResourceExhausted, status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("the message is too large, %d MiB are allowed", maxMessage>>20),
}
