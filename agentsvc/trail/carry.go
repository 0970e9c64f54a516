package trail

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// format is how a trace is told of to others (W3C Trace Context). Baggage is neither taken nor given: what callers put
// there is nobody else's business.
var format propagation.TraceContext

const parent = "traceparent"

// Parent names the span of ctx in the form in which it goes on record, "" if there is none.
func Parent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	said := propagation.MapCarrier{}
	format.Inject(ctx, said)
	return said[parent]
}

// Below returns a context whose spans stand below the one that [Parent] named.
func Below(ctx context.Context, named string) context.Context {
	if named == "" {
		return ctx
	}
	return format.Extract(ctx, propagation.MapCarrier{parent: named})
}

// Asked returns a context whose spans stand below the one that the headers of a request name, if they do.
func Asked(ctx context.Context, h http.Header) context.Context {
	return format.Extract(ctx, propagation.HeaderCarrier(h))
}

// Lead returns c as one that tells whom it calls of the trace that the call belongs to.
func Lead(c *http.Client) *http.Client {
	out := *c
	out.Transport = leader{c.Transport}
	return &out
}

// leader is a transport that tells of the trace.
type leader struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (l leader) RoundTrip(req *http.Request) (*http.Response, error) {
	if trace.SpanContextFromContext(req.Context()).IsValid() {
		req = req.Clone(req.Context())
		format.Inject(req.Context(), propagation.HeaderCarrier(req.Header))
	}
	return l.next.RoundTrip(req)
}

type ratioKey struct{}

// WithRatio returns a context of a trace that is about to begin, of which this part of all is recorded, whatever else
// holds in the process.
func WithRatio(ctx context.Context, part float64) context.Context {
	return context.WithValue(ctx, ratioKey{}, part)
}

// Ratio returns what [WithRatio] has said.
func Ratio(ctx context.Context) (part float64, said bool) {
	part, said = ctx.Value(ratioKey{}).(float64)
	return part, said
}
