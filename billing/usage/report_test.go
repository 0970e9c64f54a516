package usage_test

import (
	"testing"

	"stoa/agentsvc/agentsvctest"

	"github.com/google/go-cmp/cmp"

	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestTotals checks that usage in several currencies has a total in each.
func TestTotals(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := usagetest.OpenPriced(t, d), usagetest.NewApp(), t.Context()
		_, err := s.Prices.AddPlan(ctx, actor, price.Plan{Name: "euro", Currency: "EUR"})
		agentsvctest.RequireNoErrors(t, err)
		_, err = s.Prices.AddVersion(ctx, actor, price.Version{Version: "euro", Currency: "EUR", Effective: january, Items: []price.Item{usagetest.ChargeItem("model_calls", "", "", 1, 9)}})
		agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 2))
		total := func() usage.Sum {
			_, sum, err := s.Usage.SumUsage(ctx, app.ID, app.Plan, usage.Query{From: january, To: usagetest.DateIn2026(2, 1), By: []string{"model"}})
			agentsvctest.RequireNoErrors(t, err)
			return sum
		}
		if sum := total(); sum.Charge != 20 || sum.Cost != 8 || sum.Currency != "USD" || sum.Charges != nil {
			t.Errorf("in dollars: %+v", sum)
		}
		app.Plan = "euro"
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 6), 3))
		sum := total()
		want := []usage.ChargedAmount{{Currency: "EUR", Charge: 27}, {Currency: "USD", Cost: 8, Charge: 20}}
		if diff := cmp.Diff(want, sum.Charges); diff != "" || sum.Charge != 0 || sum.Cost != 0 || sum.Currency != "" || sum.ModelCalls != 5 {
			t.Errorf("in both: %+v (-want +got):\n%s", sum, diff)
		}
	})
}
