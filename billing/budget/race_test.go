package budget_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"stoa/agentsvc"
	"stoa/billing/budget"
	"stoa/billing/budget/budgettest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestReadWhileMade checks that a read of the budgets during a creation does not remove the new one from the cache.
func TestReadWhileMade(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		for i := range 20 {
			app := budgettest.Acme
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
			budgettest.AddBudget(t, s.Budgets, app, budgettest.CallBudget(0))
			made.Store(true)
			looking.Wait()
			if _, err := s.Budgets.NewGate(app.ID, "").ReserveBudget(t.Context(), budgettest.NewRequest()); agentsvc.DetailOf[*agentsvc.ExhaustedBudget](err) == nil {
				t.Errorf("app %d: its budget is forgotten: %v", i, err)
			}
		}
	})
}

// TestConcurrentBudgetChanges raises a budget by one concurrently: no change is lost.
func TestConcurrentBudgetChanges(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		budgettest.AddBudget(t, s.Budgets, budgettest.Acme, budgettest.CallBudget(0))
		const changes = 24
		var all sync.WaitGroup
		for range changes {
			all.Go(func() {
				_, err := s.Budgets.UpdateBudget(t.Context(), actor, budgettest.Acme, "calls", func(was budget.Budget) (budget.Budget, error) {
					was.Amount++
					return was, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if b, err := s.Budgets.FindBudget(t.Context(), budgettest.Acme.ID, "calls"); err != nil || b.Amount != changes {
			t.Errorf("the budget is %d after %d changes, error %v", b.Amount, changes, err)
		}
	})
}
