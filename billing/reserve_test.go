package billing_test

import (
	"testing"

	"stoa/agentsvc"
	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestOtherCurrency: a budget of money in a currency that the app is not charged in is in no call's way.
func TestOtherCurrency(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		if _, err := s.AddPlan(t.Context(), actor, billing.Plan{Name: "euro", Currency: "EUR"}); err != nil {
			t.Fatal(err)
		}
		_, err := s.AddBudget(t.Context(), actor, tenancy.App{ID: "globex-id", Name: "globex", Plan: "euro"},
			billing.Budget{Name: "dollars", Unit: billing.InMoney, Amount: 5, Currency: "USD", Window: billing.Day})
		wantInvalid(t, err, "currency")
		dollars := billing.Budget{Name: "dollars", Unit: billing.InMoney, Amount: 5, Currency: "USD", Window: billing.Day, Hard: true}
		add(t, s, acme, dollars)
		a, m := s.Allowance(acme.ID, "euro"), s.Meter(acme.ID, "euro")
		if r, err := a.Reserve(t.Context(), ask()); r != nil || err != nil {
			t.Fatalf("alone: %+v, %v", r, err)
		}
		add(t, s, acme, calls(1))
		x := ask()
		r, err := a.Reserve(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Settle(t.Context(), m, used(r, x, 10, 5)); err != nil {
			t.Fatal(err)
		}
		wantStanding(t, s, acme.ID, "dollars", 0, 0)
		wantStanding(t, s, acme.ID, "calls", 1, 0)
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
