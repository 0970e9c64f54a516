package billing_test

import (
	"context"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/billing"
	"stoa/billing/amount"
	"stoa/billing/budget/budgettest"
	"stoa/billing/price"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestReadChanges checks that a process without signals reads each change from the database, and reads nothing again
// without a change.
func TestReadChanges(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		here, there := openBilling(t, d), openBilling(t, d)
		read := func() {
			t.Helper()
			if err := billing.ReadChanges(there, t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		exhausted := func() bool {
			_, err := there.Budgets.NewGate(budgettest.Acme.ID, "").ReserveBudget(t.Context(), budgettest.NewRequest())
			return agentsvc.DetailOf[*agentsvc.ExhaustedBudget](err) != nil
		}
		budgettest.AddBudget(t, here.Budgets, budgettest.Acme, budgettest.CallBudget(0))
		if exhausted() {
			t.Error("the budget is known before it was read")
		}
		read()
		if !exhausted() {
			t.Error("a new budget is not known")
		}
		if err := here.Budgets.DeleteBudget(t.Context(), actor, budgettest.Acme, "calls"); err != nil {
			t.Fatal(err)
		}
		read()
		if there.Budgets.NewGate(budgettest.Acme.ID, "").HasBudgets() {
			t.Error("a deleted budget is still known")
		}
		if _, err := here.Prices.AddPlan(t.Context(), actor, price.Plan{Name: "p", AllowedModels: []string{"a/*"}}); err != nil {
			t.Fatal(err)
		}
		p := price.Version{Version: "v1", Currency: "USD", Effective: time.Now().Add(time.Hour), Items: []price.Item{{Kind: price.Charge, Meter: "model_calls", Per: 1, Amount: 3}}}
		if _, err := here.Prices.AddVersion(t.Context(), actor, p); err != nil {
			t.Fatal(err)
		}
		read()
		later := price.Usage{Kind: amount.ModelCall, At: time.Now().Add(2 * time.Hour), Quantities: amount.Quantities{ModelCalls: 1}}
		if _, ok := there.Prices.CachedPlan("p"); !ok || there.Prices.CachedBook().PriceUsage("", later).Charge != 3 {
			t.Errorf("the plan is known: %v; a call is worth %+v", ok, there.Prices.CachedBook().PriceUsage("", later))
		}
		if err := here.Prices.RemoveVersion(t.Context(), actor, "v1"); err != nil {
			t.Fatal(err)
		}
		read()
		if w := there.Prices.CachedBook().PriceUsage("", later); w.Version != "" {
			t.Errorf("a price book that was withdrawn still holds: %+v", w)
		}
	})
}

// TestRecordedInOrder checks that concurrent changes become visible in the order of their generations, so that a reader
// misses none.
func TestRecordedInOrder(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		here, there := openBilling(t, d), openBilling(t, d)
		ctx, stop := context.WithCancel(t.Context())
		read := make(chan error, 1)
		go func() {
			for ctx.Err() == nil {
				if err := billing.ReadChanges(there, t.Context()); err != nil {
					read <- err
					return
				}
			}
			read <- billing.ReadChanges(there, t.Context())
		}()
		const apps = 24
		made := make(chan error, apps)
		app := func(i int) db.ID { return db.ID("app-" + string(rune('a'+i))) }
		for i := range apps {
			go func() {
				a := budgettest.Acme
				a.ID, a.Name = app(i), string(app(i))
				_, err := here.Budgets.AddBudget(ctx, actor, a, budgettest.CallBudget(1))
				made <- err
			}()
		}
		for range apps {
			if err := <-made; err != nil {
				t.Error(err)
			}
		}
		stop()
		if err := <-read; err != nil {
			t.Fatal(err)
		}
		for i := range apps {
			if !there.Budgets.NewGate(app(i), "").HasBudgets() {
				t.Errorf("the budget of %s is not known", app(i))
			}
		}
	})
}
