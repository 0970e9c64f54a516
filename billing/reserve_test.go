package billing_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestOtherCurrency checks that a hard money budget in another currency than the calls' refuses them, until there is a
// budget of its scope in their currency.
func TestOtherCurrency(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := openBilling(t, d)
		euro := tenancy.App{ID: acme.ID, Name: acme.Name, Plan: "euro"}
		_, err := s.Prices.AddPlan(t.Context(), actor, billing.Plan{Name: "euro", Currency: "EUR"})
		requireNoErrors(t, err)
		money := func(name, currency string) billing.Budget {
			return billing.Budget{Name: name, Unit: billing.InMoney, Amount: 500, Currency: currency, Window: billing.Day, Hard: true}
		}
		_, err = s.Budgets.AddBudget(t.Context(), actor, acme, money("early", "USD"))
		wantInvalid(t, err, "currency")
		for _, currency := range []string{"USD", "EUR"} {
			_, err := s.Prices.AddPriceVersion(t.Context(), actor, billing.PriceVersion{
				Version: currency, Currency: currency, Effective: january, Items: []billing.PriceItem{chargeItem("model_calls", "", "", 1, 5)},
			})
			requireNoErrors(t, err)
		}
		for _, app := range []tenancy.App{{}, acme, euro} {
			_, err := s.Budgets.AddBudget(t.Context(), actor, app, money("pounds", "GBP"))
			wantInvalid(t, err, "currency")
		}
		_, err = s.Budgets.AddBudget(t.Context(), actor, euro, money("foreign", "USD"))
		wantInvalid(t, err, "currency")

		for _, owner := range []struct{ before, after tenancy.App }{{acme, euro}, {}} {
			addBudget(t, s, owner.before, money("dollars", "USD"))
			a, m := s.Budgets.NewBudgetGate(acme.ID, "euro"), s.Usage.NewMeter(acme.ID, "euro") // the plan has changed
			_, err = a.ReserveUsage(t.Context(), newUsageRequest())
			var invalid *agentsvc.InvalidError
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "dollars") {
				t.Fatalf("%v, want a refusal that names the budget", err)
			}
			if err := a.CheckBudget(t.Context(), "assistant", ana); !errors.As(err, &invalid) {
				t.Errorf("checked: %v, want the same", err)
			}
			addBudget(t, s, owner.after, money("euros", "EUR"))
			x := newUsageRequest()
			r, err := a.ReserveUsage(t.Context(), x)
			requireNoErrors(t, err, a.CheckBudget(t.Context(), "assistant", ana), r.SettleUsage(t.Context(), m, usageOf(r, x, 10, 5)))
			wantBalance(t, s, owner.after.ID, "dollars", 0, 0)
		}
		wantBalance(t, s, acme.ID, "euros", 10, 0)
		wantBalance(t, s, "", "euros", 10, 0)
		wantConsistent(t, s)
	})
}

// TestPlanChangesCurrency checks that usage is charged in the current currency of the plan, and that hard budgets
// follow it. A call in progress stays with the budgets from which it has reserved.
func TestPlanChangesCurrency(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := openBilling(t, d)
		a, m := s.Budgets.NewBudgetGate(acme.ID, "team"), s.Usage.NewMeter(acme.ID, "team") // created before its plan is read
		team := tenancy.App{ID: acme.ID, Name: acme.Name, Plan: "team"}
		for _, currency := range []string{"USD", "EUR", "CHF"} {
			_, err := s.Prices.AddPriceVersion(t.Context(), actor, billing.PriceVersion{
				Version: currency, Currency: currency, Effective: january, Items: []billing.PriceItem{chargeItem("model_calls", "", "", 1, 5)},
			})
			requireNoErrors(t, err)
		}
		changeCurrency := func(put func(context.Context, string, billing.Plan) (billing.Plan, error), currency string) {
			t.Helper()
			_, err := put(t.Context(), actor, billing.Plan{Name: "team", Currency: currency})
			requireNoErrors(t, err)
			addBudget(t, s, team, billing.Budget{Name: currency, Unit: billing.InMoney, Amount: 500, Currency: currency, Window: billing.Day, Hard: true})
		}
		reserve := func(x billing.UsageRequest) *billing.Reservation {
			t.Helper()
			r, err := a.ReserveUsage(t.Context(), x)
			requireNoErrors(t, err)
			return r
		}
		changeCurrency(s.Prices.AddPlan, "EUR")
		x, pending := newUsageRequest(), newUsageRequest()
		r, pendingReservation := reserve(x), reserve(pending)
		requireNoErrors(t, r.SettleUsage(t.Context(), m, usageOf(r, x, 10, 5)))
		wantBalance(t, s, acme.ID, "EUR", 5, 5)

		changeCurrency(s.Prices.UpdatePlan, "CHF")
		x = newUsageRequest()
		r = reserve(x)
		requireNoErrors(t, r.SettleUsage(t.Context(), m, usageOf(r, x, 10, 5)), pendingReservation.SettleUsage(t.Context(), m, usageOf(pendingReservation, pending, 10, 5)))
		wantBalance(t, s, acme.ID, "EUR", 10, 0)
		wantBalance(t, s, acme.ID, "CHF", 5, 0)
		if got := m.PriceCall(usageOf(r, x, 10, 5)).Currency; got != "CHF" {
			t.Errorf("a call is charged in %s, want CHF", got)
		}
		wantConsistent(t, s)
	})
}

// TestShortAnswer checks that a call whose requested response is shorter than the useful minimum is allowed.
func TestShortAnswer(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := openBilling(t, d)
		addBudget(t, s, acme, tokenBudget(25))
		a := s.Budgets.NewBudgetGate(acme.ID, "")
		x, y := newUsageRequest(), newUsageRequest()
		x.Output, y.Output = 5, 5
		first, err := a.ReserveUsage(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- first.ReleaseUsage(t.Context()) }()
		second, err := a.ReserveUsage(t.Context(), y) // waits for the first
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
		s := openBilling(t, d)
		addBudget(t, s, acme, callBudget(5))
		a, m := s.Budgets.NewBudgetGate(acme.ID, ""), s.Usage.NewMeter(acme.ID, "")
		x := newUsageRequest()
		r, err := a.ReserveUsage(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		u := usageOf(r, x, 10, 5)
		fact := billing.RunFacts{Task: x.Task, Epoch: x.Epoch, Agent: x.Agent, Owner: x.Owner, Events: []agentsvc.Event{{Usage: &u}}}
		if err := m.WriteUsage(t.Context(), fact); err != nil {
			t.Fatal(err)
		}
		addBudget(t, s, acme, tokenBudget(100))
		wantConsistent(t, s)
		wantBalance(t, s, acme.ID, "calls", 0, 1)
		wantBalance(t, s, acme.ID, "tokens", 15, 0)
		if err := r.SettleUsage(t.Context(), m, u); err != nil {
			t.Fatal(err)
		}
		wantBalance(t, s, acme.ID, "calls", 1, 0)
		wantBalance(t, s, acme.ID, "tokens", 15, 0)
		wantConsistent(t, s)
	})
}
