package surface

import (
	"errors"
	"net/http"

	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/stream"
)

// ServeNonHTTP serves a request of a protocol whose responses another library writes (gRPC) as a tenant route: r
// carries its address, headers and context, and passes the same steps as an HTTP request up to route.Serve. The
// response headers of these steps are put into header; a body that Serve writes is dropped, since Serve answers through
// the other protocol. It returns the error for the caller, nil if there was none or the client disconnected.
func (s *Server) ServeNonHTTP(route Route, r *http.Request, header http.Header) (reported *apierror.Fault) {
	route.Kind = Tenant
	route.EncodeError = func(f apierror.Fault) (int, any) {
		reported = &f
		return f.Status, nil
	}
	s.instrumentHandler(s.serveRoute(&route)).ServeHTTP(headerWriter(header), r)
	return reported
}

// headerWriter is a ResponseWriter that keeps the headers and drops everything else.
type headerWriter http.Header

func (w headerWriter) Header() http.Header         { return http.Header(w) }
func (w headerWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w headerWriter) WriteHeader(int)             {}

// WriteEvents is [Request.StreamEvents] for other transports: it passes each event of f, encoded by d, to write
// together with its sequence, until the events end. An error of write ends it; those that mean that the client
// disconnected are not returned. It returns [apierror.ErrStopping] if the server ends its streams, else the error of
// the subscription.
func (req *Request) WriteEvents(f *stream.Subscription, d stream.Encoder, write func(seq int64, body any) error) error {
	req.openStream()
	defer req.closeStream()
	err := f.WriteEvents(d, write)
	switch {
	case errors.Is(err, stream.ErrClientGone):
		return nil
	case errors.Is(err, stream.ErrStreamsEnding):
		return apierror.ErrStopping
	}
	return err
}
