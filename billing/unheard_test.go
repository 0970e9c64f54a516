package billing_test

import (
	"testing"
	"time"

	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestUnheard: calls that began in a process that had not heard of a budget yet, or before it was made, count in it
// without anybody's help.
func TestUnheard(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		one, other := open(t, d), open(t, d)
		meter, allowance := other.Meter(acme.ID, ""), other.Allowance(acme.ID, "")
		free, bounded := ask(), ask()
		r, err := allowance.Reserve(t.Context(), free)
		if err != nil || r != nil {
			t.Fatalf("reserved %+v, %v of no budget", r, err)
		}
		began := time.Now()
		add(t, other, tenancy.App{}, calls(100))
		r, err = allowance.Reserve(t.Context(), bounded)
		if err != nil || r == nil {
			t.Fatal(r, err)
		}
		add(t, one, acme, tokens(1000))

		short := ask()
		if err := meter.Write(t.Context(), billing.FactsOf(short, used(&billing.Reservation{Began: began}, short, 3, 4))); err != nil {
			t.Fatal(err)
		}
		wantStanding(t, one, acme.ID, "tokens", 0, 0)
		if err := billing.SettleDown(one, t.Context()); err != nil {
			t.Fatal(err)
		}
		wantStanding(t, one, acme.ID, "tokens", 7, 0)

		if _, err := other.Budgets(t.Context(), acme.ID); err != nil { // now it hears of it
			t.Fatal(err)
		}
		if err := allowance.Spent(t.Context(), meter, free, used(&billing.Reservation{Began: began}, free, 10, 20)); err != nil {
			t.Fatal(err)
		}
		wantStanding(t, one, acme.ID, "tokens", 37, 0)
		if err := r.Settle(t.Context(), meter, used(r, bounded, 100, 863)); err != nil {
			t.Fatal(err)
		}
		wantStanding(t, one, acme.ID, "tokens", 1000, 0)
		wantStanding(t, one, "", "calls", 3, 0)
		if b, err := one.Find(t.Context(), acme.ID, "tokens"); err != nil || len(b.Passed) != 3 || b.Passed[2].Threshold != 100 || b.Passed[2].At.Before(began) {
			t.Errorf("passed %+v, %v, want three thresholds", b.Passed, err)
		}
		wantRight(t, one)
	})
}
