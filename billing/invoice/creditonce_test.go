package invoice_test

import (
	"testing"

	"stoa/agentsvc/agentsvctest"

	"stoa/agentsvc"
	"stoa/billing/invoice"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestCreditOnce checks that an actor is granted one credit for an idempotency key, also by concurrent requests, and
// that a different request with the key is refused.
func TestCreditOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app := openPriced(t, d), usagetest.NewApp()
		ids := make(chan string, 8)
		for range cap(ids) {
			go func() {
				c, err := s.Invoices.AddCredit(t.Context(), actor, app, invoice.Credit{Amount: 5, Key: "k"})
				if err != nil {
					t.Error(err)
				}
				ids <- c.ID
			}()
		}
		first := <-ids
		for range cap(ids) - 1 {
			if id := <-ids; id != first {
				t.Errorf("credits %s and %s under one key", first, id)
			}
		}
		_, err := s.Invoices.AddCredit(t.Context(), actor, app, invoice.Credit{Amount: 6, Key: "k"})
		agentsvctest.CheckError(t, err, agentsvc.ErrKeyReused)
		_, err = s.Invoices.AddCredit(t.Context(), audit.Actor{Name: "another"}, app, invoice.Credit{Amount: 6, Key: "k"})
		agentsvctest.RequireNoErrors(t, err)
		_, err = s.Invoices.AddCredit(t.Context(), actor, app, invoice.Credit{Amount: 5})
		agentsvctest.RequireNoErrors(t, err)
		_, err = s.Invoices.AddCredit(t.Context(), actor, app, invoice.Credit{Amount: 5})
		agentsvctest.RequireNoErrors(t, err)
		all, err := s.Invoices.ListCredits(t.Context(), app)
		agentsvctest.RequireNoErrors(t, err)
		if len(all) != 4 {
			t.Errorf("there are %d credits, want 4", len(all))
		}
	})
}
