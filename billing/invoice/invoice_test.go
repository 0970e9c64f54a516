package invoice_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"stoa/agentsvc/agentsvctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/calendar"
	"stoa/billing/invoice"
	"stoa/billing/party"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/keyring"
)

func monthName(t time.Time) string { return t.UTC().Format("2006-01") }

// invoiceTotals returns charge and credits of an app's invoices, by their id and status.
func invoiceTotals(t *testing.T, s *services, app tenancy.App) map[string][2]amount.Money {
	t.Helper()
	all, err := s.Invoices.ListInvoices(t.Context(), app)
	agentsvctest.RequireNoErrors(t, err)
	m := map[string][2]amount.Money{}
	for _, inv := range all {
		m[inv.ID+" "+string(inv.Status)] = [2]amount.Money{}
		for _, total := range inv.Totals {
			m[inv.ID+" "+string(inv.Status)] = [2]amount.Money{total.Charge, total.Credits}
		}
	}
	return m
}

func wantTotals(t *testing.T, s *services, app tenancy.App, want map[string][2]amount.Money) {
	t.Helper()
	if diff := cmp.Diff(want, invoiceTotals(t, s, app)); diff != "" {
		t.Errorf("charge and credits of each invoice (-want +got):\n%s", diff)
	}
}

// TestLateUsage checks that usage of a month that is final is on the next invoice, once, and that months keep their
// order.
func TestLateUsage(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := openPriced(t, d), usagetest.NewApp(), t.Context()
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 2), usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(2, 5), 3), usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(4, 5), 5))
		wantTotals(t, s, app, map[string][2]amount.Money{"2026-01 draft": {20, 0}, "2026-02 draft": {30, 0}, "2026-04 draft": {50, 0}})
		_, err := s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-02", invoice.FinalizeOptions{})
		agentsvctest.CheckError(t, err, agentsvc.CodePrecondition)
		_, err = s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-03", invoice.FinalizeOptions{})
		agentsvctest.CheckError(t, err, agentsvc.CodePrecondition)
		for _, never := range []string{"2025-12", "later", ""} {
			_, err = s.Invoices.FindInvoice(ctx, app, never)
			agentsvctest.CheckError(t, err, agentsvc.CodeNotFound)
		}
		_, err = s.Invoices.FinalizeInvoice(ctx, actor, app, "2025-12", invoice.FinalizeOptions{})
		agentsvctest.CheckError(t, err, agentsvc.CodeNotFound)
		first, err := s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{})
		agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 6), 7))
		wantTotals(t, s, app, map[string][2]amount.Money{"2026-01 final": {20, 0}, "2026-02 draft": {100, 0}, "2026-04 draft": {50, 0}})
		second, err := s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-02", invoice.FinalizeOptions{})
		agentsvctest.RequireNoErrors(t, err)
		if len(second.Lines) != 2 || second.Lines[0].Late || !second.Lines[1].Late || second.Lines[1].Charge != 70 {
			t.Errorf("lines %+v", second.Lines)
		}
		if first.Number != 1 || second.Number != 2 {
			t.Errorf("numbers %d and %d", first.Number, second.Number)
		}
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(2, 6), 1))
		wantTotals(t, s, app, map[string][2]amount.Money{"2026-01 final": {20, 0}, "2026-02 final": {100, 0}, "2026-03 draft": {10, 0}, "2026-04 draft": {50, 0}})
		again, err := s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{})
		agentsvctest.RequireNoErrors(t, err)
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("the final invoice has changed (-want +got):\n%s", diff)
		}
	})
}

// TestMonthToCome closes the current month early: later usage is on the next invoice, which cannot be closed before its
// month begins.
func TestMonthToCome(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := openPriced(t, d), usagetest.NewApp(), t.Context()
		now := time.Now()
		begin, _ := calendar.Month.Bounds(now, time.UTC)
		this, coming := monthName(now), monthName(begin.AddDate(0, 1, 0))
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, now, 2))
		_, err := s.Invoices.FinalizeInvoice(ctx, actor, app, this, invoice.FinalizeOptions{})
		agentsvctest.CheckError(t, err, agentsvc.CodePrecondition)
		_, err = s.Invoices.FinalizeInvoice(ctx, actor, app, this, invoice.FinalizeOptions{Force: true})
		agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, now, 3))
		want := map[string][2]amount.Money{this + " final": {20, 0}, coming + " draft": {30, 0}}
		wantTotals(t, s, app, want)
		_, err = s.Invoices.FinalizeInvoice(ctx, actor, app, coming, invoice.FinalizeOptions{Force: true})
		agentsvctest.CheckError(t, err, agentsvc.CodePrecondition)
		wantTotals(t, s, app, want)
	})
}

// TestPlanInOtherCurrency checks that a plan does not charge what was charged in another currency before.
func TestPlanInOtherCurrency(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := openPriced(t, d), usagetest.NewApp(), t.Context()
		_, err := s.Prices.AddPlan(ctx, actor, price.Plan{Name: "euro", Currency: "EUR", Included: map[string]int64{"model_calls": 1}})
		agentsvctest.RequireNoErrors(t, err)
		_, err = s.Prices.AddVersion(ctx, actor, price.Version{Version: "euro", Currency: "EUR", Effective: january, Items: []price.Item{usagetest.ChargeItem("model_calls", "", "", 1, 9)}})
		agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 2))
		app.Plan = "euro"
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 6), 3))
		inv, err := s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{})
		agentsvctest.RequireNoErrors(t, err)
		want := []invoice.Total{{Currency: "EUR", Charge: 18, Remainder: 18}, {Currency: "USD", Charge: 20, Remainder: 20}}
		if diff := cmp.Diff(want, inv.Totals); diff != "" {
			t.Errorf("totals (-want +got):\n%s", diff)
		}
	})
}

// TestNothingPriced checks that usage from before the first price is on the invoice, without a total in any currency.
func TestNothingPriced(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := openBilling(t, d), usagetest.NewApp(), t.Context()
		app.Plan = "p"
		_, err := s.Prices.AddPlan(ctx, actor, price.Plan{Name: "p", Included: map[string]int64{"model_calls": 1}, Overage: map[string]price.Overage{"model_calls": {Per: 1, Amount: 5}}})
		agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 2))
		inv, err := s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{AllowUnpriced: true})
		agentsvctest.RequireNoErrors(t, err)
		if len(inv.Lines) != 2 || len(inv.Totals) != 0 {
			t.Errorf("lines %+v, totals %+v, want two and none", inv.Lines, inv.Totals)
		}
		for _, l := range inv.Lines {
			if !l.Unpriced || l.Currency != "" || l.Charge != 0 {
				t.Errorf("%+v, want a line without a price", l)
			}
		}
		var table, page bytes.Buffer
		agentsvctest.RequireNoErrors(t, inv.WriteCSV(&table), inv.WriteHTML(&page))
		for _, text := range []string{table.String(), page.String()} {
			if strings.Contains(text, "XXX") || strings.Contains(text, "0.00") || !strings.Contains(text, "without a price") {
				t.Errorf("it shows money that there is none of:\n%s", text)
			}
		}
		if balances, err := s.Ledgers.ListAccountBalances(ctx, app.ID); err != nil || len(balances) != 0 {
			t.Errorf("balances %v, %v, want none", balances, err)
		}
	})
}

// TestCreditOrder checks the order in which credits pay: by expiry, then by age, and none for usage after its expiry.
func TestCreditOrder(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := openPriced(t, d), usagetest.NewApp(), t.Context()
		for _, c := range []invoice.Credit{
			{ID: "ever", Amount: 1000, Currency: "USD"},
			{ID: "euros", Amount: 1000, Currency: "EUR"},
			{ID: "later", Amount: 25, Currency: "USD", Expires: usagetest.DateIn2026(2, 20)},
			{ID: "soon", Amount: 15, Currency: "USD", Expires: usagetest.DateIn2026(1, 10)},
			{ID: "younger", Amount: 5, Currency: "USD", Expires: usagetest.DateIn2026(2, 20)},
		} {
			agentsvctest.RequireNoErrors(t, invoice.GrantCredit(s.Invoices, ctx, app, c))
		}
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 9), 1), usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 11), 2), usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(2, 21), 1))
		jan, err := s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{})
		agentsvctest.RequireNoErrors(t, err)
		// 10 before the end of soon, of which 5 stay unused; 20 after it.
		want := []invoice.CreditUse{{Credit: "soon", Currency: "USD", Amount: 10}, {Credit: "later", Currency: "USD", Amount: 20}}
		if diff := cmp.Diff(want, jan.Credits); diff != "" {
			t.Errorf("January (-want +got):\n%s", diff)
		}
		left := func() map[string]amount.Money {
			all, err := s.Invoices.ListCredits(ctx, app)
			agentsvctest.RequireNoErrors(t, err)
			m := map[string]amount.Money{}
			for _, c := range all {
				m[c.ID+" "+string(c.Status)] = c.Remaining - c.Pending
			}
			return m
		}
		// The usage of 21 February is after the end of later and younger.
		if diff := cmp.Diff(map[string]amount.Money{"soon expired": 0, "later expired": 5, "younger expired": 5, "ever open": 990, "euros open": 1000}, left()); diff != "" {
			t.Errorf("left (-want +got):\n%s", diff)
		}
		agentsvctest.RequireNoErrors(t, s.Invoices.ExpireCredits(ctx))
		// All usage from before 20 February is invoiced, so both have expired.
		if diff := cmp.Diff(map[string]amount.Money{"soon expired": 0, "later expired": 0, "younger expired": 0, "ever open": 990, "euros open": 1000}, left()); diff != "" {
			t.Errorf("left (-want +got):\n%s", diff)
		}
		_, err = s.Invoices.ReverseInvoice(ctx, actor, app, "2026-01")
		agentsvctest.RequireNoErrors(t, err)
		note, err := s.Invoices.ReverseInvoice(ctx, actor, app, "2026-01")
		agentsvctest.RequireNoErrors(t, err)
		if note.Number != 2 || note.Totals[0] != (invoice.Total{Currency: "USD", Charge: -30, Credits: -30}) || note.Reverses != "2026-01" {
			t.Errorf("credit note %+v", note)
		}
		_, err = s.Invoices.ReverseInvoice(ctx, actor, app, note.ID)
		agentsvctest.CheckError(t, err, agentsvc.CodePrecondition)
		_, err = s.Invoices.ReverseInvoice(ctx, actor, app, "2026-02")
		agentsvctest.CheckError(t, err, agentsvc.CodePrecondition)
		_, err = s.Invoices.ReverseInvoice(ctx, actor, app, "2027-02")
		agentsvctest.CheckError(t, err, agentsvc.CodeNotFound)
		inv, err := s.Invoices.FindFinalInvoice(ctx, app.ID, "2026-01")
		agentsvctest.RequireNoErrors(t, err)
		if inv.Status != invoice.Reversed || inv.ReversedBy != note.ID {
			t.Errorf("the invoice is %s, reversed by %q", inv.Status, inv.ReversedBy)
		}
		agentsvctest.RequireNoErrors(t, s.Invoices.RevokeCredit(ctx, actor, app, "ever"), s.Invoices.RevokeCredit(ctx, actor, app, "ever"))
		agentsvctest.CheckError(t, s.Invoices.RevokeCredit(ctx, actor, app, "none"), agentsvc.CodeNotFound)
		agentsvctest.CheckError(t, s.Invoices.RevokeCredit(ctx, actor, usagetest.NewApp(), "ever"), agentsvc.CodeNotFound)
		wantTotals(t, s, app, map[string][2]amount.Money{"2026-01 reversed": {30, 30}, "2026-01-reversal final": {-30, -30}, "2026-02 draft": {10, 0}})
	})
}

func TestCreditMistakes(t *testing.T) {
	t.Parallel()
	s, app := openPriced(t, dbtest.NewSQLite(t)), usagetest.NewApp()
	good := invoice.Credit{Amount: 1}
	for _, tt := range []struct {
		field  string
		change func(*invoice.Credit)
	}{
		{"amount", func(c *invoice.Credit) { c.Amount = 0 }},
		{"amount", func(c *invoice.Credit) { c.Amount = 1e18 + 1 }},
		{"amount", func(c *invoice.Credit) { c.Amount = -1 }},
		{"currency", func(c *invoice.Credit) { c.Currency = "dollars" }},
		{"currency", func(c *invoice.Credit) { c.Currency = "EUR" }}, // not that of the app
		{"note", func(c *invoice.Credit) { c.Note = strings.Repeat("x", 501) }},
		{"note", func(c *invoice.Credit) { c.Note = "a\x00b" }},
		{"expires_at", func(c *invoice.Credit) { c.Expires = time.Now() }},
	} {
		c := good
		tt.change(&c)
		_, err := s.Invoices.AddCredit(t.Context(), actor, app, c)
		agentsvctest.CheckInvalid(t, err, tt.field)
	}
	for range 100 {
		c, err := s.Invoices.AddCredit(t.Context(), actor, app, good)
		if agentsvctest.RequireNoErrors(t, err); c.Currency != "USD" || c.Remaining != 1 || c.Status != invoice.CreditOpen {
			t.Fatalf("credit %+v", c)
		}
	}
	_, err := s.Invoices.AddCredit(t.Context(), actor, app, good)
	agentsvctest.CheckError(t, err, agentsvc.CodePrecondition)
}

// TestMonths checks the ends of months in the plan's time zone, also on days of 23 and 25 hours.
func TestMonths(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, ctx := openPriced(t, d), t.Context()
		for zone, name := range map[string]string{"Europe/Berlin": "berlin", "Asia/Kathmandu": "kathmandu", "America/Santiago": "santiago", "": "utc"} {
			_, err := s.Prices.AddPlan(ctx, actor, price.Plan{Name: name, Currency: "USD", Timezone: zone})
			agentsvctest.RequireNoErrors(t, err)
		}
		_, err := s.Prices.AddPlan(ctx, actor, price.Plan{Name: "moon", Timezone: "Moon/Tranquility"})
		agentsvctest.CheckInvalid(t, err, "timezone")
		tests := []struct {
			plan, last, next string // the last instant of a month, and the first of the next one
		}{
			{"utc", "2026-03-31T23:59:59.999999Z", "2026-04-01T00:00:00Z"},
			{"berlin", "2026-03-31T21:59:59.999999Z", "2026-03-31T22:00:00Z"},     // summer time since the 29th
			{"berlin", "2026-02-28T22:59:59.999999Z", "2026-02-28T23:00:00Z"},     // winter
			{"berlin", "2026-10-31T22:59:59.999999Z", "2026-10-31T23:00:00Z"},     // winter again
			{"kathmandu", "2026-01-31T18:14:59.999999Z", "2026-01-31T18:15:00Z"},  // a quarter of an hour
			{"santiago", "2026-09-01T03:59:59.999999Z", "2026-09-01T04:00:00Z"},   // winter
			{"santiago", "2026-10-01T02:59:59.999999Z", "2026-10-01T03:00:00Z"},   // summer
			{"utc", "2028-02-29T23:59:59.999999Z", "2028-03-01T00:00:00.000001Z"}, // leap day
		}
		for _, tt := range tests {
			app := usagetest.NewApp()
			app.Plan = tt.plan
			last, err := time.Parse(time.RFC3339, tt.last)
			agentsvctest.RequireNoErrors(t, err)
			next, err := time.Parse(time.RFC3339, tt.next)
			agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, last, 1), usagetest.RecordCalls(ctx, s.Usage, app, next, 2))
			all, err := s.Invoices.ListInvoices(ctx, app)
			agentsvctest.RequireNoErrors(t, err)
			if len(all) != 2 || all[1].Totals[0].Charge != 10 || all[0].Totals[0].Charge != 20 || all[0].Period.From.After(next) || !all[1].Period.To.After(last) {
				t.Errorf("%s at %s: %+v", tt.plan, tt.last, all)
			}
		}
	})
}

// TestTimezoneChanges moves the ends of months: no usage is invoiced twice or left out, and no month comes twice.
func TestTimezoneChanges(t *testing.T) {
	t.Parallel()
	s, app, ctx := openPriced(t, dbtest.NewSQLite(t)), usagetest.NewApp(), t.Context()
	app.Plan = "p"
	_, err := s.Prices.AddPlan(ctx, actor, price.Plan{Name: "p", Timezone: "Asia/Tokyo"})
	end := time.Date(2026, 1, 31, 15, 0, 0, 0, time.UTC) // the end of January there
	agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, end.Add(-1*time.Hour), 1), usagetest.RecordCalls(ctx, s.Usage, app, end.Add(time.Hour), 2), usagetest.RecordCalls(ctx, s.Usage, app, end.Add(24*time.Hour), 4))
	_, err = s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{})
	agentsvctest.RequireNoErrors(t, err)
	_, err = s.Prices.UpdatePlan(ctx, actor, price.Plan{Name: "p", Timezone: "America/Los_Angeles"})
	agentsvctest.RequireNoErrors(t, err)
	wantTotals(t, s, app, map[string][2]amount.Money{"2026-01 final": {10, 0}, "2026-02 draft": {60, 0}})
}

// TestMovedUsageKeepsCharge checks that the usage of an app which came from an installation with another price book is
// charged what it was recorded with, although the plan names one of its meters: the rest of its price is not known here.
func TestMovedUsageKeepsCharge(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := openPriced(t, d), usagetest.NewApp(), t.Context()
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 3))
		wantTotals(t, s, app, map[string][2]amount.Money{"2026-01 draft": {30, 0}})
		var move db.Batch
		move.Exec(nil, `DELETE FROM price`)
		agentsvctest.RequireNoErrors(t, d.Platform().Do(ctx, &move))
		s = openBilling(t, d)
		_, err := s.Prices.AddPlan(ctx, actor, price.Plan{Name: "p", Currency: "USD", Included: map[string]int64{"runs": 9, "model_calls": 1}})
		agentsvctest.RequireNoErrors(t, err)
		app.Plan = "p"
		wantTotals(t, s, app, map[string][2]amount.Money{"2026-01 draft": {30, 0}})
	})
}

// TestPlanCharges checks charges within and beyond what a plan includes.
func TestPlanCharges(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, ctx := openBilling(t, d), t.Context()
		_, err := s.Prices.AddVersion(ctx, actor, price.Version{Version: "1", Currency: "USD", Effective: january, Items: []price.Item{
			usagetest.ChargeItem("input_tokens", "", "", 1, 2), usagetest.ChargeItem("output_tokens", "", "", 1, 10), usagetest.ChargeItem("cache_read_tokens", "", "", 1, 1), usagetest.ChargeItem("run_seconds", "", "", 1, 1_000_000),
		}})
		agentsvctest.RequireNoErrors(t, err)
		f := usage.RunFacts{Task: "t", Turn: 1, Epoch: 1, Events: []agentsvc.Event{
			{Usage: &agentsvc.Usage{Call: "1", StartedAt: usagetest.DateIn2026(1, 5), Provider: "p", Model: "m", InputTokens: 100, CacheReadTokens: 40, OutputTokens: 7}},
			{Usage: &agentsvc.Usage{Call: "2", StartedAt: usagetest.DateIn2026(1, 6), Provider: "p", Model: "n", InputTokens: 20, OutputTokens: 3}},
		}}
		// 60×2 + 40×1 + 7×10 + 20×2 + 3×10 = 300 by the price book.
		tests := []struct {
			name string
			plan price.Plan
			want amount.Money
		}{
			{"none", price.Plan{}, 300},
			{"all input included", price.Plan{Included: map[string]int64{"input_tokens": 120}}, 100},
			{"input beyond, at the book's prices on average", price.Plan{Included: map[string]int64{"input_tokens": 60}}, 200}, // 100 + 200 × 60/120
			{"input beyond, at the plan's", price.Plan{Included: map[string]int64{"input_tokens": 100}, Overage: map[string]price.Overage{"input_tokens": {Per: 3, Amount: 1}}}, 107},
			{"all input at the plan's", price.Plan{Overage: map[string]price.Overage{"input_tokens": {Per: 1, Amount: 1}}}, 220},
			{"cached input included", price.Plan{Included: map[string]int64{"cache_read_tokens": 30}}, 270},
			{"cached input apart", price.Plan{Included: map[string]int64{"input_tokens": 80, "cache_read_tokens": 0}}, 140},
			{"what the book does not price", price.Plan{Overage: map[string]price.Overage{"model_calls": {Per: 1, Amount: 5}}}, 310},
			{"what was not used", price.Plan{Included: map[string]int64{"embeddings": 10}}, 300},
		}
		for i, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				app := usagetest.NewApp()
				tt.plan.Name = "plan-" + string(rune('a'+i))
				_, err := s.Prices.AddPlan(ctx, actor, tt.plan)
				app.Plan = tt.plan.Name
				agentsvctest.RequireNoErrors(t, err, s.Usage.NewMeter(app.ID, app.Plan).WriteUsage(ctx, f))
				wantTotals(t, s, app, map[string][2]amount.Money{"2026-01 draft": {tt.want, 0}})
				_, err = s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{})
				agentsvctest.RequireNoErrors(t, err)
				wantTotals(t, s, app, map[string][2]amount.Money{"2026-01 final": {tt.want, 0}})
			})
		}
		t.Run("seconds", func(t *testing.T) {
			app := usagetest.NewApp()
			app.Plan = "seconds"
			_, err := s.Prices.AddPlan(ctx, actor, price.Plan{Name: app.Plan, Included: map[string]int64{"run_seconds": 60}, Overage: map[string]price.Overage{"run_seconds": {Per: 60, Amount: 120}}})
			agentsvctest.RequireNoErrors(t, err, s.Usage.NewMeter(app.ID, app.Plan).WriteUsage(ctx, usage.RunFacts{Task: "t", Turn: 1, Epoch: 1, RunTime: 90*time.Second + time.Microsecond}))
			inv, err := s.Invoices.FindInvoice(ctx, app, monthName(time.Now()))
			agentsvctest.RequireNoErrors(t, err)
			want := invoice.Line{Kind: invoice.PlanLine, Meter: "run_seconds", Quantity: 91, Included: 60, Per: 60, Amount: 120, Currency: "USD", Charge: 61}
			if diff := cmp.Diff(want, inv.Lines[1]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	})
}

// TestFinalizeAtOnce finalizes one invoice through two handles while usage is written: it has one number, and every row
// is on this invoice or the next.
func TestFinalizeAtOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgresURL(t)
	var services []*services
	for range 2 {
		h, err := db.Open(t.Context(), d, db.Options{MaxConns: 4})
		agentsvctest.RequireNoErrors(t, err)
		t.Cleanup(func() { agentsvctest.RequireNoErrors(t, h.Close()) })
		services = append(services, openBilling(t, h))
	}
	_, err := services[0].Prices.AddVersion(t.Context(), actor, price.Version{Version: "1", Currency: "USD", Effective: january, Items: []price.Item{usagetest.ChargeItem("model_calls", "", "", 1, 10)}})
	agentsvctest.RequireNoErrors(t, err)
	s, app := services[0], usagetest.NewApp()
	agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(t.Context(), s.Usage, app, usagetest.DateIn2026(1, 5), 1))
	const writes = 60
	var wg sync.WaitGroup
	numbers := make([]int64, 8)
	for i := range numbers {
		wg.Go(func() {
			inv, err := services[i%2].Invoices.FinalizeInvoice(context.WithoutCancel(t.Context()), actor, app, "2026-01", invoice.FinalizeOptions{})
			if err != nil {
				t.Error(err)
			}
			numbers[i] = inv.Number
		})
	}
	for range 4 {
		wg.Go(func() {
			for range writes / 4 {
				if err := usagetest.RecordCalls(context.WithoutCancel(t.Context()), s.Usage, app, usagetest.DateIn2026(1, 6), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, n := range numbers {
		if n != 1 {
			t.Errorf("numbers %v", numbers)
			break
		}
	}
	var sum amount.Money
	for _, total := range invoiceTotals(t, s, app) {
		sum += total[0]
	}
	if sum != 10*(writes+1) {
		t.Errorf("%d are invoiced, want %d", sum, 10*(writes+1))
	}
}

// TestInvoiceForms writes an invoice as JSON, CSV and HTML. Names that tenants choose are escaped.
func TestInvoiceForms(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	s, app, ctx := openPriced(t, d), usagetest.NewApp(), t.Context()
	app.Plan = "pro"
	_, err := s.Prices.AddPlan(ctx, actor, price.Plan{Name: "pro", Timezone: "Europe/Berlin", Taxes: []price.Tax{{Name: "VAT", Rate: 190_000}}, Overage: map[string]price.Overage{"input_tokens": {Per: 1000, Amount: 1_500_000_000}}})
	agentsvctest.RequireNoErrors(t, err, s.Usage.NewMeter(app.ID, app.Plan).WriteUsage(ctx, usage.RunFacts{Task: "t", Turn: 1, Epoch: 1, Events: []agentsvc.Event{
		{Usage: &agentsvc.Usage{Call: "1", StartedAt: usagetest.DateIn2026(1, 5), Provider: "=1+1", Model: "<script>", InputTokens: 1000, OutputTokens: 3}},
	}}))
	agentsvctest.RequireNoErrors(t, invoice.GrantCredit(s.Invoices, ctx, app, invoice.Credit{ID: "c", Amount: 500_000_000, Currency: "USD"}))
	agentsvctest.RequireNoErrors(t,
		party.New(d).PutParty(ctx, actor, tenancy.App{}, party.Party{Name: "Stoa <Ltd>", Address: []string{"1 Porch"}, TaxID: "DE1", Note: "Payable in 14 days"}, keyring.Hasher{}),
		party.New(d).PutParty(ctx, actor, app, party.Party{Name: "Acme & Co", Email: "books@acme.test"}, keyring.Hasher{}))
	_, err = s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{})
	agentsvctest.RequireNoErrors(t, err)
	inv, err := s.Invoices.FindInvoice(ctx, app, "2026-01")
	agentsvctest.RequireNoErrors(t, err)
	var table, page bytes.Buffer
	agentsvctest.RequireNoErrors(t, inv.WriteCSV(&table), inv.WriteHTML(&page))
	rows, err := csv.NewReader(&table).ReadAll()
	agentsvctest.RequireNoErrors(t, err)
	want := [][]string{
		{"line", "model =1+1/<script>", "1000 input tokens, 1 model call, 3 output tokens", "", "", "", "", "false", "false", "USD", "0.00000001"},
		{"line", "plan: input tokens", "", "1000", "0", "1000", "1.50", "false", "false", "USD", "1.50"},
		{"credit", "c", "", "", "", "", "", "", "", "USD", "-0.50"},
		{"rounding", "carried to the next invoice, less what was carried to this one", "", "", "", "", "", "", "", "USD", "-0.00000001"},
		{"net", "charges less credits, rounded", "", "", "", "", "", "", "", "USD", "1.00"},
		{"tax", "VAT 19 %", "", "", "", "", "", "", "", "USD", "0.19"},
		{"total", "due", "", "", "", "", "", "", "", "USD", "1.19"},
	}
	var got [][]string
	for _, row := range rows[1:] {
		got = append(got, row[7:18])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the rows (-want +got):\n%s", diff)
	}
	for _, part := range []string{"Invoice No. 1", "2026-01-01 to 2026-01-31 (Europe/Berlin)", "&lt;script&gt;", "1.50 for each 1000 beyond", "-0.00000001 USD", "VAT 19 %", "of 1.00 USD", "1.19 USD",
		"<strong>Stoa &lt;Ltd&gt;</strong><br>1 Porch<br>Tax id DE1", "<strong>Acme &amp; Co</strong><br>books@acme.test", "Payable in 14 days"} {
		if !strings.Contains(page.String(), part) {
			t.Errorf("the page lacks %q:\n%s", part, page.String())
		}
	}
	if strings.Contains(page.String(), "<script>") {
		t.Error("the page holds a script")
	}
	body, err := json.Marshal(inv)
	agentsvctest.RequireNoErrors(t, err)
	var back invoice.Invoice
	agentsvctest.RequireNoErrors(t, json.Unmarshal(body, &back))
	if diff := cmp.Diff(inv, back, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("there and back (-want +got):\n%s", diff)
	}
}
