package billing_test

import (
	"testing"

	"stoa/billing"
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
		addBudget(t, s, tenancy.App{}, callBudget(9))
		a, m := s.Budgets.NewBudgetGate(acme.ID, ""), s.Usage.NewMeter(acme.ID, "")
		reserve := func() (*billing.Reservation, billing.UsageRequest) {
			t.Helper()
			x := newUsageRequest()
			r, err := a.ReserveUsage(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			return r, x
		}
		for range 2 {
			r, x := reserve()
			if err := r.SettleUsage(t.Context(), m, usageOf(r, x, 1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		late, _ := reserve()
		reserve() // as in a process that dies
		wantBalance(t, s, "", "calls", 2, 2)
		for range 2 {
			if err := s.CloseApp(t.Context(), actor, acme); err != nil {
				t.Fatal(err)
			}
			wantBalance(t, s, "", "calls", 2, 0)
		}
		other := s.Usage.NewMeter("globex-id", "")
		y := newUsageRequest()
		r, err := s.Budgets.NewBudgetGate("globex-id", "").ReserveUsage(t.Context(), y)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.SettleUsage(t.Context(), other, usageOf(r, y, 1, 1)); err != nil {
			t.Fatal(err)
		}
		var wipe db.Batch
		wipe.Exec(nil, `DELETE FROM usage WHERE tenant = $1`, string(acme.ID))
		if err := d.Platform().Do(t.Context(), &wipe); err != nil {
			t.Fatal(err)
		}
		if err := late.ReleaseUsage(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantConsistent(t, s)
		wantBalance(t, s, "", "calls", 3, 0)
		if err := s.Budgets.DeleteBudget(t.Context(), actor, tenancy.App{}, "calls"); err != nil {
			t.Fatal(err)
		}
	})
}
