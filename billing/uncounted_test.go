package billing_test

import (
	"testing"
	"time"

	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestUncountedUsage checks that a budget counts calls that began before it was created, or in a process that did not
// know it yet.
func TestUncountedUsage(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		one, other := openBilling(t, d), openBilling(t, d)
		meter, allowance := other.Usage.NewMeter(acme.ID, ""), other.Budgets.NewBudgetGate(acme.ID, "")
		free, bounded := newUsageRequest(), newUsageRequest()
		r, err := allowance.ReserveUsage(t.Context(), free)
		if err != nil || r != nil {
			t.Fatalf("reserved %+v, %v of no budget", r, err)
		}
		began := time.Now()
		addBudget(t, other, tenancy.App{}, callBudget(100))
		r, err = allowance.ReserveUsage(t.Context(), bounded)
		if err != nil || r == nil {
			t.Fatal(r, err)
		}
		addBudget(t, one, acme, tokenBudget(1000))

		short := newUsageRequest()
		if err := meter.WriteUsage(t.Context(), billing.RunFactsOf(short, usageOf(&billing.Reservation{Began: began}, short, 3, 4))); err != nil {
			t.Fatal(err)
		}
		wantBalance(t, one, acme.ID, "tokens", 0, 0)
		if err := one.Budgets.RecountNewBudgets(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantBalance(t, one, acme.ID, "tokens", 7, 0)

		if _, err := other.Budgets.ListBudgets(t.Context(), acme.ID); err != nil { // now the process reads the budget
			t.Fatal(err)
		}
		if err := allowance.RecordUnreserved(t.Context(), meter, free, usageOf(&billing.Reservation{Began: began}, free, 10, 20)); err != nil {
			t.Fatal(err)
		}
		wantBalance(t, one, acme.ID, "tokens", 37, 0)
		if err := r.SettleUsage(t.Context(), meter, usageOf(r, bounded, 100, 863)); err != nil {
			t.Fatal(err)
		}
		wantBalance(t, one, acme.ID, "tokens", 1000, 0)
		wantBalance(t, one, "", "calls", 3, 0)
		if b, err := one.Budgets.FindBudget(t.Context(), acme.ID, "tokens"); err != nil || len(b.PassedThresholds) != 3 || b.PassedThresholds[2].Threshold != 100 || b.PassedThresholds[2].At.Before(began) {
			t.Errorf("passed %+v, %v, want three thresholds", b.PassedThresholds, err)
		}
		wantConsistent(t, one)
	})
}
