package billing_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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

// TestChangesHangUp: what is changed is told of as it stands, although its caller is gone.
func TestChangesHangUp(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		tomorrow := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
		price := func(version string, from time.Time) billing.Price {
			return billing.Price{Version: version, Currency: "USD", Effective: from, Items: []billing.Item{charge("model_calls", "", "", 1, 10)}}
		}
		for _, tt := range []struct {
			what   string
			change func(ctx context.Context) (any, error)
			now    func(ctx context.Context) (any, error) // nil = it is gone
		}{
			{
				"AddPrice",
				func(ctx context.Context) (any, error) { return s.AddPrice(ctx, actor, price("1", time.UnixMicro(0))) },
				func(ctx context.Context) (any, error) { return s.Price(ctx, "1") },
			},
			{
				"AddPrice, later",
				func(ctx context.Context) (any, error) { return s.AddPrice(ctx, actor, price("2", tomorrow)) },
				func(ctx context.Context) (any, error) { return s.Price(ctx, "2") },
			},
			{"RemovePrice", func(ctx context.Context) (any, error) { return nil, s.RemovePrice(ctx, actor, "2") }, nil},
			{
				"AddPlan",
				func(ctx context.Context) (any, error) {
					return s.AddPlan(ctx, actor, billing.Plan{Name: "small", QueueDepth: 5})
				},
				func(ctx context.Context) (any, error) { return s.FindPlan(ctx, "small") },
			},
			{
				"PutPlan",
				func(ctx context.Context) (any, error) {
					return s.PutPlan(ctx, actor, billing.Plan{Name: "small", QueueDepth: 7})
				},
				func(ctx context.Context) (any, error) { return s.FindPlan(ctx, "small") },
			},
			{
				"AddBudget",
				func(ctx context.Context) (any, error) { return s.AddBudget(ctx, actor, acme, calls(5)) },
				func(ctx context.Context) (any, error) { return s.Find(ctx, acme.ID, "calls") },
			},
			{
				"PutBudget",
				func(ctx context.Context) (any, error) { return s.PutBudget(ctx, actor, acme, "calls", to(calls(9))) },
				func(ctx context.Context) (any, error) { return s.Find(ctx, acme.ID, "calls") },
			},
			{"DeleteBudget", func(ctx context.Context) (any, error) { return nil, s.DeleteBudget(ctx, actor, acme, "calls") }, nil},
		} {
			ctx := hangingUp(t)
			got, err := tt.change(ctx)
			if err != nil || ctx.Err() == nil {
				t.Errorf("%s: %v", tt.what, err)
				continue
			}
			if tt.now == nil {
				continue
			}
			want, err := tt.now(t.Context())
			check(t, err)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(billing.Budget{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.what, diff)
			}
		}
	})
}
