package invoice_test

import (
	"sync"
	"testing"
	"time"

	"stoa/agentsvc/agentsvctest"

	"stoa/billing/invoice"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestFinalizeDue checks that a month becomes final after the grace period, once with any number of processes, and that
// late usage is on the next invoice.
func TestFinalizeDue(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		app := tenancy.App{ID: tenancy.DefaultID, Name: tenancy.DefaultName}
		off := openPriced(t, d)
		now := time.Now().UTC()
		month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(t.Context(), off.Usage, app, month.AddDate(0, -1, 3), 2))
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(t.Context(), off.Usage, app, month.AddDate(0, -2, 3), 1))
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(t.Context(), off.Usage, app, now, 1))
		finals := func() (list []invoice.Invoice) {
			t.Helper()
			list, err := off.Invoices.ListFinalInvoices(t.Context(), app.ID)
			agentsvctest.RequireNoErrors(t, err)
			return list
		}
		late := func(grace time.Duration) *services {
			t.Helper()
			return openWith(t, d, invoice.Options{FinalizeGrace: grace})
		}
		agentsvctest.RequireNoErrors(t, off.Invoices.FinalizeDueInvoices(t.Context()))
		agentsvctest.RequireNoErrors(t, late(time.Since(month)+time.Hour).Invoices.FinalizeDueInvoices(t.Context()))
		if list := finals(); len(list) != 1 || list[0].ID != month.AddDate(0, -2, 0).Format("2006-01") {
			t.Fatalf("final are %+v, want the month before last alone", list)
		}
		var all sync.WaitGroup
		for range 4 {
			s := late(time.Nanosecond)
			all.Go(func() {
				if err := s.Invoices.FinalizeDueInvoices(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(t.Context(), off.Usage, app, month.AddDate(0, -1, 5), 5))
		agentsvctest.RequireNoErrors(t, late(time.Nanosecond).Invoices.FinalizeDueInvoices(t.Context()))
		list := finals()
		if len(list) != 2 || list[0].Number != 2 || list[0].Totals[0].Charge != 20 {
			t.Fatalf("final are %+v, want two, and 20 charged for the last month", list)
		}
		draft, err := off.Invoices.FindInvoice(t.Context(), app, month.Format("2006-01"))
		if err != nil || draft.Status != invoice.Draft || draft.Totals[0].Charge != 60 {
			t.Errorf("the draft of this month is %+v, %v, want one that charges 60", draft, err)
		}
	})
}
