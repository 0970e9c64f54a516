package billing_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/billing"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestChangesCallerGone checks that a committed change is returned although the caller's context has ended.
func TestChangesCallerGone(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := openBilling(t, d)
		tomorrow := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
		price := func(version string, from time.Time) billing.PriceVersion {
			return billing.PriceVersion{Version: version, Currency: "USD", Effective: from, Items: []billing.PriceItem{chargeItem("model_calls", "", "", 1, 10)}}
		}
		for _, tt := range []struct {
			what   string
			change func(ctx context.Context) (any, error)
			now    func(ctx context.Context) (any, error) // nil if the object is deleted
		}{
			{
				"AddPrice",
				func(ctx context.Context) (any, error) {
					return s.Prices.AddPriceVersion(ctx, actor, price("1", time.UnixMicro(0)))
				},
				func(ctx context.Context) (any, error) { return s.Prices.FindPriceVersion(ctx, "1") },
			},
			{
				"AddPrice, later",
				func(ctx context.Context) (any, error) {
					return s.Prices.AddPriceVersion(ctx, actor, price("2", tomorrow))
				},
				func(ctx context.Context) (any, error) { return s.Prices.FindPriceVersion(ctx, "2") },
			},
			{"RemovePrice", func(ctx context.Context) (any, error) { return nil, s.Prices.RemovePriceVersion(ctx, actor, "2") }, nil},
			{
				"AddPlan",
				func(ctx context.Context) (any, error) {
					return s.Prices.AddPlan(ctx, actor, billing.Plan{Name: "small", QueueDepth: 5})
				},
				func(ctx context.Context) (any, error) { return s.Prices.FindPlan(ctx, "small") },
			},
			{
				"PutPlan",
				func(ctx context.Context) (any, error) {
					return s.Prices.UpdatePlan(ctx, actor, billing.Plan{Name: "small", QueueDepth: 7})
				},
				func(ctx context.Context) (any, error) { return s.Prices.FindPlan(ctx, "small") },
			},
			{
				"AddBudget",
				func(ctx context.Context) (any, error) { return s.Budgets.AddBudget(ctx, actor, acme, callBudget(5)) },
				func(ctx context.Context) (any, error) { return s.Budgets.FindBudget(ctx, acme.ID, "calls") },
			},
			{
				"PutBudget",
				func(ctx context.Context) (any, error) {
					return s.Budgets.UpdateBudget(ctx, actor, acme, "calls", replaceWith(callBudget(9)))
				},
				func(ctx context.Context) (any, error) { return s.Budgets.FindBudget(ctx, acme.ID, "calls") },
			},
			{"DeleteBudget", func(ctx context.Context) (any, error) { return nil, s.Budgets.DeleteBudget(ctx, actor, acme, "calls") }, nil},
		} {
			ctx := contextCanceledAfterTx(t)
			got, err := tt.change(ctx)
			if err != nil || ctx.Err() == nil {
				t.Errorf("%s: %v", tt.what, err)
				continue
			}
			if tt.now == nil {
				continue
			}
			want, err := tt.now(t.Context())
			requireNoErrors(t, err)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(billing.Budget{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.what, diff)
			}
		}
	})
}
