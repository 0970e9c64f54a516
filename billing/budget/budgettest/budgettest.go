// Package budgettest opens budgets and uses them, for the tests of the packages of billing.
package budgettest

import (
	"testing"

	"stoa/agentsvc"
	"stoa/billing/budget"
	"stoa/billing/calendar"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// Services are the budgets of a database and what they need.
type Services struct {
	usagetest.Services
	Budgets *budget.Service
}

// Open returns the services of d, without prices.
func Open(t testing.TB, d *db.DB) Services {
	t.Helper()
	return OpenWith(t, d, budget.Options{Log: usagetest.Log})
}

// OpenWith is Open with options.
func OpenWith(t testing.TB, d *db.DB, o budget.Options) Services {
	t.Helper()
	s := usagetest.Open(t, d)
	budgets, err := budget.Open(t.Context(), d, nil, s.Feed, s.Prices, s.Usage, o)
	if err != nil {
		t.Fatal(err)
	}
	return Services{s, budgets}
}

// OpenPriced returns the services of d with the prices of [usagetest.AddPrices].
func OpenPriced(t testing.TB, d *db.DB) Services {
	t.Helper()
	s := Open(t, d)
	usagetest.AddPrices(t, s.Prices)
	return s
}

// Acme is an app, and Ana a user.
var (
	Acme = tenancy.App{ID: "acme-id", Name: "acme"}
	Ana  = agentsvc.Owner{Issuer: "stoa", Subject: "ana"}
)

// CallBudget returns a hard budget of n calls, with the name calls.
func CallBudget(n int64) budget.Budget {
	return budget.Budget{Name: "calls", Unit: budget.InCalls, Amount: n, Window: calendar.Month, Hard: true}
}

// TokenBudget returns a hard budget of n tokens, with the name tokens.
func TokenBudget(n int64) budget.Budget {
	return budget.Budget{Name: "tokens", Unit: budget.InTokens, Amount: n, Window: calendar.Total, Hard: true}
}

// AddBudget creates a budget of app, or of the platform for the zero App.
func AddBudget(t testing.TB, s *budget.Service, app tenancy.App, b budget.Budget) {
	t.Helper()
	if _, err := s.AddBudget(t.Context(), audit.Actor{Name: "operator"}, app, b); err != nil {
		t.Fatal(err)
	}
}

// NewRequest returns the request of a call by Ana of up to 110 tokens.
func NewRequest() budget.Request {
	return budget.Request{
		Call: agentsvc.NewID(), Task: "t1", Epoch: 1, Agent: "assistant", Owner: Ana, Provider: "scripted", Model: "m", Input: 10, Output: 100, MinOutput: 20,
	}
}

// UsageOf returns the usage of a reservation's call.
func UsageOf(r *budget.CostReservation, x budget.Request, in, out int64) agentsvc.Usage {
	return agentsvc.Usage{Call: x.Call, StartedAt: r.Began, Provider: x.Provider, Model: x.Model, InputTokens: in, OutputTokens: out}
}

// FindBalance returns what is committed and reserved of a budget.
func FindBalance(t testing.TB, s *budget.Service, app db.ID, name string) [2]int64 {
	t.Helper()
	b, err := s.FindBudget(t.Context(), app, name)
	if err != nil {
		t.Fatal(err)
	}
	return [2]int64{b.Committed, b.Reserved}
}

// CheckBalance fails the test if a budget has another balance.
func CheckBalance(t testing.TB, s *budget.Service, app db.ID, name string, committed, reserved int64) {
	t.Helper()
	if got := FindBalance(t, s, app, name); got != [2]int64{committed, reserved} {
		t.Errorf("the budget %s stands at %v, want %v", name, got, [2]int64{committed, reserved})
	}
}

// CheckConsistent fails the test if a balance differs from the sum of the rows.
func CheckConsistent(t testing.TB, s *budget.Service) {
	t.Helper()
	wrong, err := s.RebuildBalances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range wrong {
		t.Errorf("the rows do not add up to the balance: %+v", d)
	}
}
