package budget_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"stoa/agentsvc/agentsvctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"stoa/agentsvc"
	"stoa/billing/budget"
	"stoa/billing/budget/budgettest"
	"stoa/billing/calendar"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func TestBudgets(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		want := budget.Budget{
			App: budgettest.Acme.ID, Name: "month", Scope: budget.Scope{Agent: "assistant", Model: "openai/*"}, Unit: budget.InTokens, Amount: 1000, Window: calendar.Month,
			Zone: "Europe/Berlin", Hard: true, OnExhausted: budget.Reject, Thresholds: []int{80, 95, 100},
		}
		given := want
		given.OnExhausted, given.Thresholds = "", nil
		made, err := s.Budgets.AddBudget(t.Context(), actor, budgettest.Acme, given)
		if err != nil {
			t.Fatal(err)
		}
		ignore := cmpopts.IgnoreFields(budget.Budget{}, "ID", "CreatedAt", "UpdatedAt")
		unexported := cmpopts.IgnoreUnexported(budget.Budget{})
		if diff := cmp.Diff(want, made.Budget, ignore, unexported); diff != "" {
			t.Errorf("made (-want +got):\n%s", diff)
		}
		if _, until := calendar.Month.Bounds(time.Now(), loadLocation(t, "Europe/Berlin")); !made.ResetsAt.Equal(until) || made.Remaining() != 1000 {
			t.Errorf("resets at %v with %d left, want %v with all", made.ResetsAt, made.Remaining(), until)
		}
		_, err = s.Budgets.AddBudget(t.Context(), actor, budgettest.Acme, given)
		agentsvctest.CheckError(t, err, agentsvc.CodeExists)
		budgettest.AddBudget(t, s.Budgets, tenancy.App{}, budgettest.CallBudget(5))

		change := made.Budget
		change.Amount, change.Hard = 2000, false
		if _, err := s.Budgets.UpdateBudget(t.Context(), actor, budgettest.Acme, change.Name, replaceWith(change)); err != nil {
			t.Fatal(err)
		}
		change.Window = calendar.Day
		_, err = s.Budgets.UpdateBudget(t.Context(), actor, budgettest.Acme, change.Name, replaceWith(change))
		agentsvctest.CheckInvalid(t, err, "window")

		got, err := s.Budgets.ListBudgets(t.Context(), budgettest.Acme.ID)
		if err != nil || len(got) != 1 || got[0].Amount != 2000 || got[0].Hard {
			t.Errorf("budgets %+v, %v", got, err)
		}
		agentsvctest.CheckError(t, s.Budgets.DeleteBudget(t.Context(), actor, tenancy.App{ID: "globex-id"}, "month"), agentsvc.CodeNotFound)
		if err := s.Budgets.DeleteBudget(t.Context(), actor, budgettest.Acme, "month"); err != nil {
			t.Fatal(err)
		}
		_, err = s.Budgets.FindBudget(t.Context(), budgettest.Acme.ID, "month")
		agentsvctest.CheckError(t, err, agentsvc.CodeNotFound)
	})
}

func TestBudgetMistakes(t *testing.T) {
	t.Parallel()
	s := budgettest.Open(t, dbtest.NewSQLite(t))
	for field, change := range map[string]func(*budget.Budget){
		"name":         func(b *budget.Budget) { b.Name = "a b" },
		"unit":         func(b *budget.Budget) { b.Unit = "euros" },
		"amount":       func(b *budget.Budget) { b.Amount = -1 },
		"window":       func(b *budget.Budget) { b.Window = "decade" },
		"timezone":     func(b *budget.Budget) { b.Zone = "Mars/Olympus" },
		"on_exhausted": func(b *budget.Budget) { b.OnExhausted = "explode" },
		"thresholds":   func(b *budget.Budget) { b.Thresholds = []int{101} },
		"currency":     func(b *budget.Budget) { b.Unit = budget.InMoney },
	} {
		t.Run(field, func(t *testing.T) {
			b := budgettest.CallBudget(1)
			change(&b)
			_, err := s.Budgets.AddBudget(t.Context(), actor, budgettest.Acme, b)
			agentsvctest.CheckInvalid(t, err, field)
		})
	}
	soft := budgettest.CallBudget(1)
	soft.Hard, soft.OnExhausted = false, budget.Pause
	_, err := s.Budgets.AddBudget(t.Context(), actor, budgettest.Acme, soft)
	agentsvctest.CheckInvalid(t, err, "on_exhausted")
}

// TestReserve checks reservation and settlement: all budgets that apply take part, or none.
func TestReserve(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		a, m := s.Budgets.NewGate(budgettest.Acme.ID, ""), s.Usage.NewMeter(budgettest.Acme.ID, "")
		if r, err := a.ReserveBudget(t.Context(), budgettest.NewRequest()); r != nil || err != nil {
			t.Fatalf("without a budget: %v, %v", r, err)
		}
		budgettest.AddBudget(t, s.Budgets, budgettest.Acme, budgettest.TokenBudget(1000))
		budgettest.AddBudget(t, s.Budgets, tenancy.App{}, budgettest.CallBudget(2))
		other := budgettest.TokenBudget(5)
		other.Name, other.Scope = "others", budget.Scope{User: "bob"}
		budgettest.AddBudget(t, s.Budgets, budgettest.Acme, other)

		first := budgettest.NewRequest()
		r, err := a.ReserveBudget(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "tokens", 0, 110)
		budgettest.CheckBalance(t, s.Budgets, "", "calls", 0, 1)
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "others", 0, 0)
		for range 2 { // a repetition changes nothing
			if err := r.SettleReservation(t.Context(), m, budgettest.UsageOf(r, first, 9, 30)); err != nil {
				t.Fatal(err)
			}
		}
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "tokens", 39, 0)
		budgettest.CheckBalance(t, s.Budgets, "", "calls", 1, 0)

		if r, err = a.ReserveBudget(t.Context(), budgettest.NewRequest()); err != nil {
			t.Fatal(err)
		}
		if err := r.ReleaseReservation(t.Context()); err != nil {
			t.Fatal(err)
		}
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "tokens", 39, 0)
		budgettest.CheckBalance(t, s.Budgets, "", "calls", 1, 0)

		last := budgettest.NewRequest()
		if r, err = a.ReserveBudget(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		if err := r.SettleReservation(t.Context(), m, budgettest.UsageOf(r, last, 10, 5000)); err != nil { // more than was reserved
			t.Fatal(err)
		}
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "tokens", 5049, 0)
		_, err = a.ReserveBudget(t.Context(), budgettest.NewRequest())
		wantExhausted(t, err, "tokens", "calls")
		wantExhausted(t, a.CheckBudget(t.Context(), "assistant", budgettest.Ana), "calls")
		budgettest.CheckBalance(t, s.Budgets, "", "calls", 2, 0)
		budgettest.CheckConsistent(t, s.Budgets)
	})
}

// TestScarceBudget checks that a response is shortened to what is left, down to its useful minimum, and that a call
// waits for calls in progress.
func TestScarceBudget(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		a, m := s.Budgets.NewGate(budgettest.Acme.ID, ""), s.Usage.NewMeter(budgettest.Acme.ID, "")
		budgettest.AddBudget(t, s.Budgets, budgettest.Acme, budgettest.TokenBudget(150))
		one, two, three := budgettest.NewRequest(), budgettest.NewRequest(), budgettest.NewRequest()
		first, err := a.ReserveBudget(t.Context(), one)
		if err != nil || first.Output != 100 {
			t.Fatal(first, err)
		}
		second, err := a.ReserveBudget(t.Context(), two)
		if err != nil || second.Output != 30 {
			t.Fatalf("%+v, %v, want an answer of 30", second, err)
		}
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "tokens", 0, 150)
		go func() {
			time.Sleep(50 * time.Millisecond)
			_ = first.SettleReservation(context.Background(), m, budgettest.UsageOf(first, one, 10, 10))
		}()
		third, err := a.ReserveBudget(t.Context(), three)
		if err != nil || third.Output != 80 {
			t.Fatalf("%+v, %v, want what the first gives back", third, err)
		}
		for _, r := range []struct {
			*budget.CostReservation
			of  budget.Request
			out int64
		}{{second, two, 30}, {third, three, 80}} {
			if err := r.SettleReservation(t.Context(), m, budgettest.UsageOf(r.CostReservation, r.of, 10, r.out)); err != nil {
				t.Fatal(err)
			}
		}
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "tokens", 150, 0)
		_, err = a.ReserveBudget(t.Context(), budgettest.NewRequest())
		wantExhausted(t, err, "tokens")
	})
}

// TestManyCallers checks that 200 callers in three processes do not exceed small budgets by a single unit.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		const available = 37
		processes := []budgettest.Services{budgettest.Open(t, d), budgettest.Open(t, d), budgettest.Open(t, d)}
		budgettest.AddBudget(t, processes[0].Budgets, budgettest.Acme, budgettest.CallBudget(available))
		budgettest.AddBudget(t, processes[0].Budgets, tenancy.App{}, budgettest.TokenBudget(100_000))
		mine := budgettest.CallBudget(1000)
		mine.Name, mine.Scope = "mine", budget.Scope{User: "ana"}
		budgettest.AddBudget(t, processes[0].Budgets, budgettest.Acme, mine)
		for _, s := range processes {
			if _, err := s.Budgets.ListBudgets(t.Context(), budgettest.Acme.ID); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Budgets.ListBudgets(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		made, refused := 0, 0
		for i := range 200 {
			all.Go(func() {
				s := processes[i%3]
				x := budgettest.NewRequest()
				r, err := s.Budgets.NewGate(budgettest.Acme.ID, "").ReserveBudget(t.Context(), x)
				if err == nil {
					err = r.SettleReservation(t.Context(), s.Usage.NewMeter(budgettest.Acme.ID, ""), budgettest.UsageOf(r, x, 5, 6))
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					made++
				case agentsvc.DetailOf[*agentsvc.ExhaustedBudget](err) != nil:
					refused++
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if made != available || refused != 200-available {
			t.Errorf("%d calls were made and %d refused, want %d and %d", made, refused, available, 200-available)
		}
		budgettest.CheckBalance(t, processes[1].Budgets, budgettest.Acme.ID, "calls", available, 0)
		budgettest.CheckBalance(t, processes[1].Budgets, budgettest.Acme.ID, "mine", available, 0)
		budgettest.CheckBalance(t, processes[1].Budgets, "", "tokens", 11*available, 0)
		budgettest.CheckConsistent(t, processes[2].Budgets)
	})
}

// TestExpiredReservations checks the expiry of a dead process's reservations, with a usage row and without.
func TestExpiredReservations(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		gone, s := budgettest.Open(t, d), budgettest.Open(t, d)
		budgettest.AddBudget(t, gone.Budgets, budgettest.Acme, budgettest.TokenBudget(1000))
		if _, err := s.Budgets.ListBudgets(t.Context(), budgettest.Acme.ID); err != nil {
			t.Fatal(err)
		}
		a, m := gone.Budgets.NewGate(budgettest.Acme.ID, ""), gone.Usage.NewMeter(budgettest.Acme.ID, "")
		requests := []budget.Request{budgettest.NewRequest(), budgettest.NewRequest(), budgettest.NewRequest()}
		var reserved []*budget.CostReservation
		for _, x := range requests {
			r, err := a.ReserveBudget(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			reserved = append(reserved, r)
		}
		// The second call has written its usage row.
		row := usage.RunFacts{Task: "t1", Agent: "assistant", Owner: budgettest.Ana, Events: []agentsvc.Event{{Usage: new(budgettest.UsageOf(reserved[1], requests[1], 10, 20))}}}
		if err := m.WriteUsage(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		if err := s.Budgets.ExpireReservations(t.Context()); err != nil {
			t.Fatal(err)
		}
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "tokens", 0, 330)
		expireReservations(t, d)
		for range 2 {
			if err := s.Budgets.ExpireReservations(t.Context()); err != nil {
				t.Fatal(err)
			}
			budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "tokens", 30, 0)
		}
		// The process was only suspended: what it used counts, once.
		for i, r := range reserved {
			if err := r.SettleReservation(t.Context(), m, budgettest.UsageOf(r, requests[i], 10, 20)); err != nil {
				t.Fatal(err)
			}
		}
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "tokens", 90, 0)
		budgettest.CheckConsistent(t, s.Budgets)
	})
}

// expireReservations makes all reservations expire.
func expireReservations(t testing.TB, d *db.DB) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, `UPDATE reservation SET expires_at = 0`)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// TestThresholds checks that each threshold is recorded once in a window.
func TestThresholds(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		budgettest.AddBudget(t, s.Budgets, budgettest.Acme, budgettest.CallBudget(20))
		for range 20 {
			x := budgettest.NewRequest()
			r, err := s.Budgets.NewGate(budgettest.Acme.ID, "").ReserveBudget(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.SettleReservation(t.Context(), s.Usage.NewMeter(budgettest.Acme.ID, ""), budgettest.UsageOf(r, x, 1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := s.Budgets.FindBudget(t.Context(), budgettest.Acme.ID, "calls")
		if err != nil {
			t.Fatal(err)
		}
		var list [][2]int64
		for _, p := range got.PassedThresholds {
			list = append(list, [2]int64{int64(p.Threshold), p.Committed})
		}
		if diff := cmp.Diff([][2]int64{{80, 16}, {95, 19}, {100, 20}}, list); diff != "" {
			t.Errorf("thresholds (-want +got):\n%s", diff)
		}
	})
}

// TestMoney checks a budget of money, and that a model without a price is refused.
func TestMoney(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		price := price.Version{Version: "one", Currency: "USD", Effective: january, Items: []price.Item{
			usagetest.ChargeItem("input_tokens", "", "m", 1000, 3), usagetest.ChargeItem("output_tokens", "", "m", 1, 7), usagetest.ChargeItem("reasoning_tokens", "", "m", 1, 9),
		}}
		if _, err := s.Prices.AddVersion(t.Context(), actor, price); err != nil {
			t.Fatal(err)
		}
		money := budget.Budget{Name: "money", Unit: budget.InMoney, Amount: 500, Window: calendar.Day, Hard: true}
		budgettest.AddBudget(t, s.Budgets, budgettest.Acme, money)
		a, m := s.Budgets.NewGate(budgettest.Acme.ID, ""), s.Usage.NewMeter(budgettest.Acme.ID, "")
		x := budgettest.NewRequest()
		r, err := a.ReserveBudget(t.Context(), x)
		if err != nil || r.Output != 55 { // 1 for the input, 4 for rounding, 9 for each output token
			t.Fatalf("%+v, %v, want 55 tokens", r, err)
		}
		u := budgettest.UsageOf(r, x, 10, 55)
		u.ReasoningTokens = 5
		if err := r.SettleReservation(t.Context(), m, u); err != nil {
			t.Fatal(err)
		}
		budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, "money", 1+50*7+5*9, 0)
		budgettest.CheckConsistent(t, s.Budgets)
		y := budgettest.NewRequest()
		y.Model = "free"
		_, err = a.ReserveBudget(t.Context(), y)
		if !errors.Is(err, agentsvc.CodeInvalid) {
			t.Errorf("a model without a price: %v", err)
		}
	})
}

// TestNewBudget checks that usage from before a budget was created counts.
func TestNewBudget(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := budgettest.Open(t, d)
		m := s.Usage.NewMeter(budgettest.Acme.ID, "")
		for i, at := range []time.Time{time.Now(), time.Now(), time.Now().AddDate(-1, 0, 0)} {
			u := agentsvc.Usage{Call: fmt.Sprint(i), StartedAt: at, Provider: "openai", Model: "gpt", InputTokens: 7, OutputTokens: 3}
			if err := m.WriteUsage(t.Context(), usage.RunFacts{Task: "t1", Agent: "assistant", Owner: budgettest.Ana, Events: []agentsvc.Event{{Usage: &u}}}); err != nil {
				t.Fatal(err)
			}
		}
		for name, want := range map[string]struct {
			scope     budget.Scope
			committed int64
		}{
			"all": {budget.Scope{}, 20}, "agent": {budget.Scope{Agent: "assistant"}, 20}, "other": {budget.Scope{Agent: "x"}, 0},
			"user": {budget.Scope{User: "ana"}, 20}, "key": {budget.Scope{Key: "ana"}, 0}, "model": {budget.Scope{Model: "openai/*"}, 20},
			"name": {budget.Scope{Model: "gpt"}, 20}, "stranger": {budget.Scope{Model: "claude*"}, 0},
		} {
			b := budgettest.TokenBudget(100)
			b.Name, b.Scope, b.Window = name, want.scope, calendar.Month
			budgettest.AddBudget(t, s.Budgets, budgettest.Acme, b)
			budgettest.CheckBalance(t, s.Budgets, budgettest.Acme.ID, name, want.committed, 0)
		}
	})
}

// TestReservationsAddUp runs reservations, settlements, releases and expiries in random order. Committed must be what
// was used, reserved what is in progress, and a hard budget is exceeded only by what a vendor reports beyond its bound.
func TestReservationsAddUp(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		app := tenancy.App{ID: db.ID(fmt.Sprintf("app-%d", n)), Name: "app"}
		s := budgettest.OpenWith(t, d, budget.Options{Log: usagetest.Log, MaxWait: 1})
		amount := rapid.Int64Range(0, 2000).Draw(rt, "amount")
		budgettest.AddBudget(t, s.Budgets, app, budgettest.TokenBudget(amount))
		a, m := s.Budgets.NewGate(app.ID, ""), s.Usage.NewMeter(app.ID, "")
		type reserved struct {
			*budget.CostReservation
			ask    budget.Request
			lapsed bool
		}
		var pending []reserved
		var spent int64
		honest := true
		rt.Repeat(map[string]func(*rapid.T){
			"reserve": func(rt *rapid.T) {
				x := budgettest.NewRequest()
				x.Output = rapid.Int64Range(1, 300).Draw(rt, "output")
				x.MinOutput = 1
				r, err := a.ReserveBudget(t.Context(), x)
				if err == nil {
					pending = append(pending, reserved{r, x, false})
				}
			},
			"settle": func(rt *rapid.T) {
				if len(pending) == 0 {
					rt.Skip()
				}
				h := pending[0]
				pending = pending[1:]
				out := rapid.Int64Range(0, h.Output).Draw(rt, "out")
				if rapid.IntRange(0, 9).Draw(rt, "more") == 0 {
					out, honest = h.Output+50, false
				}
				honest = honest && !h.lapsed
				if err := h.SettleReservation(t.Context(), m, budgettest.UsageOf(h.CostReservation, h.ask, 10, out)); err != nil {
					rt.Fatal(err)
				}
				spent += 10 + out
			},
			"release": func(rt *rapid.T) {
				if len(pending) == 0 {
					rt.Skip()
				}
				if err := pending[0].ReleaseReservation(t.Context()); err != nil {
					rt.Fatal(err)
				}
				pending = pending[1:]
			},
			"lapse": func(rt *rapid.T) {
				expireReservations(t, d)
				if err := s.Budgets.ExpireReservations(t.Context()); err != nil {
					rt.Fatal(err)
				}
				for i := range pending {
					pending[i].lapsed = true
				}
			},
			"": func(rt *rapid.T) {
				var reserved int64
				for _, h := range pending {
					if !h.lapsed {
						reserved += 10 + h.Output
					}
				}
				if got, want := budgettest.FindBalance(t, s.Budgets, app.ID, "tokens"), [2]int64{spent, reserved}; got != want {
					rt.Fatalf("the budget stands at %v, want %v", got, want)
				}
				if honest && spent+reserved > amount {
					rt.Fatalf("%d spent and %d reserved of %d", spent, reserved, amount)
				}
			},
		})
	})
}

// replaceWith returns an edit that replaces a budget by b.
func replaceWith(b budget.Budget) func(budget.Budget) (budget.Budget, error) {
	return func(budget.Budget) (budget.Budget, error) { return b, nil }
}

func wantExhausted(t testing.TB, err error, budgets ...string) {
	t.Helper()
	if e := agentsvc.DetailOf[*agentsvc.ExhaustedBudget](err); e == nil || !slices.Contains(budgets, e.Budget) {
		t.Errorf("error %v, want that one of %v is used up", err, budgets)
	}
}
