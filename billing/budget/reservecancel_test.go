package budget_test

import (
	"context"
	"errors"
	"testing"

	"stoa/billing/budget/budgettest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestReserveCanceled checks that a caller can stop waiting for a reservation while another transaction holds the
// balance's lock. The write may still take effect.
func TestReserveCanceled(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	s := budgettest.Open(t, d)
	budgettest.AddBudget(t, s.Budgets, budgettest.Acme, budgettest.CallBudget(5))
	if _, err := s.Budgets.NewGate(budgettest.Acme.ID, "").ReserveBudget(t.Context(), budgettest.NewRequest()); err != nil {
		t.Fatal(err)
	}
	reserved, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- d.Platform().RunTx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE budget_balance SET reserved = reserved`)
			close(reserved)
			<-release
			return err
		})
	}()
	<-reserved
	ctx, giveUp := context.WithCancel(t.Context())
	given := make(chan error, 1)
	go func() {
		_, err := s.Budgets.NewGate(budgettest.Acme.ID, "").ReserveBudget(ctx, budgettest.NewRequest())
		given <- err
	}()
	dbtest.WaitUntil(t, "the reservation waits for the budget", func() bool { return dbtest.CountLockWaiters(t, d) > 0 })
	giveUp()
	err := <-given
	close(release)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("given up with %v", err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	dbtest.WaitUntil(t, "the write takes effect", func() bool {
		return budgettest.FindBalance(t, s.Budgets, budgettest.Acme.ID, "calls") == [2]int64{0, 2}
	})
	budgettest.CheckConsistent(t, s.Budgets)
}
