package trail

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traceContext is how a trace is told of to others (W3C Trace Context). Baggage is neither taken nor given: what callers put
// there is nobody else's business.
var traceContext propagation.TraceContext

const traceparentHeader = "traceparent"

// TraceParent names the span of ctx in the form in which it goes on record, "" if there is none.
func TraceParent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carried := propagation.MapCarrier{}
	traceContext.Inject(ctx, carried)
	return carried[traceparentHeader]
}

// WithTraceParent returns a context whose spans stand below the one that [TraceParent] named.
func WithTraceParent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return traceContext.Extract(ctx, propagation.MapCarrier{traceparentHeader: traceparent})
}

// WithRequestTrace returns a context whose spans stand below the one that the headers of a request name, if they do.
func WithRequestTrace(ctx context.Context, h http.Header) context.Context {
	return traceContext.Extract(ctx, propagation.HeaderCarrier(h))
}

// WithPropagation returns c as one that tells whom it calls of the trace that the call belongs to.
func WithPropagation(c *http.Client) *http.Client {
	out := *c
	out.Transport = propagatingTransport{c.Transport}
	return &out
}

// propagatingTransport is a transport that tells of the trace.
type propagatingTransport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (l propagatingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if trace.SpanContextFromContext(req.Context()).IsValid() {
		req = req.Clone(req.Context())
		traceContext.Inject(req.Context(), propagation.HeaderCarrier(req.Header))
	}
	return l.next.RoundTrip(req)
}

type samplingRatioKey struct{}

// WithSamplingRatio returns a context of a trace that is about to begin, of which this part of all is recorded, whatever else
// holds in the process.
func WithSamplingRatio(ctx context.Context, part float64) context.Context {
	return context.WithValue(ctx, samplingRatioKey{}, part)
}

// SamplingRatio returns what [WithSamplingRatio] has said.
func SamplingRatio(ctx context.Context) (part float64, carried bool) {
	part, carried = ctx.Value(samplingRatioKey{}).(float64)
	return part, carried
}
