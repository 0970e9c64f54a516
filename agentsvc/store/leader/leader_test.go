package leader_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc/store/leader"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLease: one holder at a time, until its lease expires or is released.
func TestLease(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		one, two := leader.New(d, "sweep", "one"), leader.New(d, "sweep", "two")
		acquire := func(who *leader.Lease, duration time.Duration, want bool) {
			t.Helper()
			if got, err := who.Acquire(t.Context(), duration); err != nil || got != want {
				t.Errorf("%v %v, want %v", got, err, want)
			}
		}
		acquire(one, time.Hour, true)
		acquire(two, time.Hour, false)
		acquire(one, time.Hour, true)
		if err := two.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		acquire(two, time.Hour, false)
		if err := one.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		acquire(two, -time.Second, true)
		acquire(one, time.Hour, true)
	})
}
