package billing_test

import (
	"testing"

	"stoa/billing/budget"
	"stoa/billing/budget/budgettest"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestArchiveUsage checks that usage of a deleted app still counts in the platform's budgets, and that its reservations
// are released, whether or not its calls still end.
func TestArchiveUsage(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := openBilling(t, d)
		budgettest.AddBudget(t, s.Budgets, tenancy.App{}, budgettest.CallBudget(9))
		a, m := s.Budgets.NewGate(budgettest.Acme.ID, ""), s.Usage.NewMeter(budgettest.Acme.ID, "")
		reserve := func() (*budget.CostReservation, budget.Request) {
			t.Helper()
			x := budgettest.NewRequest()
			r, err := a.ReserveBudget(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			return r, x
		}
		for range 2 {
			r, x := reserve()
			if err := r.SettleReservation(t.Context(), m, budgettest.UsageOf(r, x, 1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		late, _ := reserve()
		reserve() // as in a process that dies
		budgettest.CheckBalance(t, s.Budgets, "", "calls", 2, 2)
		for range 2 {
			if err := s.CloseApp(t.Context(), actor, budgettest.Acme); err != nil {
				t.Fatal(err)
			}
			budgettest.CheckBalance(t, s.Budgets, "", "calls", 2, 0)
		}
		other := s.Usage.NewMeter("globex-id", "")
		y := budgettest.NewRequest()
		r, err := s.Budgets.NewGate("globex-id", "").ReserveBudget(t.Context(), y)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.SettleReservation(t.Context(), other, budgettest.UsageOf(r, y, 1, 1)); err != nil {
			t.Fatal(err)
		}
		var wipe db.Batch
		wipe.Exec(nil, `DELETE FROM usage WHERE tenant = $1`, string(budgettest.Acme.ID))
		if err := d.Platform().Do(t.Context(), &wipe); err != nil {
			t.Fatal(err)
		}
		if err := late.ReleaseReservation(t.Context()); err != nil {
			t.Fatal(err)
		}
		budgettest.CheckConsistent(t, s.Budgets)
		budgettest.CheckBalance(t, s.Budgets, "", "calls", 3, 0)
		if err := s.Budgets.DeleteBudget(t.Context(), actor, tenancy.App{}, "calls"); err != nil {
			t.Fatal(err)
		}
	})
}
