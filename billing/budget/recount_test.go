package budget_test

import (
	"testing"
	"time"

	"stoa/billing/budget"
	"stoa/billing/budget/budgettest"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestUncountedUsage checks that a budget counts calls that began before it was created, or in a process that did not
// know it yet.
func TestUncountedUsage(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		one, other := budgettest.Open(t, d), budgettest.Open(t, d)
		meter, allowance := other.Usage.NewMeter(budgettest.Acme.ID, ""), other.Budgets.NewGate(budgettest.Acme.ID, "")
		free, bounded := budgettest.NewRequest(), budgettest.NewRequest()
		r, err := allowance.ReserveBudget(t.Context(), free)
		if err != nil || r != nil {
			t.Fatalf("reserved %+v, %v of no budget", r, err)
		}
		began := time.Now()
		budgettest.AddBudget(t, other.Budgets, tenancy.App{}, budgettest.CallBudget(100))
		r, err = allowance.ReserveBudget(t.Context(), bounded)
		if err != nil || r == nil {
			t.Fatal(r, err)
		}
		budgettest.AddBudget(t, one.Budgets, budgettest.Acme, budgettest.TokenBudget(1000))

		short := budgettest.NewRequest()
		if err := meter.WriteUsage(t.Context(), budget.RunFactsOf(short, budgettest.UsageOf(&budget.CostReservation{Began: began}, short, 3, 4))); err != nil {
			t.Fatal(err)
		}
		budgettest.CheckBalance(t, one.Budgets, budgettest.Acme.ID, "tokens", 0, 0)
		if err := one.Budgets.RecountNewBudgets(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		budgettest.CheckBalance(t, one.Budgets, budgettest.Acme.ID, "tokens", 7, 0)

		if _, err := other.Budgets.ListBudgets(t.Context(), budgettest.Acme.ID); err != nil { // now the process reads the budget
			t.Fatal(err)
		}
		if err := allowance.RecordUnreserved(t.Context(), meter, free, budgettest.UsageOf(&budget.CostReservation{Began: began}, free, 10, 20)); err != nil {
			t.Fatal(err)
		}
		budgettest.CheckBalance(t, one.Budgets, budgettest.Acme.ID, "tokens", 37, 0)
		if err := r.SettleReservation(t.Context(), meter, budgettest.UsageOf(r, bounded, 100, 863)); err != nil {
			t.Fatal(err)
		}
		budgettest.CheckBalance(t, one.Budgets, budgettest.Acme.ID, "tokens", 1000, 0)
		budgettest.CheckBalance(t, one.Budgets, "", "calls", 3, 0)
		if b, err := one.Budgets.FindBudget(t.Context(), budgettest.Acme.ID, "tokens"); err != nil || len(b.PassedThresholds) != 3 || b.PassedThresholds[2].Threshold != 100 || b.PassedThresholds[2].At.Before(began) {
			t.Errorf("passed %+v, %v, want three thresholds", b.PassedThresholds, err)
		}
		budgettest.CheckConsistent(t, one.Budgets)
	})
}
