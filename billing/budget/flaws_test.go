package budget_test

import (
	"testing"

	"stoa/billing/budget"
	"stoa/billing/budget/budgettest"
	"stoa/billing/calendar"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestCountFlaws checks that balances are counted that are negative or reserve something that no call has reserved, and no
// others.
func TestCountFlaws(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		app := usagetest.InsertApp(t, d, "{}")
		budgettest.AddBudget(t, s.Budgets, app, budget.Budget{Name: "cap", Unit: budget.InCalls, Amount: 10, Window: calendar.Total, Zone: "UTC"})
		for _, tt := range []struct {
			name                string
			committed, reserved int64
			lines               []int64
			want                int64
		}{
			{"used", 4, 0, nil, 0},
			{"reserved by two calls", 4, 3, []int64{1, 2}, 0},
			{"reserved by no call", 4, 3, nil, 1},
			{"reserved more than the call", 4, 3, []int64{1}, 1},
			{"reserved less than the call", 4, 0, []int64{1}, 1},
			{"negative", -1, 0, nil, 1},
		} {
			var b db.Batch
			b.Exec(nil, `DELETE FROM reservation_line WHERE tenant = $1`, string(app.ID))
			b.Exec(nil, `INSERT INTO budget_balance (tenant, budget, since, committed, reserved) SELECT tenant, id, 0, $2, $3 FROM budget WHERE tenant = $1
				ON CONFLICT (tenant, budget, since) DO UPDATE SET committed = excluded.committed, reserved = excluded.reserved`, string(app.ID), tt.committed, tt.reserved)
			for i, amount := range tt.lines {
				b.Exec(nil, `INSERT INTO reservation_line (tenant, call, owner, budget, since, amount)
					SELECT tenant, CAST($2 AS TEXT), tenant, id, 0, CAST($3 AS BIGINT) FROM budget WHERE tenant = $1`, string(app.ID), string(rune('a'+i)), amount)
			}
			if err := d.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			if got, err := budget.CountFlaws(t.Context(), d); err != nil || got != tt.want {
				t.Errorf("%s: counted %d (%v), want %d", tt.name, got, err, tt.want)
			}
		}
	})
}
