// Package trail is what a call leaves behind for whoever looks for it later: its spans. A span begins below the one in
// the context and with that one's tracer, so that a room needs no tracer of its own, and where nobody records the call
// [StartSpan] costs a look into the context. Only the two that begin a trace, the front door and the worker of a run, are
// given a tracer.
//
// What a span says is names, counts and times. Neither what was said nor what went wrong in words is for it: of an
// error it has the kind.
package trail

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// IsRecorded reports whether the call of ctx is recorded.
func IsRecorded(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// StartSpan begins a span below the one of ctx, if that one is recorded. Otherwise it returns ctx, and a span to which nothing
// that is done has an effect.
func StartSpan(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	parentSpan := trace.SpanFromContext(ctx)
	if !parentSpan.IsRecording() {
		return ctx, noopSpan
	}
	return parentSpan.TracerProvider().Tracer("stoa").Start(ctx, name, o...)
}

// noopSpan is the span of what is not recorded.
var noopSpan = trace.SpanFromContext(context.Background())

// EndSpan ends a span with what came of it. That its caller did not wait for it is no fault of its own.
func EndSpan(span trace.Span, err error) {
	if span.IsRecording() {
		if kind := ErrorKind(err); kind != "" {
			FailSpan(span, kind)
		}
		span.End()
	}
}

// FailSpan says that what a span tells of came to nothing, and which kind of error it was.
func FailSpan(span trace.Span, kind string) {
	span.SetStatus(codes.Error, "")
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
}

// kindError is an error that knows what kind of error it is.
type kindError interface{ Kind() string }

// ErrorKind is what kind of error err is, in one of few words: "" for none, and for the end of a wait that nobody kept up.
func ErrorKind(err error) string {
	var kinded kindError
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &kinded):
		return kinded.Kind()
	}
	return semconv.ErrorTypeOther.Value.AsString()
}

// What spans say beside what the conventions have names for.
const (
	AppKey  = attribute.Key("stoa.app")  // its name
	TaskKey = attribute.Key("stoa.task") // its id
)
