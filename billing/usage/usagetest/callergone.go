package usagetest

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
)

// cancelAfterTx is a span processor that calls cancel when the span of a transaction ends.
type cancelAfterTx struct {
	trace.SpanProcessor
	cancel context.CancelFunc
}

func (t cancelAfterTx) OnStart(context.Context, trace.ReadWriteSpan) {}

func (t cancelAfterTx) OnEnd(s trace.ReadOnlySpan) {
	if s.Name() == "transaction" {
		t.cancel()
	}
}

// ContextCanceledAfterTx returns a context that is cancelled as soon as its first transaction has ended, as if the
// caller had disconnected.
func ContextCanceledAfterTx(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ctx, _ = trace.NewTracerProvider(trace.WithSpanProcessor(cancelAfterTx{cancel: cancel})).Tracer("test").Start(ctx, "call")
	return ctx
}
