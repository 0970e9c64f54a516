package invoice_test

import (
	"testing"
	"time"

	"stoa/agentsvc/agentsvctest"

	"github.com/google/go-cmp/cmp"

	"stoa/billing/invoice"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestGrantCreditCallerGone checks that a credit that was granted is returned although the caller's context has ended:
// after an error the caller would repeat the request.
func TestGrantCreditCallerGone(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app := openPriced(t, d), usagetest.NewApp()
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(t.Context(), s.Usage, app, time.Now(), 2))
		ctx := usagetest.ContextCanceledAfterTx(t)
		made, err := s.Invoices.AddCredit(ctx, actor, app, invoice.Credit{Amount: 100, Expires: time.Now().Add(time.Hour), Note: "welcome"})
		if ctx.Err() == nil {
			t.Fatal("the caller is still there")
		}
		agentsvctest.RequireNoErrors(t, err)
		want, err := s.Invoices.ListCredits(t.Context(), app)
		agentsvctest.RequireNoErrors(t, err)
		if diff := cmp.Diff(want, []invoice.Credit{made}); diff != "" || made.Pending != 20 || made.Status != invoice.CreditOpen {
			t.Errorf("granted (-want +got):\n%s\n%+v", diff, made)
		}
	})
}
