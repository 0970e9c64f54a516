package billing_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/trace"

	"stoa/billing"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// cancelAfterTx is a span processor that calls cancel when the span of a transaction ends.
type cancelAfterTx struct {
	trace.SpanProcessor
	cancel context.CancelFunc
}

func (h cancelAfterTx) OnStart(context.Context, trace.ReadWriteSpan) {}

func (h cancelAfterTx) OnEnd(s trace.ReadOnlySpan) {
	if s.Name() == "transaction" {
		h.cancel()
	}
}

// contextCanceledAfterTx returns a context that is cancelled as soon as its first transaction has ended, as if the
// caller had disconnected.
func contextCanceledAfterTx(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ctx, _ = trace.NewTracerProvider(trace.WithSpanProcessor(cancelAfterTx{cancel: cancel})).Tracer("test").Start(ctx, "call")
	return ctx
}

// TestGrantCreditCallerGone checks that a credit that was granted is returned although the caller's context has ended:
// after an error the caller would repeat the request.
func TestGrantCreditCallerGone(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app := openPriced(t, d), newApp()
		requireNoErrors(t, recordCalls(t.Context(), s, app, time.Now(), 2))
		ctx := contextCanceledAfterTx(t)
		made, err := s.Invoices.AddCredit(ctx, actor, app, billing.Credit{Amount: 100, Expires: time.Now().Add(time.Hour), Note: "welcome"})
		if ctx.Err() == nil {
			t.Fatal("the caller is still there")
		}
		requireNoErrors(t, err)
		want, err := s.Invoices.FindCredit(t.Context(), app, made.ID)
		requireNoErrors(t, err)
		if diff := cmp.Diff(want, made); diff != "" || made.Pending != 20 || made.Status != billing.CreditOpen {
			t.Errorf("granted (-want +got):\n%s\n%+v", diff, made)
		}
	})
}
