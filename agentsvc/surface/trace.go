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

// startTrace begins the span of a request that was let in, below the one that its caller names. It begins as late as that
// because only now it is known whose it is, and so which part of the likes of it is recorded; it tells of the time
// from the request's arrival on. An app is nil where the request is the operator's.
func (s *Server) startTrace(rec *requestRecord, r *http.Request, app *tenancy.App) *http.Request {
	if s.options.Tracer == nil {
		return r
	}
	ctx := trail.WithRequestTrace(r.Context(), r.Header)
	if app != nil {
		if part, own := app.TraceRatio(); own {
			ctx = trail.WithSamplingRatio(ctx, part)
		}
	}
	ctx = s.startSpan(ctx, rec, r)
	_, enter := trail.StartSpan(ctx, "enter", trace.WithTimestamp(rec.startedAt))
	trail.EndSpan(enter, nil)
	return r.WithContext(ctx)
}

func (s *Server) startSpan(ctx context.Context, rec *requestRecord, r *http.Request) context.Context {
	name := r.Method + " " + rec.route
	about := []attribute.KeyValue{semconv.HTTPRequestMethodKey.String(r.Method), semconv.HTTPRoute(rec.route)}
	if rec.rpcSystem != "" {
		name = strings.TrimPrefix(rec.route, "/")
		about = []attribute.KeyValue{semconv.RPCSystemNameKey.String(rec.rpcSystem), semconv.RPCMethod(name)}
	}
	ctx, rec.span = s.options.Tracer.Start(ctx, name, trace.WithTimestamp(rec.startedAt), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(about...))
	return ctx
}

// startMessageSpan begins the span of one message of a conversation, in a trace of its own that names the conversation's: that
// one may last for hours.
func (s *Server) startMessageSpan(ctx context.Context, rec *requestRecord) (context.Context, trace.Span) {
	if s.options.Tracer == nil {
		return ctx, trace.SpanFromContext(context.Background())
	}
	return s.options.Tracer.Start(ctx, "MESSAGE "+rec.route, trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(ctx)),
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(semconv.HTTPRoute(rec.route), trail.AppKey.String(rec.app), semconv.GenAIAgentName(rec.agent)))
}

// endTrace ends the span of a request. One that was not let in gets a span now, in a trace of its own: who is not known may
// not choose what is recorded.
func (s *Server) endTrace(rec *requestRecord, r *http.Request) {
	if rec.span == nil && s.options.Tracer != nil && rec.err != nil && rec.route != routeUnknown {
		s.startSpan(context.Background(), rec, r)
	}
	if rec.span == nil {
		return
	}
	if rec.span.IsRecording() {
		rec.span.SetAttributes(attribute.String("stoa.request_id", rec.id))
		if rec.rpcSystem == "" {
			rec.span.SetAttributes(semconv.HTTPResponseStatusCode(rec.status))
		}
		for key, value := range map[attribute.Key]string{trail.AppKey: rec.app, semconv.GenAIAgentNameKey: rec.agent, semconv.ErrorTypeKey: string(rec.code)} {
			if value != "" {
				rec.span.SetAttributes(key.String(value))
			}
		}
		if rec.status >= http.StatusInternalServerError {
			trail.FailSpan(rec.span, string(rec.code))
		}
	}
	rec.span.End()
}

// withSpan returns ctx with the request's span, for those who log outside of it.
func (rec *requestRecord) withSpan(ctx context.Context) context.Context {
	if rec.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, rec.span)
}

// LogAttrs is what a line of the log says of the request that ctx belongs to, if it belongs to one.
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
