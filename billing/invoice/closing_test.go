package invoice_test

import (
	"testing"
	"time"

	"stoa/agentsvc/agentsvctest"
	"stoa/billing/invoice"
	"stoa/billing/price"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestClosingInvoice deletes an app in a month that was closed early, and another in a running month: no invoice is named
// after a month that has not begun, and each period ends at the deletion.
func TestClosingInvoice(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, ctx, app, running := openPriced(t, d), t.Context(), usagetest.NewApp(), usagetest.NewApp()
		_, err := s.Prices.AddPlan(ctx, actor, price.Plan{Name: "pro", Currency: "USD", BaseFee: 20_000_000_000})
		agentsvctest.RequireNoErrors(t, err)
		app.Plan = "pro"
		now := time.Now().UTC()
		month := now.Format("2006-01")
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, now, 1), usagetest.RecordCalls(ctx, s.Usage, running, now, 1))
		_, err = s.Invoices.FinalizeInvoice(ctx, actor, app, month, invoice.FinalizeOptions{Force: true})
		agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, now, 2), s.Invoices.CloseAccount(ctx, audit.System, app))
		// The deletion is repeated after a crash, and more was recorded in between.
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, now, 3), s.Invoices.CloseAccount(ctx, audit.System, app), s.Invoices.CloseAccount(ctx, audit.System, app))
		want := map[string]int64{month: 10, month + "-closing": 20, month + "-closing2": 30}
		all, err := s.Invoices.ListFinalInvoices(ctx, app.ID)
		agentsvctest.RequireNoErrors(t, err)
		if len(all) != len(want) {
			t.Fatalf("there are %d invoices, want %d: %+v", len(all), len(want), all)
		}
		for _, inv := range all {
			if charge := int64(inv.Totals[0].Charge); charge != want[inv.ID] {
				t.Errorf("invoice %s charges %d, want %d", inv.ID, charge, want[inv.ID])
			}
			if p := inv.Period; inv.ID != month && (p.To.After(time.Now()) || p.To.Before(now) || !p.From.Before(p.To.Time)) {
				t.Errorf("the period of %s is %v to %v", inv.ID, p.From, p.To)
			}
		}
		closing, err := s.Invoices.FindFinalInvoice(ctx, app.ID, month+"-closing")
		if agentsvctest.RequireNoErrors(t, err); len(closing.Lines) != 1 || !closing.Lines[0].Late || closing.Lines[0].Month != month {
			t.Errorf("the closing invoice has the lines %+v", closing.Lines)
		}
		// An invoice at the deletion can be made again; the base fee was on that of the month.
		_, err = s.Invoices.ReverseInvoice(ctx, actor, app, closing.ID)
		agentsvctest.RequireNoErrors(t, err)
		again, err := s.Invoices.ReissueInvoice(ctx, actor, app, closing.ID, invoice.ReissueOptions{Plan: &app.Plan})
		if agentsvctest.RequireNoErrors(t, err); again.ID != month+"-closing-2" || again.Totals[0].Charge != 20 {
			t.Errorf("made again it is %+v", again)
		}

		agentsvctest.RequireNoErrors(t, s.Invoices.CloseAccount(ctx, audit.System, running))
		last, err := s.Invoices.FindFinalInvoice(ctx, running.ID, month)
		if agentsvctest.RequireNoErrors(t, err); last.Period.To.After(time.Now()) || last.Period.To.Before(now) {
			t.Errorf("the period of the last invoice ends at %v", last.Period.To)
		}
	})
}

// TestLateMonths checks that late usage has a line for each month in which it was used, by the clocks of the plan.
func TestLateMonths(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, ctx, app := openPriced(t, d), t.Context(), usagetest.NewApp()
		_, err := s.Prices.AddPlan(ctx, actor, price.Plan{Name: "tokyo", Currency: "USD", Timezone: "Asia/Tokyo"})
		app.Plan = "tokyo"
		agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(3, 5), 1))
		_, err = s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-03", invoice.FinalizeOptions{})
		agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 2),
			// The evening of 31 January in UTC is February in Tokyo.
			usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 31).Add(6*time.Hour), 3),
			usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(4, 5), 4))
		_, err = s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-04", invoice.FinalizeOptions{})
		agentsvctest.RequireNoErrors(t, err)
		april, err := s.Invoices.FindFinalInvoice(ctx, app.ID, "2026-04")
		agentsvctest.RequireNoErrors(t, err)
		want := map[string]int64{"": 40, "2026-01": 20, "2026-02": 30}
		for _, line := range april.Lines {
			if int64(line.Charge) != want[line.Month] || line.Late != (line.Month != "") {
				t.Errorf("line %+v", line)
			}
			delete(want, line.Month)
		}
		if len(want) > 0 {
			t.Errorf("there are no lines for %v", want)
		}
	})
}
