package budget_test

import (
	"context"
	"testing"
	"time"

	"stoa/agentsvc/agentsvctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/billing/budget"
	"stoa/billing/budget/budgettest"
	"stoa/billing/price"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestChangesCallerGone checks that a committed change is returned although the caller's context has ended.
func TestChangesCallerGone(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		tomorrow := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
		newVersion := func(version string, from time.Time) price.Version {
			return price.Version{Version: version, Currency: "USD", Effective: from, Items: []price.Item{usagetest.ChargeItem("model_calls", "", "", 1, 10)}}
		}
		for _, tt := range []struct {
			what   string
			change func(ctx context.Context) (any, error)
			now    func(ctx context.Context) (any, error) // nil if the object is deleted
		}{
			{
				"AddPrice",
				func(ctx context.Context) (any, error) {
					return s.Prices.AddVersion(ctx, actor, newVersion("1", time.UnixMicro(0)))
				},
				func(ctx context.Context) (any, error) { return s.Prices.FindVersion(ctx, "1") },
			},
			{
				"AddPrice, later",
				func(ctx context.Context) (any, error) {
					return s.Prices.AddVersion(ctx, actor, newVersion("2", tomorrow))
				},
				func(ctx context.Context) (any, error) { return s.Prices.FindVersion(ctx, "2") },
			},
			{"RemovePrice", func(ctx context.Context) (any, error) {
				return nil, s.Prices.RemoveVersion(ctx, actor, "2")
			}, nil},
			{
				"AddPlan",
				func(ctx context.Context) (any, error) {
					return s.Prices.AddPlan(ctx, actor, price.Plan{Name: "small", QueueDepth: 5})
				},
				func(ctx context.Context) (any, error) { return s.Prices.FindPlan(ctx, "small") },
			},
			{
				"PutPlan",
				func(ctx context.Context) (any, error) {
					return s.Prices.UpdatePlan(ctx, actor, price.Plan{Name: "small", QueueDepth: 7})
				},
				func(ctx context.Context) (any, error) { return s.Prices.FindPlan(ctx, "small") },
			},
			{
				"AddBudget",
				func(ctx context.Context) (any, error) {
					return s.Budgets.AddBudget(ctx, actor, budgettest.Acme, budgettest.CallBudget(5))
				},
				func(ctx context.Context) (any, error) { return s.Budgets.FindBudget(ctx, budgettest.Acme.ID, "calls") },
			},
			{
				"PutBudget",
				func(ctx context.Context) (any, error) {
					return s.Budgets.UpdateBudget(ctx, actor, budgettest.Acme, "calls", replaceWith(budgettest.CallBudget(9)))
				},
				func(ctx context.Context) (any, error) { return s.Budgets.FindBudget(ctx, budgettest.Acme.ID, "calls") },
			},
			{"DeleteBudget", func(ctx context.Context) (any, error) {
				return nil, s.Budgets.DeleteBudget(ctx, actor, budgettest.Acme, "calls")
			}, nil},
		} {
			ctx := usagetest.ContextCanceledAfterTx(t)
			got, err := tt.change(ctx)
			if err != nil || ctx.Err() == nil {
				t.Errorf("%s: %v", tt.what, err)
				continue
			}
			if tt.now == nil {
				continue
			}
			want, err := tt.now(t.Context())
			agentsvctest.RequireNoErrors(t, err)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(budget.Budget{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.what, diff)
			}
		}
	})
}
