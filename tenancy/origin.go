package tenancy

import "context"

// Origin is where a request comes from, for the audit trail.
type Origin struct {
	Client  string // its address
	Request string // its id
}

type originKey struct{}

// WithOrigin returns a context in which what is done for a request is told to come from there. Where is called for what
// goes on the trail, and for nothing else.
func WithOrigin(ctx context.Context, origin func() Origin) context.Context {
	return context.WithValue(ctx, originKey{}, origin)
}

func originFromContext(ctx context.Context) Origin {
	if origin, ok := ctx.Value(originKey{}).(func() Origin); ok {
		return origin()
	}
	return Origin{}
}
