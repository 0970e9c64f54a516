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

// TestOtherCurrency: a budget of money is in a currency that calls are charged in. A hard one in another holds none, so
// it refuses them, until one of its scope is in theirs.
func TestOtherCurrency(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		euro := tenancy.App{ID: acme.ID, Name: acme.Name, Plan: "euro"}
		_, err := s.AddPlan(t.Context(), actor, billing.Plan{Name: "euro", Currency: "EUR"})
		check(t, err)
		money := func(name, currency string) billing.Budget {
			return billing.Budget{Name: name, Unit: billing.InMoney, Amount: 500, Currency: currency, Window: billing.Day, Hard: true}
		}
		_, err = s.AddBudget(t.Context(), actor, acme, money("early", "USD"))
		wantInvalid(t, err, "currency")
		for _, currency := range []string{"USD", "EUR"} {
			_, err := s.AddPrice(t.Context(), actor, billing.Price{
				Version: currency, Currency: currency, Effective: january, Items: []billing.Item{charge("model_calls", "", "", 1, 5)},
			})
			check(t, err)
		}
		for _, app := range []tenancy.App{{}, acme, euro} {
			_, err := s.AddBudget(t.Context(), actor, app, money("pounds", "GBP"))
			wantInvalid(t, err, "currency")
		}
		_, err = s.AddBudget(t.Context(), actor, euro, money("foreign", "USD"))
		wantInvalid(t, err, "currency")

		for _, owner := range []struct{ before, after tenancy.App }{{acme, euro}, {}} {
			add(t, s, owner.before, money("dollars", "USD"))
			a, m := s.Allowance(acme.ID, "euro"), s.Meter(acme.ID, "euro") // the plan has changed
			_, err = a.Reserve(t.Context(), ask())
			var invalid *agentsvc.InvalidError
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "dollars") {
				t.Fatalf("%v, want a refusal that names the budget", err)
			}
			if err := a.Check(t.Context(), "assistant", ana); !errors.As(err, &invalid) {
				t.Errorf("checked: %v, want the same", err)
			}
			add(t, s, owner.after, money("euros", "EUR"))
			x := ask()
			r, err := a.Reserve(t.Context(), x)
			check(t, err, a.Check(t.Context(), "assistant", ana), r.Settle(t.Context(), m, used(r, x, 10, 5)))
			wantStanding(t, s, owner.after.ID, "dollars", 0, 0)
		}
		wantStanding(t, s, acme.ID, "euros", 10, 0)
		wantStanding(t, s, "", "euros", 10, 0)
		wantRight(t, s)
	})
}

// TestPlanChangesCurrency: what an app uses is charged in the currency of its plan as that is by now, which its hard budgets go
// by. A call under way stays with the budget that it has reserved of.
func TestPlanChangesCurrency(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		a, m := s.Allowance(acme.ID, "team"), s.Meter(acme.ID, "team") // before its plan is read
		team := tenancy.App{ID: acme.ID, Name: acme.Name, Plan: "team"}
		for _, currency := range []string{"USD", "EUR", "CHF"} {
			_, err := s.AddPrice(t.Context(), actor, billing.Price{
				Version: currency, Currency: currency, Effective: january, Items: []billing.Item{charge("model_calls", "", "", 1, 5)},
			})
			check(t, err)
		}
		turn := func(put func(context.Context, string, billing.Plan) (billing.Plan, error), currency string) {
			t.Helper()
			_, err := put(t.Context(), actor, billing.Plan{Name: "team", Currency: currency})
			check(t, err)
			add(t, s, team, billing.Budget{Name: currency, Unit: billing.InMoney, Amount: 500, Currency: currency, Window: billing.Day, Hard: true})
		}
		reserve := func(x billing.Ask) *billing.Reservation {
			t.Helper()
			r, err := a.Reserve(t.Context(), x)
			check(t, err)
			return r
		}
		turn(s.AddPlan, "EUR")
		x, under := ask(), ask()
		r, way := reserve(x), reserve(under)
		check(t, r.Settle(t.Context(), m, used(r, x, 10, 5)))
		wantStanding(t, s, acme.ID, "EUR", 5, 5)

		turn(s.PutPlan, "CHF")
		x = ask()
		r = reserve(x)
		check(t, r.Settle(t.Context(), m, used(r, x, 10, 5)), way.Settle(t.Context(), m, used(way, under, 10, 5)))
		wantStanding(t, s, acme.ID, "EUR", 10, 0)
		wantStanding(t, s, acme.ID, "CHF", 5, 0)
		if got := m.Worth(used(r, x, 10, 5)).Currency; got != "CHF" {
			t.Errorf("a call is charged in %s, want CHF", got)
		}
		wantRight(t, s)
	})
}

// TestShortAnswer: a call whose answer may be shorter than what is of use otherwise is made as it is.
func TestShortAnswer(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		add(t, s, acme, tokens(25))
		a := s.Allowance(acme.ID, "")
		x, y := ask(), ask()
		x.Output, y.Output = 5, 5
		first, err := a.Reserve(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- first.Release(t.Context()) }()
		second, err := a.Reserve(t.Context(), y) // waits for the first
		if err != nil || second.Output != 5 {
			t.Errorf("%+v, %v", second, err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestRowBeforeSettlement: a balance that is worked out while a call stands on the log and is not settled yet does not count
// it twice, and a budget that its reservation knows nothing of counts it.
func TestRowBeforeSettlement(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		add(t, s, acme, calls(5))
		a, m := s.Allowance(acme.ID, ""), s.Meter(acme.ID, "")
		x := ask()
		r, err := a.Reserve(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		u := used(r, x, 10, 5)
		fact := billing.Facts{Task: x.Task, Epoch: x.Epoch, Agent: x.Agent, Owner: x.Owner, Events: []agentsvc.Event{{Usage: &u}}}
		if err := m.Write(t.Context(), fact); err != nil {
			t.Fatal(err)
		}
		add(t, s, acme, tokens(100))
		wantRight(t, s)
		wantStanding(t, s, acme.ID, "calls", 0, 1)
		wantStanding(t, s, acme.ID, "tokens", 15, 0)
		if err := r.Settle(t.Context(), m, u); err != nil {
			t.Fatal(err)
		}
		wantStanding(t, s, acme.ID, "calls", 1, 0)
		wantStanding(t, s, acme.ID, "tokens", 15, 0)
		wantRight(t, s)
	})
}
