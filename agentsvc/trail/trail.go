// Package trail is what a call leaves behind for whoever looks for it later: its spans. A span begins below the one in
// the context and with that one's tracer, so that a room needs no tracer of its own, and where nobody records the call
// [Start] costs a look into the context. Only the two that begin a trace, the front door and the worker of a run, are
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

// Recorded reports whether the call of ctx is recorded.
func Recorded(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Start begins a span below the one of ctx, if that one is recorded. Otherwise it returns ctx, and a span to which nothing
// that is done has an effect.
func Start(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	above := trace.SpanFromContext(ctx)
	if !above.IsRecording() {
		return ctx, silent
	}
	return above.TracerProvider().Tracer("stoa").Start(ctx, name, o...)
}

// silent is the span of what is not recorded.
var silent = trace.SpanFromContext(context.Background())

// End ends a span with what came of it. That its caller did not wait for it is no fault of its own.
func End(span trace.Span, err error) {
	if span.IsRecording() {
		if kind := Kind(err); kind != "" {
			Fail(span, kind)
		}
		span.End()
	}
}

// Fail says that what a span tells of came to nothing, and which kind of error it was.
func Fail(span trace.Span, kind string) {
	span.SetStatus(codes.Error, "")
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
}

// kinder is an error that knows what kind of error it is.
type kinder interface{ Kind() string }

// Kind is what kind of error err is, in one of few words: "" for none, and for the end of a wait that nobody kept up.
func Kind(err error) string {
	var own kinder
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &own):
		return own.Kind()
	}
	return semconv.ErrorTypeOther.Value.AsString()
}

// What spans say beside what the conventions have names for.
const (
	AppKey  = attribute.Key("stoa.app")  // its name
	TaskKey = attribute.Key("stoa.task") // its id
)
