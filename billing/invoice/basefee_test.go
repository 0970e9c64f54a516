package invoice_test

import (
	"testing"
	"time"

	"stoa/agentsvc/agentsvctest"
	"stoa/billing/amount"
	"stoa/billing/invoice"
	"stoa/billing/price"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestBaseFee checks which months are charged a base fee: those at whose end the app was on a plan with one, and the
// running one, with usage or without, none before the plan had a base fee and none twice.
func TestBaseFee(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, ctx := openPriced(t, d), t.Context()
		app := usagetest.InsertApp(t, d, "{}")
		putOn := func(plan string, since time.Time) {
			t.Helper()
			var b db.Batch
			b.Exec(nil, `INSERT INTO app_plan (tenant, since, plan) VALUES ($1, $2, $3)`, string(app.ID), since.UnixMicro(), plan)
			agentsvctest.RequireNoErrors(t, d.Platform().Do(ctx, &b))
			app.Plan = plan
		}
		for _, plan := range []price.Plan{{Name: "small", Currency: "USD"}, {Name: "large", Currency: "USD", BaseFee: 50_000_000_000}} {
			_, err := s.Prices.AddPlan(ctx, actor, plan)
			agentsvctest.RequireNoErrors(t, err)
		}
		this := monthName(time.Now())
		putOn("large", time.Now().AddDate(-1, 0, 0))
		// The app was on the plan for a year, but the plan has its base fee since today.
		wantTotals(t, s, app, map[string][2]amount.Money{this + " draft": {50_000_000_000, 0}})
		putOn("small", time.Now().Add(-time.Microsecond))
		wantTotals(t, s, app, map[string][2]amount.Money{})
		putOn("large", time.Now())
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, time.Now(), 1), usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 1))
		wantTotals(t, s, app, map[string][2]amount.Money{"2026-01 draft": {10, 0}, this + " draft": {50_000_000_010, 0}})
		_, err := s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{Force: true})
		agentsvctest.RequireNoErrors(t, err)
		inv, err := s.Invoices.FinalizeInvoice(ctx, actor, app, this, invoice.FinalizeOptions{Force: true})
		agentsvctest.RequireNoErrors(t, err)
		want := invoice.Line{Kind: invoice.BaseFeeLine, Plan: "large", Currency: "USD", Charge: 50_000_000_000}
		if line := inv.Lines[0]; line.Kind != want.Kind || line.Plan != want.Plan || line.Charge != want.Charge || line.Currency != want.Currency {
			t.Errorf("the first line is %+v", line)
		}
		// Late usage is on the next month's draft, whose base fee is charged when it has begun.
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 1))
		if all, err := s.Invoices.ListInvoices(ctx, app); err != nil || len(all) != 3 || all[0].Totals[0].Charge != 10 {
			t.Errorf("invoices %+v, %v", all, err)
		}
	})
}
