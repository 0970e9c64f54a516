package budget_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/billing/budget"
	"stoa/billing/budget/budgettest"
	"stoa/billing/calendar"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestTightestBudgets checks that the budgets with the smallest part left come first, of the current windows only, and
// no more than asked for.
func TestTightestBudgets(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		if list, err := budget.ListTightest(t.Context(), s.Budgets, 5); err != nil || len(list) > 0 {
			t.Errorf("without budgets: %v, %v", list, err)
		}
		app := usagetest.InsertApp(t, d, "{}")
		add := func(app tenancy.App, name string, amount int64, window calendar.Window, zone string, committed, reserved int64, windowsAgo int) {
			t.Helper()
			budgettest.AddBudget(t, s.Budgets, app, budget.Budget{Name: name, Unit: budget.InCalls, Amount: amount, Window: window, Zone: zone})
			since, _ := window.Bounds(time.Now(), loadLocation(t, zone))
			for range windowsAgo {
				since, _ = window.Bounds(since.Add(-time.Second), loadLocation(t, zone))
			}
			var b db.Batch
			b.Exec(nil, `INSERT INTO budget_balance (tenant, budget, since, committed, reserved) SELECT tenant, id, $3, $4, $5 FROM budget WHERE tenant = $1 AND name = $2
				ON CONFLICT (tenant, budget, since) DO UPDATE SET committed = excluded.committed, reserved = excluded.reserved`,
				string(app.ID), name, since.UnixMicro(), committed, reserved)
			if err := d.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
		add(app, "half", 10, calendar.Month, "UTC", 4, 1, 0)
		add(app, "exceeded", 10, calendar.Month, "Europe/Berlin", 15, 0, 0)
		add(app, "little", 1000, calendar.Month, "UTC", 1, 0, 0)
		add(app, "last-month", 10, calendar.Month, "UTC", 10, 0, 1)
		add(app, "nothing", 0, calendar.Month, "UTC", 0, 0, 0)
		add(tenancy.App{}, "all", 4, calendar.Total, "UTC", 3, 0, 0)
		want := []budget.TightBudget{{App: app.Name, Name: "exceeded"}, {Name: "all", Remaining: .25}, {App: app.Name, Name: "half", Remaining: .5}, {App: app.Name, Name: "little", Remaining: .999}}
		for _, n := range []int{2, 4, 9} {
			got, err := budget.ListTightest(t.Context(), s.Budgets, n)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want[:min(n, 4)], got); diff != "" {
				t.Errorf("%d budgets (-want +got):\n%s", n, diff)
			}
		}
	})
}
