package billing_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestClose deletes an app: its usage is invoiced, and the invoices remain readable.
func TestClose(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := openPriced(t, d), newApp(), t.Context()
		requireNoErrors(t, recordCalls(ctx, s, app, dateIn2026(1, 5), 1), recordCalls(ctx, s, app, time.Now(), 2))
		_, err := s.Invoices.AddCredit(ctx, actor, app, billing.Credit{Amount: 100})
		requireNoErrors(t, err, s.CloseApp(ctx, actor, app), s.CloseApp(ctx, actor, app))
		balances, err := s.Ledgers.ListAccountBalances(ctx, app.ID)
		requireNoErrors(t, err)
		want := map[string]map[billing.Account]billing.Money{"USD": {
			billing.Receivable: 0, billing.Revenue: -30, billing.Unspent: 0, billing.Promotion: 30, billing.Expense: 12, billing.Payable: -12,
		}}
		if diff := cmp.Diff(want, balances); diff != "" {
			t.Errorf("balances (-want +got):\n%s", diff)
		}
		for _, name := range []string{app.Name, string(app.ID)} {
			found, err := s.Ledgers.FindFormerApp(ctx, name)
			if requireNoErrors(t, err); found.ID != app.ID || found.Name != app.Name {
				t.Errorf("%s is %+v", name, found)
			}
		}
		_, err = s.Ledgers.FindFormerApp(ctx, "nobody")
		wantErr(t, err, tenancy.ErrNotFound)
		if all, err := s.Invoices.ListFinalInvoices(ctx, app.ID); err != nil || len(all) != 2 {
			t.Errorf("%d invoices, error %v", len(all), err)
		}
		if all, err := s.Invoices.ListFinalInvoices(ctx, "another"); err != nil || len(all) != 0 {
			t.Errorf("another app has %d invoices, error %v", len(all), err)
		}
	})
}
