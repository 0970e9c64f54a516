package invoice_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agentsvctest"
	"stoa/billing/amount"
	"stoa/billing/invoice"
	"stoa/billing/ledger"
	"stoa/billing/price"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestReissue reverses an invoice that was made by the wrong plan, and invoices the month again by another: each usage row
// is charged once, late usage and costs included.
func TestReissue(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := openPriced(t, d), usagetest.NewApp(), t.Context()
		_, err := s.Prices.AddPlan(ctx, actor, price.Plan{
			Name: "pro", Currency: "USD", BaseFee: 20_000_000_000, Included: map[string]int64{"model_calls": 1},
			Overage: map[string]price.Overage{"model_calls": {Per: 1, Amount: 30_000_000}}, Taxes: []price.Tax{{Name: "VAT", Rate: 190_000}},
		})
		agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 4))
		_, err = s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01")
		agentsvctest.CheckError(t, err, agentsvc.CodePrecondition) // a draft
		_, err = s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", false)
		agentsvctest.RequireNoErrors(t, err)
		_, err = s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01")
		agentsvctest.CheckError(t, err, agentsvc.CodePrecondition) // not reversed
		_, err = s.Invoices.ReissueInvoice(ctx, actor, app, "2025-01")
		agentsvctest.CheckError(t, err, agentsvc.CodeNotFound)
		note, err := s.Invoices.ReverseInvoice(ctx, actor, app, "2026-01")
		agentsvctest.RequireNoErrors(t, err)
		_, err = s.Invoices.ReissueInvoice(ctx, actor, app, note.ID)
		agentsvctest.CheckError(t, err, agentsvc.CodePrecondition)

		app.Plan = "pro"
		second, err := s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01")
		agentsvctest.RequireNoErrors(t, err)
		again, err := s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01")
		agentsvctest.RequireNoErrors(t, err)
		want := []invoice.Total{{Currency: "USD", Charge: 20_090_000_000, Net: 20_090_000_000, Tax: 3_820_000_000, Due: 23_910_000_000}}
		if diff := cmp.Diff(want, second.Totals); diff != "" || second.ID != "2026-01-2" || second.Number != 3 || again.Number != 3 || second.Replaces != "2026-01" {
			t.Errorf("%+v, then number %d (-want +got):\n%s", second, again.Number, diff)
		}
		first, err := s.Invoices.FindInvoice(ctx, app, "2026-01")
		agentsvctest.RequireNoErrors(t, err)
		if first.Status != invoice.Reversed || first.ReplacedBy != "2026-01-2" {
			t.Errorf("the first invoice is %s, replaced by %q", first.Status, first.ReplacedBy)
		}
		_, err = s.Invoices.ReverseInvoice(ctx, actor, app, "2026-01-2")
		agentsvctest.RequireNoErrors(t, err)
		third, err := s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01-2")
		agentsvctest.RequireNoErrors(t, err)
		if third.ID != "2026-01-3" || third.Totals[0] != second.Totals[0] {
			t.Errorf("the third invoice is %+v", third)
		}
		balances, err := s.Ledgers.ListAccountBalances(ctx, app.ID)
		agentsvctest.RequireNoErrors(t, err)
		wantBalances := map[ledger.Account]amount.Money{
			ledger.Receivable: 23_910_000_000, ledger.Revenue: -20_090_000_000, ledger.Tax: -3_820_000_000, ledger.Carried: 0,
		}
		for account, balance := range wantBalances {
			if balances["USD"][account] != balance {
				t.Errorf("%s stands at %d, want %d", account, balances["USD"][account], balance)
			}
		}
		all, err := s.Invoices.ListAllInvoices(ctx, invoice.AllQuery{Month: "2026-01", Size: 3})
		agentsvctest.RequireNoErrors(t, err)
		if len(all) != 3 || all[0].Number != 5 || all[0].ID != "2026-01-3" || all[0].Lines != nil {
			t.Errorf("the list of all apps begins with %+v", all)
		}
		rest, err := s.Invoices.ListAllInvoices(ctx, invoice.AllQuery{Month: "2026-01", Size: 3, Before: all[2].Number})
		agentsvctest.RequireNoErrors(t, err)
		if len(rest) != 2 || rest[1].Number != 1 {
			t.Errorf("the rest is %+v", rest)
		}
	})
}

// TestRemainder checks that an invoice is due in whole cents and that what rounding leaves is on the next one.
func TestRemainder(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := openPriced(t, d), usagetest.NewApp(), t.Context()
		app.Plan = "p"
		_, err := s.Prices.AddPlan(ctx, actor, price.Plan{Name: "p", Currency: "USD", Overage: map[string]price.Overage{"model_calls": {Per: 1, Amount: 4_000_000}}})
		agentsvctest.RequireNoErrors(t, err)
		for month := 1; month <= 3; month++ {
			agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(month, 5), 1))
		}
		want := map[string]invoice.Total{
			"2026-01": {Currency: "USD", Charge: 4_000_000, Remainder: 4_000_000},
			"2026-02": {Currency: "USD", Charge: 4_000_000, Carried: 4_000_000, Net: 10_000_000, Due: 10_000_000, Remainder: -2_000_000},
			"2026-03": {Currency: "USD", Charge: 4_000_000, Carried: -2_000_000, Remainder: 2_000_000},
		}
		check := func(status invoice.Status) {
			t.Helper()
			list, err := s.Invoices.ListInvoices(ctx, app)
			agentsvctest.RequireNoErrors(t, err)
			if len(list) != len(want) {
				t.Errorf("there are %d invoices, want %d", len(list), len(want))
			}
			for _, inv := range list {
				if inv.Status != status || inv.Totals[0] != want[inv.ID] {
					t.Errorf("%s is %s: %+v, want %+v", inv.ID, inv.Status, inv.Totals[0], want[inv.ID])
				}
			}
		}
		check(invoice.Draft)
		for _, month := range []string{"2026-01", "2026-02", "2026-03"} {
			_, err := s.Invoices.FinalizeInvoice(ctx, actor, app, month, false)
			agentsvctest.RequireNoErrors(t, err)
		}
		check(invoice.Final)
	})
}
