package budget_test

import (
	"testing"
	"time"

	"stoa/billing/budget/budgettest"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestManyExpiredReservations checks that the many reservations of a dead process are released with one computation of
// each balance, not with one for each reservation.
func TestManyExpiredReservations(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	s := budgettest.Open(t, d)
	budgettest.AddBudget(t, s.Budgets, tenancy.App{}, budgettest.TokenBudget(1<<40))
	var b db.Batch
	b.Exec(nil, `INSERT INTO usage (tenant, task, key, kind, at, agent, owner_iss, owner_sub, key_id, provider, model,
			input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, model_calls, tool_calls, runs, run_micros,
			embeddings, stored_bytes, cost, charge, currency, price_version, unpriced, estimated, recorded_at) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
		SELECT 'globex-id', 't', 'k' || i, 'model', i, 'a', '', '', '', 'p', 'm', 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, '', '', FALSE, FALSE, i FROM n`)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := s.Budgets.RebuildBalances(t.Context()); err != nil {
		t.Fatal(err)
	}
	once := time.Since(began)
	a := s.Budgets.NewGate(budgettest.Acme.ID, "")
	for range 100 {
		if _, err := a.ReserveBudget(t.Context(), budgettest.NewRequest()); err != nil {
			t.Fatal(err)
		}
	}
	expireReservations(t, d)
	began = time.Now()
	if err := s.Budgets.ExpireReservations(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := time.Since(began); all > 40*once+time.Second {
		t.Errorf("it took %v, and one look takes %v", all, once)
	}
	budgettest.CheckBalance(t, s.Budgets, "", "tokens", 40000, 0)
}
