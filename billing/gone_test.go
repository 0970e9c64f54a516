package billing_test

import (
	"testing"

	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestGone: what an app has used of a budget of the platform is used although the app is deleted, and what it had reserved is
// free again, whether or not its calls still end.
func TestGone(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		add(t, s, tenancy.App{}, calls(9))
		a, m := s.Allowance(acme.ID, ""), s.Meter(acme.ID, "")
		reserve := func() (*billing.Reservation, billing.Ask) {
			t.Helper()
			x := ask()
			r, err := a.Reserve(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			return r, x
		}
		for range 2 {
			r, x := reserve()
			if err := r.Settle(t.Context(), m, used(r, x, 1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		late, _ := reserve()
		reserve() // of a process that dies
		wantStanding(t, s, "", "calls", 2, 2)
		for range 2 {
			if err := s.Close(t.Context(), actor, acme); err != nil {
				t.Fatal(err)
			}
			wantStanding(t, s, "", "calls", 2, 0)
		}
		other := s.Meter("globex-id", "")
		y := ask()
		r, err := s.Allowance("globex-id", "").Reserve(t.Context(), y)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Settle(t.Context(), other, used(r, y, 1, 1)); err != nil {
			t.Fatal(err)
		}
		var wipe db.Batch
		wipe.Exec(nil, `DELETE FROM usage WHERE tenant = $1`, string(acme.ID))
		if err := d.Platform().Do(t.Context(), &wipe); err != nil {
			t.Fatal(err)
		}
		if err := late.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantRight(t, s)
		wantStanding(t, s, "", "calls", 3, 0)
		if err := s.DeleteBudget(t.Context(), actor, tenancy.App{}, "calls"); err != nil {
			t.Fatal(err)
		}
	})
}
