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

// hangUp ends a context with the first transaction in it.
type hangUp struct {
	trace.SpanProcessor
	end context.CancelFunc
}

func (h hangUp) OnStart(context.Context, trace.ReadWriteSpan) {}

func (h hangUp) OnEnd(s trace.ReadOnlySpan) {
	if s.Name() == "transaction" {
		h.end()
	}
}

// hangingUp is the context of a caller who is gone as soon as what is asked for is done.
func hangingUp(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ctx, _ = trace.NewTracerProvider(trace.WithSpanProcessor(hangUp{end: cancel})).Tracer("test").Start(ctx, "call")
	return ctx
}

// TestGrantHangsUp: a credit that is granted is told of as it stands, although its caller is gone: an error would have the
// same call made again.
func TestGrantHangsUp(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, app := priced(t, d), someApp()
		check(t, spend(t.Context(), s, app, time.Now(), 2))
		ctx := hangingUp(t)
		made, err := s.AddCredit(ctx, actor, app, billing.Credit{Amount: 100, Expires: time.Now().Add(time.Hour), Note: "welcome"})
		if ctx.Err() == nil {
			t.Fatal("the caller is still there")
		}
		check(t, err)
		want, err := s.Credit(t.Context(), app, made.ID)
		check(t, err)
		if diff := cmp.Diff(want, made); diff != "" || made.Pending != 20 || made.Status != billing.CreditOpen {
			t.Errorf("granted (-want +got):\n%s\n%+v", diff, made)
		}
	})
}
