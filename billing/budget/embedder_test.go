package budget_test

import (
	"errors"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/billing/budget"
	"stoa/billing/budget/budgettest"
	"stoa/billing/calendar"
	"stoa/billing/price"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestEmbedder checks what a call of an embedder reserves and uses: tokens and money, but no call of a model.
func TestEmbedder(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		version := price.Version{Version: "one", Currency: "USD", Effective: january, Items: []price.Item{
			usagetest.ChargeItem("embeddings", "p", "e", 1, 7), usagetest.ChargeItem("input_tokens", "", "", 1, 1000), usagetest.ChargeItem("model_calls", "", "", 1, 1000),
		}}
		if _, err := s.Prices.AddVersion(t.Context(), actor, version); err != nil {
			t.Fatal(err)
		}
		for _, b := range []budget.Budget{
			{Name: "money", Unit: budget.InMoney, Amount: 100, Window: calendar.Total, Hard: true},
			{Name: "tokens", Unit: budget.InTokens, Amount: 50, Window: calendar.Total, Hard: true},
			{Name: "calls", Unit: budget.InCalls, Amount: 1, Window: calendar.Total, Hard: true},
			{Name: "agent", Scope: budget.Scope{Agent: "a"}, Unit: budget.InTokens, Amount: 1, Window: calendar.Total, Hard: true},
		} {
			budgettest.AddBudget(t, s.Budgets, budgettest.Acme, b)
		}
		gate, m := s.Budgets.NewGate(budgettest.Acme.ID, ""), s.Usage.NewMeter(budgettest.Acme.ID, "")
		newRequest := func(tokens, texts int64) budget.Request {
			return budget.Request{Call: agentsvc.NewID(), Provider: "p", Model: "e", Input: tokens, Texts: texts}
		}
		reserve := func(x budget.Request) *budget.CostReservation {
			t.Helper()
			r, err := gate.ReserveBudget(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		usageOf := func(x budget.Request, at time.Time) agentsvc.Usage {
			return agentsvc.Usage{Call: x.Call, StartedAt: at, Provider: x.Provider, Model: x.Model, InputTokens: x.Input}
		}
		for range 2 {
			x := newRequest(20, 3)
			r := reserve(x)
			budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "calls", 0, 0)
			if err := r.SettleReservation(t.Context(), m, usageOf(x, r.Began)); err != nil {
				t.Fatal(err)
			}
		}
		if err := reserve(newRequest(10, 1)).ReleaseReservation(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]int64{"money": 42, "tokens": 40, "calls": 0, "agent": 0} {
			budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, name, want, 0)
		}
		budgettest.CheckConsistent(t, s.Budgets)
		for _, c := range []struct {
			tokens, texts int64
			name          string
		}{{11, 1, "tokens"}, {1, 9, "money"}} {
			_, err := gate.ReserveBudget(t.Context(), newRequest(c.tokens, c.texts))
			if x := agentsvc.DetailOf[*agentsvc.ExhaustedBudget](err); x == nil || x.Budget != c.name {
				t.Errorf("%+v: %v", c, err)
			}
		}
		x := newRequest(1, 1)
		x.Model = "free"
		if _, err := gate.ReserveBudget(t.Context(), x); !errors.Is(err, agentsvc.CodeInvalid) {
			t.Errorf("an embedder without a price: %v", err)
		}
		x.IsLocal = true
		if err := reserve(x).ReleaseReservation(t.Context()); err != nil {
			t.Error(err)
		}
		// A budget that is made during the call counts it.
		x = newRequest(5, 1)
		r := reserve(x)
		budgettest.AddBudget(t, s.Budgets, budgettest.Acme, budget.Budget{Name: "late", Unit: budget.InTokens, Amount: 50, Window: calendar.Total})
		if err := r.SettleReservation(t.Context(), m, usageOf(x, r.Began)); err != nil {
			t.Fatal(err)
		}
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "late", 45, 0)
	})
}
