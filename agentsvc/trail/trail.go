// Package trail records spans of OpenTelemetry. A span is a child of the one in the context and uses that span's
// tracer, so callers need no tracer of their own; if the call is not recorded [StartSpan] costs one look-up in the
// context. Only the two places where a trace begins have a tracer: the server's request handler and the worker of a
// run.
//
// Attributes of spans are names, counts and times. They contain no text of conversations and no error messages: of an
// error only the kind is recorded.
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

// StartSpan starts a child of the span in ctx, if that is recorded. Otherwise it returns ctx and a span without effect.
func StartSpan(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	parentSpan := trace.SpanFromContext(ctx)
	if !parentSpan.IsRecording() {
		return ctx, noopSpan
	}
	return parentSpan.TracerProvider().Tracer("stoa").Start(ctx, name, o...)
}

// noopSpan is returned for calls that are not recorded. It is shared, since it has no state.
var noopSpan = trace.SpanFromContext(context.Background())

// EndSpan ends a span with the kind of err. A cancelled context is not an error of the span: the caller stopped
// waiting.
func EndSpan(span trace.Span, err error) {
	if span.IsRecording() {
		if kind := ErrorKind(err); kind != "" {
			FailSpan(span, kind)
		}
		span.End()
	}
}

// FailSpan marks a span as failed with a kind of error. The description stays empty, since error messages may contain
// text of conversations.
func FailSpan(span trace.Span, kind string) {
	span.SetStatus(codes.Error, "")
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
}

// kindError is implemented by errors that know their kind.
type kindError interface{ Kind() string }

// ErrorKind returns the kind of err, one of a small number of words: "" for nil and for a cancelled context, "timeout",
// the error's own Kind, or _OTHER.
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

// The attributes for which the semantic conventions have no name.
const (
	// AppKey is the name of the app.
	AppKey = attribute.Key("stoa.app")
	// TaskKey is the id of the task.
	TaskKey = attribute.Key("stoa.task")
)
