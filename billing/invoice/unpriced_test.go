package invoice_test

import (
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/agentsvctest"
	"stoa/billing/invoice"
	"stoa/billing/price"
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
		if agentsvctest.CheckError(t, err, agentsvc.CodePrecondition); err != nil && !strings.Contains(err.Error(), "1 call for which") {
			t.Errorf("the error is %v", err)
		}
		inv, err := s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{AllowUnpriced: true})
		if agentsvctest.RequireNoErrors(t, err); inv.UnpricedCalls != 1 {
			t.Errorf("%d calls on the invoice have no price, want 1", inv.UnpricedCalls)
		}
		inv, err = s.Invoices.FinalizeInvoice(ctx, actor, planned, "2026-01", invoice.FinalizeOptions{})
		if agentsvctest.RequireNoErrors(t, err); inv.Totals[0].Charge != 10 {
			t.Errorf("the plan charges %d, want 10", inv.Totals[0].Charge)
		}
	})
}
