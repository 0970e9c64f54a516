package budget_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

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
	var waits sync.WaitGroup
	waits.Go(func() {
		defer giveUp()
		for began := time.Now(); dbtest.CountLockWaiters(t, d) == 0; time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > 20*time.Second {
				t.Error("the reservation does not wait for the budget")
				return
			}
		}
	})
	_, err := s.Budgets.NewGate(budgettest.Acme.ID, "").ReserveBudget(ctx, budgettest.NewRequest())
	waits.Wait()
	close(release)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("given up with %v", err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); budgettest.FindBalance(t, s.Budgets, budgettest.Acme.ID, "calls") != [2]int64{0, 2}; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("the budget stands at %v", budgettest.FindBalance(t, s.Budgets, budgettest.Acme.ID, "calls"))
		}
	}
	budgettest.CheckConsistent(t, s.Budgets)
}
