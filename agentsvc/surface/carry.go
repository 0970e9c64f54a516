package surface

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Carry takes r, which a server of another protocol than HTTP's received, through the door of a tenant's route and hands it to
// route.Serve, whose writer is for headers alone: what is written to it goes nowhere. It returns what the caller is to be told of
// what went wrong, nil where nothing did or nobody listens any more. The headers that the door has for the caller are in header.
func (s *Server) Carry(route Route, r *http.Request, header http.Header) (told *Fault) {
	route.Kind = Tenant
	route.Tell = func(f Fault) (int, any) {
		told = &f
		return f.Status, nil
	}
	s.watch(s.serve(&route)).ServeHTTP(nowhere(header), r)
	return told
}

// nowhere is an answer of which the headers alone are told.
type nowhere http.Header

func (n nowhere) Header() http.Header         { return http.Header(n) }
func (n nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n nowhere) WriteHeader(int)             {}

// Tell has say tell each event of f in a dialect, with its sequence, until they end: it is [Visit.Stream] for other protocols. An
// error of say ends the telling and is nobody's fault; a stream that the server ends returns [ErrEnding].
func (v *Visit) Tell(f *Following, d Dialect, say func(seq int64, body any) error) error {
	v.server.streams.Add(1)
	defer v.server.streams.Add(-1)
	err := f.tell(d, say)
	switch {
	case errors.Is(err, errGone):
		return nil
	case errors.Is(err, errEnding):
		return ErrEnding
	}
	return err
}

// Receiving is a message of unknown size that is being received.
type Receiving struct{ place *part }

// Receiving waits until a message of unknown size may be received. Where it takes long and other messages of its app wait, cut is
// called, at most once and not after [Receiving.Arrived], and must not block.
func (v *Visit) Receiving(ctx context.Context, cut func()) (Receiving, error) {
	place, err := v.server.rooms.receiving.take(ctx, v.App.ID, 1, 1, cut)
	return Receiving{place}, err
}

// Arrived says that the message is there. It returns an error if it was cut before.
func (r Receiving) Arrived() error { return r.place.finish() }

// Done lets others receive. It may be called again.
func (r Receiving) Done() { r.place.leave() }

// TakeRoom waits for room for a message of size bytes that holds so many values, until the visit leaves the app.
func (v *Visit) TakeRoom(ctx context.Context, size, values int) error {
	return v.rec.held.takeValues(ctx, v.server.rooms, v.App.ID, size, values)
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

// ErrTooLong says that a message has more bytes than that.
var ErrTooLong = &refusal{
	code: ResourceExhausted, status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("the message is too large, %d MiB are allowed", maxMessage>>20),
}
