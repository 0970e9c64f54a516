package budget_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"stoa/agentsvc/agentsvctest"

	"stoa/agentsvc"
	"stoa/billing/budget/budgettest"
	"stoa/billing/usage"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestPendingUsage checks that usage that cannot be written is queued up to a bound for each app, and is written once:
// with the balances that count it, and without a row that the database rejects.
func TestPendingUsage(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.OpenPriced(t, d)
		budgettest.AddBudget(t, s.Budgets, budgettest.Acme, budgettest.TokenBudget(1_000_000_000))
		budgettest.AddBudget(t, s.Budgets, tenancy.App{}, budgettest.TokenBudget(1_000_000_000))
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		facts := func(task agentsvc.TaskID, agent string, calls int) usage.RunFacts {
			f := usage.RunFacts{Task: task, Turn: 1, Epoch: 1, Agent: agent, Owner: budgettest.Ana}
			for i := range calls {
				u := agentsvc.Usage{Call: fmt.Sprint(task, i), StartedAt: time.Now().Add(-time.Minute), Provider: "p", Model: "m", InputTokens: 2, OutputTokens: 1}
				f.Events = append(f.Events, agentsvc.Event{Usage: &u})
			}
			return f
		}
		waiting := func(want, wantLost int64) {
			t.Helper()
			if n, lost := s.Usage.PendingUsage(); n != want || lost != wantLost {
				t.Errorf("%d rows wait and %d are lost, want %d and %d", n, lost, want, wantLost)
			}
		}
		count := func(app db.ID) (n int64) {
			t.Helper()
			var b db.Batch
			b.Query(func(r db.Row) error { return r.Scan(&n) }, `SELECT COUNT(*) FROM usage WHERE tenant = $1`, string(app))
			agentsvctest.RequireNoErrors(t, d.Platform().Do(t.Context(), &b))
			return n
		}
		other := usagetest.NewApp()
		agentsvctest.RequireNoErrors(t, s.Usage.NewMeter(budgettest.Acme.ID, "").WriteUsage(t.Context(), facts("t", "a", 3))) // these are written already
		agentsvctest.RequireNoErrors(t, s.Usage.NewMeter(budgettest.Acme.ID, "").WriteUsage(canceled, facts("t", "a", 10)), s.Usage.NewMeter(other.ID, "").WriteUsage(canceled, facts("t", "a", 4)))
		waiting(14, 0)
		if err := s.Usage.WritePending(canceled); err == nil {
			t.Error("rows are written without a database")
		}
		waiting(14, 0)
		agentsvctest.RequireNoErrors(t, s.Usage.WritePending(t.Context()))
		waiting(0, 0)
		if count(budgettest.Acme.ID) != 10 || count(other.ID) != 4 {
			t.Errorf("there are %d and %d rows, want 10 and 4", count(budgettest.Acme.ID), count(other.ID))
		}
		for app, want := range map[db.ID]int64{budgettest.Acme.ID: 30, "": 42} {
			if got := budgettest.FindBalance(t, s.Budgets, app, "tokens"); got != [2]int64{want, 0} {
				t.Errorf("the budget of %q stands at %v, want %d", app, got, want)
			}
		}

		r, err := s.Budgets.NewGate(budgettest.Acme.ID, "").ReserveBudget(t.Context(), budgettest.NewRequest())
		agentsvctest.RequireNoErrors(t, err)
		a := budgettest.NewRequest()
		if err := r.SettleReservation(canceled, s.Usage.NewMeter(budgettest.Acme.ID, ""), budgettest.UsageOf(r, a, 5, 6)); err == nil {
			t.Error("a call is settled without a database")
		}
		waiting(1, 0)
		agentsvctest.RequireNoErrors(t, s.Usage.WritePending(t.Context()))
		if count(budgettest.Acme.ID) != 11 {
			t.Errorf("there are %d rows, want 11", count(budgettest.Acme.ID))
		}

		agentsvctest.RequireNoErrors(t, s.Usage.NewMeter(other.ID, "").WriteUsage(canceled, facts("u", "a", 5_003)))
		agentsvctest.RequireNoErrors(t, s.Usage.NewMeter(budgettest.Acme.ID, "").WriteUsage(canceled, facts("u", "a", 1)))
		waiting(5_001, 3)
		agentsvctest.RequireNoErrors(t, s.Usage.WritePending(t.Context()))
		waiting(0, 3)
		if count(budgettest.Acme.ID) != 12 || count(other.ID) != 5_004 {
			t.Errorf("there are %d and %d rows, want 12 and 5004", count(budgettest.Acme.ID), count(other.ID))
		}
		if d.Engine() != db.Postgres {
			return // SQLite rejects no text
		}
		agentsvctest.RequireNoErrors(t, s.Usage.NewMeter(budgettest.Acme.ID, "").WriteUsage(canceled, facts("v", "a", 2)), s.Usage.NewMeter(budgettest.Acme.ID, "").WriteUsage(canceled, facts("w", "\x00", 1)),
			s.Usage.NewMeter(budgettest.Acme.ID, "").WriteUsage(canceled, facts("x", "a", 2)))
		agentsvctest.RequireNoErrors(t, s.Usage.WritePending(t.Context()))
		waiting(0, 4)
		if count(budgettest.Acme.ID) != 16 {
			t.Errorf("there are %d rows, want 16", count(budgettest.Acme.ID))
		}
	})
}
