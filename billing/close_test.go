package billing_test

import (
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/agentsvctest"

	"github.com/google/go-cmp/cmp"

	"stoa/billing/amount"
	"stoa/billing/invoice"
	"stoa/billing/ledger"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestClose deletes an app: its usage is invoiced, and the invoices remain readable.
func TestClose(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := openPriced(t, d), usagetest.NewApp(), t.Context()
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 1), usagetest.RecordCalls(ctx, s.Usage, app, time.Now(), 2))
		_, err := s.Invoices.AddCredit(ctx, actor, app, invoice.Credit{Amount: 100})
		agentsvctest.RequireNoErrors(t, err, s.CloseApp(ctx, actor, app), s.CloseApp(ctx, actor, app))
		balances, err := s.Ledgers.ListAccountBalances(ctx, app.ID)
		agentsvctest.RequireNoErrors(t, err)
		want := map[string]map[ledger.Account]amount.Money{"USD": {
			ledger.Receivable: 0, ledger.Revenue: -30, ledger.Unspent: 0, ledger.Promotion: 30, ledger.Expense: 12, ledger.Payable: -12,
		}}
		if diff := cmp.Diff(want, balances); diff != "" {
			t.Errorf("balances (-want +got):\n%s", diff)
		}
		for _, name := range []string{app.Name, string(app.ID)} {
			found, err := s.Ledgers.FindFormerApp(ctx, name)
			if agentsvctest.RequireNoErrors(t, err); found.ID != app.ID || found.Name != app.Name {
				t.Errorf("%s is %+v", name, found)
			}
		}
		_, err = s.Ledgers.FindFormerApp(ctx, "nobody")
		agentsvctest.CheckError(t, err, agentsvc.CodeNotFound)
		if all, err := s.Invoices.ListFinalInvoices(ctx, app.ID); err != nil || len(all) != 2 {
			t.Errorf("%d invoices, error %v", len(all), err)
		}
		if all, err := s.Invoices.ListFinalInvoices(ctx, "another"); err != nil || len(all) != 0 {
			t.Errorf("another app has %d invoices, error %v", len(all), err)
		}
	})
}
