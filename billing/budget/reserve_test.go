package budget_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"stoa/agentsvc/agentsvctest"

	"stoa/agentsvc"
	"stoa/billing/budget"
	"stoa/billing/budget/budgettest"
	"stoa/billing/calendar"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestOtherCurrency checks that a hard money budget in another currency than the calls' refuses them, until there is a
// budget of its scope in their currency.
func TestOtherCurrency(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		euro := tenancy.App{ID: budgettest.Acme.ID, Name: budgettest.Acme.Name, Plan: "euro"}
		_, err := s.Prices.AddPlan(t.Context(), actor, price.Plan{Name: "euro", Currency: "EUR"})
		agentsvctest.RequireNoErrors(t, err)
		money := func(name, currency string) budget.Budget {
			return budget.Budget{Name: name, Unit: budget.InMoney, Amount: 500, Currency: currency, Window: calendar.Day, Hard: true}
		}
		_, err = s.Budgets.AddBudget(t.Context(), actor, budgettest.Acme, money("early", "USD"))
		agentsvctest.CheckInvalid(t, err, "currency")
		for _, currency := range []string{"USD", "EUR"} {
			_, err := s.Prices.AddVersion(t.Context(), actor, price.Version{
				Version: currency, Currency: currency, Effective: january, Items: []price.Item{usagetest.ChargeItem("model_calls", "", "", 1, 5)},
			})
			agentsvctest.RequireNoErrors(t, err)
		}
		for _, app := range []tenancy.App{{}, budgettest.Acme, euro} {
			_, err := s.Budgets.AddBudget(t.Context(), actor, app, money("pounds", "GBP"))
			agentsvctest.CheckInvalid(t, err, "currency")
		}
		_, err = s.Budgets.AddBudget(t.Context(), actor, euro, money("foreign", "USD"))
		agentsvctest.CheckInvalid(t, err, "currency")

		for _, owner := range []struct{ before, after tenancy.App }{{budgettest.Acme, euro}, {}} {
			budgettest.AddBudget(t, s.Budgets, owner.before, money("dollars", "USD"))
			a, m := s.Budgets.NewGate(budgettest.Acme.ID, "euro"), s.Usage.NewMeter(budgettest.Acme.ID, "euro") // the plan has changed
			_, err = a.ReserveBudget(t.Context(), budgettest.NewRequest())
			if !errors.Is(err, agentsvc.CodeInvalid) || !strings.Contains(err.Error(), "dollars") {
				t.Fatalf("%v, want a refusal that names the budget", err)
			}
			if err := a.CheckBudget(t.Context(), "assistant", budgettest.Ana); !errors.Is(err, agentsvc.CodeInvalid) {
				t.Errorf("checked: %v, want the same", err)
			}
			budgettest.AddBudget(t, s.Budgets, owner.after, money("euros", "EUR"))
			x := budgettest.NewRequest()
			r, err := a.ReserveBudget(t.Context(), x)
			agentsvctest.RequireNoErrors(t, err, a.CheckBudget(t.Context(), "assistant", budgettest.Ana), r.SettleReservation(t.Context(), m, budgettest.UsageOf(r, x, 10, 5)))
			budgettest.CheckBalance(t, s.Budgets, owner.after.ID, "dollars", 0, 0)
		}
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "euros", 10, 0)
		budgettest.CheckBalance(t, s.Budgets, "", "euros", 10, 0)
		budgettest.CheckConsistent(t, s.Budgets)
	})
}

// TestPlanChangesCurrency checks that usage is charged in the current currency of the plan, and that hard budgets
// follow it. A call in progress stays with the budgets from which it has reserved.
func TestPlanChangesCurrency(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		a, m := s.Budgets.NewGate(budgettest.Acme.ID, "team"), s.Usage.NewMeter(budgettest.Acme.ID, "team") // created before its plan is read
		team := tenancy.App{ID: budgettest.Acme.ID, Name: budgettest.Acme.Name, Plan: "team"}
		for _, currency := range []string{"USD", "EUR", "CHF"} {
			_, err := s.Prices.AddVersion(t.Context(), actor, price.Version{
				Version: currency, Currency: currency, Effective: january, Items: []price.Item{usagetest.ChargeItem("model_calls", "", "", 1, 5)},
			})
			agentsvctest.RequireNoErrors(t, err)
		}
		changeCurrency := func(put func(context.Context, audit.Actor, price.Plan) (price.Plan, error), currency string) {
			t.Helper()
			_, err := put(t.Context(), actor, price.Plan{Name: "team", Currency: currency})
			agentsvctest.RequireNoErrors(t, err)
			budgettest.AddBudget(t, s.Budgets, team, budget.Budget{Name: currency, Unit: budget.InMoney, Amount: 500, Currency: currency, Window: calendar.Day, Hard: true})
		}
		reserve := func(x budget.Request) *budget.CostReservation {
			t.Helper()
			r, err := a.ReserveBudget(t.Context(), x)
			agentsvctest.RequireNoErrors(t, err)
			return r
		}
		changeCurrency(s.Prices.AddPlan, "EUR")
		x, pending := budgettest.NewRequest(), budgettest.NewRequest()
		r, pendingReservation := reserve(x), reserve(pending)
		agentsvctest.RequireNoErrors(t, r.SettleReservation(t.Context(), m, budgettest.UsageOf(r, x, 10, 5)))
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "EUR", 5, 5)

		changeCurrency(s.Prices.UpdatePlan, "CHF")
		x = budgettest.NewRequest()
		r = reserve(x)
		agentsvctest.RequireNoErrors(t, r.SettleReservation(t.Context(), m, budgettest.UsageOf(r, x, 10, 5)), pendingReservation.SettleReservation(t.Context(), m, budgettest.UsageOf(pendingReservation, pending, 10, 5)))
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "EUR", 10, 0)
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "CHF", 5, 0)
		if got := m.PriceCall(budgettest.UsageOf(r, x, 10, 5)).Currency; got != "CHF" {
			t.Errorf("a call is charged in %s, want CHF", got)
		}
		budgettest.CheckConsistent(t, s.Budgets)
	})
}

// TestShortAnswer checks that a call whose requested response is shorter than the useful minimum is allowed.
func TestShortAnswer(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		budgettest.AddBudget(t, s.Budgets, budgettest.Acme, budgettest.TokenBudget(25))
		a := s.Budgets.NewGate(budgettest.Acme.ID, "")
		x, y := budgettest.NewRequest(), budgettest.NewRequest()
		x.Output, y.Output = 5, 5
		first, err := a.ReserveBudget(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- first.ReleaseReservation(t.Context()) }()
		second, err := a.ReserveBudget(t.Context(), y) // waits for the first
		if err != nil || second.Output != 5 {
			t.Errorf("%+v, %v", second, err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestRowBeforeSettlement checks a balance that is computed between the usage row and the settlement of a call: the
// call does not count twice, and a budget that its reservation does not include counts it.
func TestRowBeforeSettlement(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		budgettest.AddBudget(t, s.Budgets, budgettest.Acme, budgettest.CallBudget(5))
		a, m := s.Budgets.NewGate(budgettest.Acme.ID, ""), s.Usage.NewMeter(budgettest.Acme.ID, "")
		x := budgettest.NewRequest()
		r, err := a.ReserveBudget(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		u := budgettest.UsageOf(r, x, 10, 5)
		fact := usage.RunFacts{Task: x.Task, Epoch: x.Epoch, Agent: x.Agent, Owner: x.Owner, Events: []agentsvc.Event{{Usage: &u}}}
		if err := m.WriteUsage(t.Context(), fact); err != nil {
			t.Fatal(err)
		}
		budgettest.AddBudget(t, s.Budgets, budgettest.Acme, budgettest.TokenBudget(100))
		budgettest.CheckConsistent(t, s.Budgets)
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "calls", 0, 1)
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "tokens", 15, 0)
		if err := r.SettleReservation(t.Context(), m, u); err != nil {
			t.Fatal(err)
		}
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "calls", 1, 0)
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "tokens", 15, 0)
		budgettest.CheckConsistent(t, s.Budgets)
	})
}
