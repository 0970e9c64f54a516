package surface

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"stoa/agentsvc/trail"
	"stoa/tenancy"
)

// requestTracer starts and ends the spans of requests. Without a Tracer it does nothing.
type requestTracer struct{ trace.Tracer }

// startTrace starts the span of an admitted request as a child of the one that its traceparent header names, and
// returns r with it. It is called only after authentication, because the app decides which ratio of its requests is
// recorded, and because an unauthenticated client must not choose what is recorded. The span nevertheless begins at the
// request's arrival, with a child "enter" for the time until now. app is nil for the operator's requests.
func (t requestTracer) startTrace(rec *requestRecord, r *http.Request, app *tenancy.App) *http.Request {
	if t.Tracer == nil {
		return r
	}
	ctx := trail.WithRequestTrace(r.Context(), r.Header)
	if app != nil {
		if part, own := app.TraceRatio(); own {
			ctx = trail.WithSamplingRatio(ctx, part)
		}
	}
	ctx = t.startSpan(ctx, rec, r)
	_, enter := trail.StartSpan(ctx, "enter", trace.WithTimestamp(rec.startedAt))
	trail.EndSpan(enter, nil)
	return r.WithContext(ctx)
}

// startSpan starts rec.span with the name and attributes of OpenTelemetry's conventions for HTTP servers, or for RPC
// servers if the route carries calls.
func (t requestTracer) startSpan(ctx context.Context, rec *requestRecord, r *http.Request) context.Context {
	name := r.Method + " " + rec.route
	about := []attribute.KeyValue{semconv.HTTPRequestMethodKey.String(r.Method), semconv.HTTPRoute(rec.route)}
	if rec.rpcSystem != "" {
		name = strings.TrimPrefix(rec.route, "/")
		about = []attribute.KeyValue{semconv.RPCSystemNameKey.String(rec.rpcSystem), semconv.RPCMethod(name)}
	}
	ctx, rec.span = t.Tracer.Start(ctx, name, trace.WithTimestamp(rec.startedAt), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(about...))
	return ctx
}

// startMessageSpan starts the span of one WebSocket message, in a trace of its own that links to the connection's,
// which may last for hours.
func (t requestTracer) startMessageSpan(ctx context.Context, rec *requestRecord) (context.Context, trace.Span) {
	if t.Tracer == nil {
		return ctx, trace.SpanFromContext(context.Background())
	}
	return t.Tracer.Start(ctx, "MESSAGE "+rec.route, trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(ctx)),
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(semconv.HTTPRoute(rec.route), trail.AppKey.String(rec.app), semconv.GenAIAgentName(rec.agent)))
}

// endTrace ends the span of a request. A request that was refused before startTrace gets a span now, in a trace of its
// own: the traceparent of an unauthenticated client is ignored. Requests to unknown paths get none.
func (t requestTracer) endTrace(rec *requestRecord, r *http.Request) {
	if rec.span == nil && t.Tracer != nil && rec.err != nil && rec.route != routeUnknown {
		t.startSpan(context.Background(), rec, r)
	}
	if rec.span == nil {
		return
	}
	if rec.span.IsRecording() {
		rec.span.SetAttributes(attribute.String("stoa.request_id", rec.id))
		if rec.rpcSystem == "" {
			rec.span.SetAttributes(semconv.HTTPResponseStatusCode(rec.writer.Status))
		}
		for key, value := range map[attribute.Key]string{trail.AppKey: rec.app, semconv.GenAIAgentNameKey: rec.agent, semconv.ErrorTypeKey: string(rec.code)} {
			if value != "" {
				rec.span.SetAttributes(key.String(value))
			}
		}
		if rec.writer.Status >= http.StatusInternalServerError {
			trail.FailSpan(rec.span, string(rec.code))
		}
	}
	rec.span.End()
}

// withSpan returns ctx with the request's span, for log lines that are written outside of the handler.
func (rec *requestRecord) withSpan(ctx context.Context) context.Context {
	if rec.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, rec.span)
}

// LogAttrs returns the attributes that log lines of ctx's request carry, nil if ctx has no request.
func LogAttrs(ctx context.Context) []slog.Attr {
	rec, ok := ctx.Value(recordKey{}).(*requestRecord)
	if !ok {
		return nil
	}
	attrs := []slog.Attr{slog.String("request_id", rec.id)}
	if rec.app != "" {
		attrs = append(attrs, slog.String("app", rec.app))
	}
	return attrs
}
