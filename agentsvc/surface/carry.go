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

// TakeRoom waits for room for a message of n bytes where that is a large one, until the visit leaves the app.
func (v *Visit) TakeRoom(ctx context.Context, n int64) (err error) {
	if n > largeBody && v.leaveRoom == nil {
		v.leaveRoom, err = v.server.rooms.take(ctx, v.App.ID, min(n, maxMessage))
	}
	return err
}

// Bounds of what comes in, in any protocol.
const (
	MaxMessage = maxMessage // bytes of a message
	MaxHeader  = maxHeader  // bytes of what is shown beside it
	MaxDepth   = maxDepth   // levels of JSON in each other
	MaxStreams = maxStreams // calls under way on one connection
)

// ErrTooLong says that a message has more bytes than that.
var ErrTooLong = &refusal{
	code: ResourceExhausted, status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("the message is too large, %d MiB are allowed", maxMessage>>20),
}
