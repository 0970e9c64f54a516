package trail

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traceContext is the propagation format, W3C Trace Context. Baggage is neither accepted nor sent: it could carry a
// caller's data to third parties.
var traceContext propagation.TraceContext

// traceparentHeader is the header of W3C Trace Context.
const traceparentHeader = "traceparent"

// TraceParent returns the span of ctx as a traceparent, the form in which a run stores it; "" if there is none.
func TraceParent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carried := propagation.MapCarrier{}
	traceContext.Inject(ctx, carried)
	return carried[traceparentHeader]
}

// WithTraceParent returns a context whose spans are children of the span that [TraceParent] returned.
func WithTraceParent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return traceContext.Extract(ctx, propagation.MapCarrier{traceparentHeader: traceparent})
}

// WithRequestTrace returns a context whose spans are children of the span in the headers of a request, if there is one.
func WithRequestTrace(ctx context.Context, h http.Header) context.Context {
	return traceContext.Extract(ctx, propagation.HeaderCarrier(h))
}

// WithPropagation returns a copy of c that sends the traceparent of its request's context.
func WithPropagation(c *http.Client) *http.Client {
	out := *c
	out.Transport = propagatingTransport{c.Transport}
	return &out
}

// propagatingTransport adds the traceparent header to requests.
type propagatingTransport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t propagatingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if trace.SpanContextFromContext(req.Context()).IsValid() {
		// A RoundTripper must not change the request it is given.
		req = req.Clone(req.Context())
		traceContext.Inject(req.Context(), propagation.HeaderCarrier(req.Header))
	}
	return t.next.RoundTrip(req)
}

// samplingRatioKey is the context key of WithSamplingRatio. OpenTelemetry passes to a sampler nothing of the caller but
// the context.
type samplingRatioKey struct{}

// WithSamplingRatio returns a context for a trace that is about to begin, of which the fraction part is recorded,
// instead of the process's own ratio.
func WithSamplingRatio(ctx context.Context, part float64) context.Context {
	return context.WithValue(ctx, samplingRatioKey{}, part)
}

// SamplingRatio returns the fraction set by [WithSamplingRatio], and whether there is one.
func SamplingRatio(ctx context.Context) (part float64, carried bool) {
	part, carried = ctx.Value(samplingRatioKey{}).(float64)
	return part, carried
}
