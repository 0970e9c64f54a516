package audit

import "context"

// Origin is the source of a request, for the audit trail.
type Origin struct {
	// Client is the address of the client.
	Client string
	// Request is the request's id, which also appears in the log.
	Request string
}

type originKey struct{}

// WithOrigin returns a context whose audit entries carry the result of origin. The function is called only when an
// entry is written, so that a request without one does not pay for it.
func WithOrigin(ctx context.Context, origin func() Origin) context.Context {
	return context.WithValue(ctx, originKey{}, origin)
}

// originFromContext returns the origin of ctx, the zero value if there is none, as for background work.
func originFromContext(ctx context.Context) Origin {
	if origin, ok := ctx.Value(originKey{}).(func() Origin); ok {
		return origin()
	}
	return Origin{}
}
