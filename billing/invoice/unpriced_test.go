package invoice_test

import (
	"bytes"
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/agentsvctest"
	"stoa/billing/amount"
	"stoa/billing/invoice"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestUnpricedRefused checks that a draft with calls that nothing has a price for becomes final only if that is allowed, and
// that a price of the plan is enough.
func TestUnpricedRefused(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, ctx, app, planned := openBilling(t, d), t.Context(), usagetest.NewApp(), usagetest.NewApp()
		_, err := s.Prices.AddVersion(ctx, actor, price.Version{Version: "1", Currency: "USD", Effective: january, Items: []price.Item{usagetest.ChargeItem("model_calls", "", "another", 1, 10)}})
		agentsvctest.RequireNoErrors(t, err)
		_, err = s.Prices.AddPlan(ctx, actor, price.Plan{Name: "flat", Currency: "USD", Overage: map[string]price.Overage{"model_calls": {Per: 1, Amount: 5}}})
		planned.Plan = "flat"
		agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 1), usagetest.RecordCalls(ctx, s.Usage, planned, usagetest.DateIn2026(1, 5), 2))
		_, err = s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{Force: true})
		if agentsvctest.CheckError(t, err, agentsvc.CodePrecondition); err != nil && !strings.Contains(err.Error(), "1 call would be charged nothing or in part, since neither the price book nor the plan has a price (model p/m, without a price)") {
			t.Errorf("the error is %v", err)
		}
		inv, err := s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{AllowUnpriced: true})
		if agentsvctest.RequireNoErrors(t, err); inv.UnpricedCalls != 1 {
			t.Errorf("%d calls on the invoice have no price, want 1", inv.UnpricedCalls)
		}
		inv, err = s.Invoices.FinalizeInvoice(ctx, actor, planned, "2026-01", invoice.FinalizeOptions{})
		if agentsvctest.RequireNoErrors(t, err); inv.Totals[0].Charge != 10 || inv.UnpricedCalls != 0 {
			t.Errorf("the plan charges %d, and %d calls have no price; want 10 and none", inv.Totals[0].Charge, inv.UnpricedCalls)
		}
	})
}

// TestIncompletePrices makes invoices of a call with input and output for which the price book lacks some prices: only a
// missing charge is shown, and holds the month.
func TestIncompletePrices(t *testing.T) {
	t.Parallel()
	input, output := usagetest.ChargeItem("input_tokens", "", "", 1, 10), usagetest.ChargeItem("output_tokens", "", "", 1, 20)
	cost := price.Item{Kind: price.Cost, Meter: "input_tokens", Per: 1, Amount: 4}
	overage := func(meters ...string) map[string]price.Overage {
		prices := map[string]price.Overage{}
		for _, meter := range meters {
			prices[meter] = price.Overage{Per: 1, Amount: 30}
		}
		return prices
	}
	const part = "model p/m, charged in part: output_tokens has no price"
	cases := map[string]struct {
		items []price.Item
		plan  map[string]price.Overage
		// marked is the mark of the row that an earlier version wrote for a missing cost.
		marked     bool
		charge     amount.Money
		unpriced   int64
		text, held string
	}{
		"a missing cost":                        {items: []price.Item{input, output, cost}, charge: 3_000, text: "model p/m"},
		"a missing cost, by an earlier version": {items: []price.Item{input, output, cost}, marked: true, charge: 3_000, text: "model p/m"},
		"no charges at all":                     {items: []price.Item{cost}, text: "model p/m"},
		"a missing charge":                      {items: []price.Item{input, cost}, charge: 1_000, unpriced: 1, text: part, held: part},
		"the plan charges the rest":             {items: []price.Item{input}, plan: overage("output_tokens"), charge: 4_000, text: "model p/m"},
		"the plan charges a part":               {items: []price.Item{usagetest.ChargeItem("runs", "", "", 1, 1)}, plan: overage("input_tokens"), charge: 3_000, unpriced: 1, text: part, held: part},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
				s, ctx, app := openBilling(t, d), t.Context(), usagetest.NewApp()
				_, err := s.Prices.AddVersion(ctx, actor, price.Version{Version: "1", Currency: "USD", Effective: january, Items: tt.items})
				agentsvctest.RequireNoErrors(t, err)
				_, err = s.Prices.AddPlan(ctx, actor, price.Plan{Name: "p", Currency: "USD", Overage: tt.plan})
				app.Plan = "p"
				row := usage.Row{Task: agentsvc.TaskID(agentsvc.NewID()), Key: "call", Agent: "a", Usage: price.Usage{
					Kind: amount.ModelCall, At: usagetest.DateIn2026(1, 5), Provider: "p", Model: "m", Quantities: amount.Quantities{InputTokens: 100, OutputTokens: 100, ModelCalls: 1},
				}}
				row.Price = s.Prices.CachedBook().PriceUsage("USD", row.Usage)
				row.Unpriced = row.Unpriced || tt.marked
				var b db.Batch
				usage.InsertRows(&b, app.ID, []usage.Row{row})
				agentsvctest.RequireNoErrors(t, err, d.Tenant(app.ID).Write(ctx, &b))
				inv, err := s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{})
				if tt.held != "" {
					if agentsvctest.CheckError(t, err, agentsvc.CodePrecondition); err != nil && !strings.Contains(err.Error(), tt.held) {
						t.Errorf("the error is %v", err)
					}
					inv, err = s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{AllowUnpriced: true})
				}
				agentsvctest.RequireNoErrors(t, err)
				var text bytes.Buffer
				agentsvctest.RequireNoErrors(t, inv.WriteText(&text))
				var charge amount.Money
				for _, l := range inv.Lines {
					charge += l.Charge
				}
				if inv.UnpricedCalls != tt.unpriced || charge != tt.charge || inv.Lines[0].Description() != tt.text || strings.Contains(text.String(), "Calls without a price or charged in part: 1") != (tt.unpriced == 1) {
					t.Errorf("%d calls without a price, charged %d, %q, want %d, %d, %q:\n%s", inv.UnpricedCalls, charge, inv.Lines[0].Description(), tt.unpriced, tt.charge, tt.text, text.String())
				}
			})
		})
	}
}
