package billing_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"stoa/agentsvc"
	"stoa/billing"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestReadWhileMade checks that a read of the budgets during a creation does not remove the new one from the cache.
func TestReadWhileMade(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := openBilling(t, d)
		for i := range 20 {
			app := acme
			app.ID = db.ID(fmt.Sprint("app", i))
			var looking sync.WaitGroup
			var made atomic.Bool
			for range 8 {
				looking.Go(func() {
					for !made.Load() {
						if _, err := s.Budgets.ListBudgets(t.Context(), app.ID); err != nil {
							t.Error(err)
						}
					}
				})
			}
			addBudget(t, s, app, callBudget(0))
			made.Store(true)
			looking.Wait()
			var used *agentsvc.BudgetExhaustedError
			if _, err := s.Budgets.NewBudgetGate(app.ID, "").ReserveUsage(t.Context(), newUsageRequest()); !errors.As(err, &used) {
				t.Errorf("app %d: its budget is forgotten: %v", i, err)
			}
		}
	})
}

// TestConcurrentBudgetChanges raises a budget by one concurrently: no change is lost.
func TestConcurrentBudgetChanges(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := openBilling(t, d)
		addBudget(t, s, acme, callBudget(0))
		const changes = 24
		var all sync.WaitGroup
		for range changes {
			all.Go(func() {
				_, err := s.Budgets.UpdateBudget(t.Context(), actor, acme, "calls", func(was billing.Budget) (billing.Budget, error) {
					was.Amount++
					return was, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if b, err := s.Budgets.FindBudget(t.Context(), acme.ID, "calls"); err != nil || b.Amount != changes {
			t.Errorf("the budget is %d after %d changes, error %v", b.Amount, changes, err)
		}
	})
}
