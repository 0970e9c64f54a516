package invoice_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agentsvctest"
	"stoa/billing/amount"
	"stoa/billing/invoice"
	"stoa/billing/ledger"
	"stoa/billing/party"
	"stoa/billing/price"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/keyring"
)

// TestReissueByPlan reverses an invoice that was made by the wrong plan, and invoices the month again by another: each usage
// row is charged once, late usage and costs included.
func TestReissueByPlan(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := openPriced(t, d), usagetest.NewApp(), t.Context()
		_, err := s.Prices.AddPlan(ctx, actor, price.Plan{
			Name: "pro", Currency: "USD", BaseFee: 20_000_000_000, Included: map[string]int64{"model_calls": 1},
			Overage: map[string]price.Overage{"model_calls": {Per: 1, Amount: 30_000_000}}, Taxes: []price.Tax{{Name: "VAT", Rate: 190_000}},
		})
		agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 4))
		_, err = s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01", invoice.ReissueOptions{})
		agentsvctest.CheckError(t, err, agentsvc.CodePrecondition) // a draft
		_, err = s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{})
		agentsvctest.RequireNoErrors(t, err)
		_, err = s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01", invoice.ReissueOptions{})
		agentsvctest.CheckError(t, err, agentsvc.CodePrecondition) // not reversed
		_, err = s.Invoices.ReissueInvoice(ctx, actor, app, "2025-01", invoice.ReissueOptions{})
		agentsvctest.CheckError(t, err, agentsvc.CodeNotFound)
		note, err := s.Invoices.ReverseInvoice(ctx, actor, app, "2026-01")
		agentsvctest.RequireNoErrors(t, err)
		_, err = s.Invoices.ReissueInvoice(ctx, actor, app, note.ID, invoice.ReissueOptions{})
		agentsvctest.CheckError(t, err, agentsvc.CodePrecondition)

		unknown, pro := "unknown", "pro"
		_, err = s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01", invoice.ReissueOptions{Plan: &unknown})
		agentsvctest.CheckError(t, err, agentsvc.CodeInvalid)
		second, err := s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01", invoice.ReissueOptions{Plan: &pro})
		agentsvctest.RequireNoErrors(t, err)
		again, err := s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01", invoice.ReissueOptions{Plan: &pro})
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
		third, err := s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01-2", invoice.ReissueOptions{})
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

// TestReissueRepeated invoices a month again a second time: with equal options that is a repetition, with others it is
// refused, because the first one is what the buyer has.
func TestReissueRepeated(t *testing.T) {
	t.Parallel()
	pro, none := "pro", ""
	acme, moved := party.Party{Name: "Acme GmbH"}, party.Party{Name: "Acme GmbH", Address: []string{"2 Market"}}
	cases := map[string]struct {
		first, second invoice.ReissueOptions
		refused       bool
	}{
		"nothing":                     {},
		"the same plan":               {first: invoice.ReissueOptions{Plan: &pro}, second: invoice.ReissueOptions{Plan: &pro}},
		"the same buyer":              {first: invoice.ReissueOptions{Buyer: &moved}, second: invoice.ReissueOptions{Buyer: &moved}},
		"an address without lines":    {first: invoice.ReissueOptions{Buyer: &acme}, second: invoice.ReissueOptions{Buyer: &party.Party{Name: "Acme GmbH", Address: []string{}}}},
		"another plan":                {first: invoice.ReissueOptions{Plan: &none}, second: invoice.ReissueOptions{Plan: &pro}, refused: true},
		"the invoice's plan as it is": {second: invoice.ReissueOptions{Plan: &none}, refused: true},
		"a plan no more":              {first: invoice.ReissueOptions{Plan: &pro}, refused: true},
		"another buyer":               {first: invoice.ReissueOptions{Buyer: &acme}, second: invoice.ReissueOptions{Buyer: &moved}, refused: true},
		"a buyer":                     {second: invoice.ReissueOptions{Buyer: &moved}, refused: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
				s, app, ctx := openPriced(t, d), usagetest.NewApp(), t.Context()
				_, err := s.Prices.AddPlan(ctx, actor, price.Plan{Name: pro, Currency: "USD", BaseFee: 20_000_000_000})
				agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 4))
				_, err = s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{})
				agentsvctest.RequireNoErrors(t, err)
				reverse := func(id string) {
					t.Helper()
					_, err := s.Invoices.ReverseInvoice(ctx, actor, app, id)
					agentsvctest.RequireNoErrors(t, err)
				}
				reverse("2026-01")
				first, err := s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01", c.first)
				agentsvctest.RequireNoErrors(t, err)
				second, err := s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01", c.second)
				if !c.refused {
					agentsvctest.RequireNoErrors(t, err)
					if diff := cmp.Diff(first, second); diff != "" {
						t.Errorf("the repetition (-first +second):\n%s", diff)
					}
					return
				}
				// What the error advises is possible.
				agentsvctest.CheckError(t, err, agentsvc.CodePrecondition)
				if want := "reverse 2026-01-2 first, then invoice 2026-01-2 again"; err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v, want %q in it", err, want)
				}
				reverse("2026-01-2")
				_, err = s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01", c.second)
				if want := "invoice 2026-01-2 again, which is reversed"; err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("after the reversal the error is %v, want %q in it", err, want)
				}
				third, err := s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01-2", c.second)
				agentsvctest.RequireNoErrors(t, err)
				_, err = s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01", c.second)
				if want := "reverse 2026-01-3 first, then invoice 2026-01-3 again"; third.ID != "2026-01-3" || err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("after %s the error is %v, want %q in it", third.ID, err, want)
				}
			})
		})
	}
}

// TestReissueKeepsTerms reverses an invoice and makes it again after its plan, the app's plan and the app itself have
// changed or gone, and its credits have expired or were revoked: what is due, by which taxes and paid by which credits, is
// as it was.
func TestReissueKeepsTerms(t *testing.T) {
	t.Parallel()
	seller, buyer, moved := party.Party{Name: "Agents Ltd"}, party.Party{Name: "Acme GmbH"}, party.Party{Name: "Acme GmbH, 2 Market"}
	changePlan := func(ctx context.Context, s *services) error {
		_, err := s.Prices.UpdatePlan(ctx, actor, price.Plan{Name: "pro", Currency: "USD", BaseFee: 99_000_000_000})
		return err
	}
	cases := map[string]struct {
		change  func(ctx context.Context, s *services, app *tenancy.App) error
		options invoice.ReissueOptions
		// buyer is on the new invoice.
		buyer party.Party
	}{
		"the plan changed": {change: func(ctx context.Context, s *services, _ *tenancy.App) error { return changePlan(ctx, s) }, buyer: moved},
		"the app is on another plan": {change: func(ctx context.Context, s *services, app *tenancy.App) error {
			app.Plan = "large"
			_, err := s.Prices.AddPlan(ctx, actor, price.Plan{Name: "large", Currency: "USD", BaseFee: 500_000_000_000, Timezone: "Asia/Tokyo"})
			return err
		}, buyer: moved},
		"the app is deleted":                          {change: deleteApp, buyer: buyer},
		"the app is deleted, and its buyer has moved": {change: deleteApp, options: invoice.ReissueOptions{Buyer: &moved}, buyer: moved},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
				s, ctx, app := openPriced(t, d), t.Context(), usagetest.InsertApp(t, d, "{}")
				parties := party.New(d)
				first := invoiceWithCredits(t, s, parties, &app, seller, buyer)
				_, err := s.Invoices.ReverseInvoice(ctx, actor, app, first.ID)
				agentsvctest.RequireNoErrors(t, err, parties.PutParty(ctx, actor, app, moved, keyring.Hasher{}), c.change(ctx, s, &app))
				again, err := s.Invoices.ReissueInvoice(ctx, actor, app, first.ID, c.options)
				agentsvctest.RequireNoErrors(t, err)
				want := first
				want.ID, want.Number, want.FinalizedAt, want.Replaces, want.Buyer = "2026-01-2", again.Number, again.FinalizedAt, "2026-01", &c.buyer
				if c.buyer.Name == buyer.Name {
					want.Buyer = first.Buyer
				}
				if diff := cmp.Diff(want, again); diff != "" {
					t.Errorf("the invoice made again (-want +got):\n%s", diff)
				}
				balances, err := s.Ledgers.ListAccountBalances(ctx, app.ID)
				agentsvctest.RequireNoErrors(t, err)
				if got := balances["USD"]; got[ledger.Receivable] != first.Totals[0].Due || got[ledger.Unspent] != 0 || got[ledger.Carried] != first.Totals[0].Remainder {
					t.Errorf("the balances are %v", got)
				}
			})
		})
	}
}

// invoiceWithCredits makes the invoice of January of an app on a plan with a base fee, an included quantity and a tax, which
// an expired and a revoked credit pay in part.
func invoiceWithCredits(t *testing.T, s *services, parties *party.Service, app *tenancy.App, seller, buyer party.Party) invoice.Invoice {
	t.Helper()
	ctx := t.Context()
	app.Plan = "pro"
	_, err := s.Prices.AddPlan(ctx, actor, price.Plan{
		Name: "pro", Currency: "USD", Timezone: "Europe/Berlin", BaseFee: 20_000_000_000, Included: map[string]int64{"model_calls": 1},
		Overage: map[string]price.Overage{"model_calls": {Per: 1, Amount: 31_000_001}}, Taxes: []price.Tax{{Name: "VAT", Rate: 190_000}},
	})
	agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, *app, usagetest.DateIn2026(1, 5), 400),
		invoice.GrantCredit(s.Invoices, ctx, *app, invoice.Credit{ID: "expired", Amount: 3_000_000_000, Currency: "USD", Expires: usagetest.DateIn2026(1, 20)}),
		invoice.GrantCredit(s.Invoices, ctx, *app, invoice.Credit{ID: "revoked", Amount: 2_000_000_000, Currency: "USD"}),
		parties.PutParty(ctx, actor, tenancy.App{}, seller, keyring.Hasher{}), parties.PutParty(ctx, actor, *app, buyer, keyring.Hasher{}))
	first, err := s.Invoices.FinalizeInvoice(ctx, actor, *app, "2026-01", invoice.FinalizeOptions{})
	agentsvctest.RequireNoErrors(t, err, s.Invoices.RevokeCredit(ctx, actor, *app, "revoked"))
	if len(first.Credits) != 2 || len(first.Taxes) != 1 || first.Totals[0].Remainder == 0 || first.Buyer == nil {
		t.Fatalf("the invoice is %+v", first)
	}
	return first
}

// deleteApp deletes the rows of an app that an invoice is made by, as the deletion of an app does.
func deleteApp(ctx context.Context, s *services, app *tenancy.App) error {
	var b db.Batch
	for _, table := range []string{"app", "invoice_party", "app_plan"} {
		b.Exec(nil, `DELETE FROM `+table+` WHERE tenant = $1`, string(app.ID))
	}
	*app = tenancy.App{ID: app.ID, Name: app.Name}
	return s.DB.Platform().Do(ctx, &b)
}

// TestReissueUsesCreditsThatWereSpent makes an invoice again after the credit that paid it has paid another one: another
// credit pays as much, and no more.
func TestReissueUsesCreditsThatWereSpent(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := openPriced(t, d), usagetest.NewApp(), t.Context()
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 10),
			invoice.GrantCredit(s.Invoices, ctx, app, invoice.Credit{ID: "first", Amount: 60, Currency: "USD"}))
		_, err := s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{})
		agentsvctest.RequireNoErrors(t, err)
		_, err = s.Invoices.ReverseInvoice(ctx, actor, app, "2026-01")
		agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(2, 5), 4),
			invoice.GrantCredit(s.Invoices, ctx, app, invoice.Credit{ID: "yen", Amount: 5, Currency: "JPY"}))
		_, err = s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-02", invoice.FinalizeOptions{})
		agentsvctest.RequireNoErrors(t, err, invoice.GrantCredit(s.Invoices, ctx, app, invoice.Credit{ID: "later", Amount: 90, Currency: "USD"}))
		again, err := s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01", invoice.ReissueOptions{})
		agentsvctest.RequireNoErrors(t, err)
		want := []invoice.CreditUse{{Credit: "first", Currency: "USD", Amount: 20}, {Credit: "later", Currency: "USD", Amount: 40}}
		if diff := cmp.Diff(want, again.Credits); diff != "" {
			t.Errorf("credits (-want +got):\n%s", diff)
		}
		// An open credit in another currency adds no total.
		if len(again.Totals) != 1 || again.Totals[0].Currency != "USD" {
			t.Errorf("the totals are %+v, want one in USD", again.Totals)
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
			_, err := s.Invoices.FinalizeInvoice(ctx, actor, app, month, invoice.FinalizeOptions{})
			agentsvctest.RequireNoErrors(t, err)
		}
		check(invoice.Final)
	})
}
