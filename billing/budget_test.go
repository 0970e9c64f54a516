package billing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"stoa/agentsvc"
	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

var acme = tenancy.App{ID: "acme-id", Name: "acme"}

var ana = agentsvc.Owner{Issuer: "stoa", Subject: "ana"}

// callBudget returns a hard budget of n calls.
func callBudget(n int64) billing.Budget {
	return billing.Budget{Name: "calls", Unit: billing.InCalls, Amount: n, Window: billing.Month, Hard: true}
}

// tokenBudget returns a hard budget of n tokens.
func tokenBudget(n int64) billing.Budget {
	return billing.Budget{Name: "tokens", Unit: billing.InTokens, Amount: n, Window: billing.Total, Hard: true}
}

// addBudget creates a budget of app, or of the platform for the zero App.
func addBudget(t *testing.T, s *billing.Service, app tenancy.App, b billing.Budget) {
	t.Helper()
	if _, err := s.Budgets.AddBudget(t.Context(), actor, app, b); err != nil {
		t.Fatal(err)
	}
}

// replaceWith returns an edit that replaces a budget by b.
func replaceWith(b billing.Budget) func(billing.Budget) (billing.Budget, error) {
	return func(billing.Budget) (billing.Budget, error) { return b, nil }
}

// newUsageRequest returns the request of a call by ana of up to 110 tokens.
func newUsageRequest() billing.UsageRequest {
	return billing.UsageRequest{
		Call: agentsvc.NewID(), Task: "t1", Epoch: 1, Agent: "assistant", Owner: ana, Provider: "scripted", Model: "m", Input: 10, Output: 100, MinOutput: 20,
	}
}

// usageOf returns the usage of a reservation's call.
func usageOf(r *billing.Reservation, a billing.UsageRequest, in, out int64) agentsvc.Usage {
	return agentsvc.Usage{Call: a.Call, StartedAt: r.Began, Provider: a.Provider, Model: a.Model, InputTokens: in, OutputTokens: out}
}

// balanceOf returns what is committed and reserved of a budget.
func balanceOf(t *testing.T, s *billing.Service, app db.ID, name string) [2]int64 {
	t.Helper()
	b, err := s.Budgets.FindBudget(t.Context(), app, name)
	if err != nil {
		t.Fatal(err)
	}
	return [2]int64{b.Committed, b.Reserved}
}

func wantBalance(t *testing.T, s *billing.Service, app db.ID, name string, committed, reserved int64) {
	t.Helper()
	if got := balanceOf(t, s, app, name); got != [2]int64{committed, reserved} {
		t.Errorf("the budget %s stands at %v, want %v", name, got, [2]int64{committed, reserved})
	}
}

// wantConsistent fails the test if a balance differs from the sum of the rows.
func wantConsistent(t testing.TB, s *billing.Service) {
	t.Helper()
	wrong, err := s.Budgets.RebuildBalances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range wrong {
		t.Errorf("the rows do not add up to the balance: %+v", d)
	}
}

func TestBudgets(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := openBilling(t, d)
		want := billing.Budget{
			App: acme.ID, Name: "month", Scope: billing.Scope{Agent: "assistant", Model: "openai/*"}, Unit: billing.InTokens, Amount: 1000, Window: billing.Month,
			Zone: "Europe/Berlin", Hard: true, OnExhausted: billing.Reject, Thresholds: []int{80, 95, 100},
		}
		given := want
		given.OnExhausted, given.Thresholds = "", nil
		made, err := s.Budgets.AddBudget(t.Context(), actor, acme, given)
		if err != nil {
			t.Fatal(err)
		}
		ignore := cmpopts.IgnoreFields(billing.Budget{}, "ID", "CreatedAt", "UpdatedAt")
		unexported := cmpopts.IgnoreUnexported(billing.Budget{})
		if diff := cmp.Diff(want, made.Budget, ignore, unexported); diff != "" {
			t.Errorf("made (-want +got):\n%s", diff)
		}
		if _, until := billing.Month.Bounds(time.Now(), loadLocation(t, "Europe/Berlin")); !made.ResetsAt.Equal(until) || made.Remaining() != 1000 {
			t.Errorf("resets at %v with %d left, want %v with all", made.ResetsAt, made.Remaining(), until)
		}
		_, err = s.Budgets.AddBudget(t.Context(), actor, acme, given)
		wantErr(t, err, tenancy.ErrExists)
		addBudget(t, s, tenancy.App{}, callBudget(5))

		change := made.Budget
		change.Amount, change.Hard = 2000, false
		if _, err := s.Budgets.UpdateBudget(t.Context(), actor, acme, change.Name, replaceWith(change)); err != nil {
			t.Fatal(err)
		}
		change.Window = billing.Day
		_, err = s.Budgets.UpdateBudget(t.Context(), actor, acme, change.Name, replaceWith(change))
		wantInvalid(t, err, "window")

		got, err := s.Budgets.ListBudgets(t.Context(), acme.ID)
		if err != nil || len(got) != 1 || got[0].Amount != 2000 || got[0].Hard {
			t.Errorf("budgets %+v, %v", got, err)
		}
		wantErr(t, s.Budgets.DeleteBudget(t.Context(), actor, tenancy.App{ID: "globex-id"}, "month"), tenancy.ErrNotFound)
		if err := s.Budgets.DeleteBudget(t.Context(), actor, acme, "month"); err != nil {
			t.Fatal(err)
		}
		_, err = s.Budgets.FindBudget(t.Context(), acme.ID, "month")
		wantErr(t, err, tenancy.ErrNotFound)
	})
}

func TestBudgetMistakes(t *testing.T) {
	t.Parallel()
	s := openBilling(t, dbtest.NewSQLite(t))
	for field, change := range map[string]func(*billing.Budget){
		"name":         func(b *billing.Budget) { b.Name = "a b" },
		"unit":         func(b *billing.Budget) { b.Unit = "euros" },
		"amount":       func(b *billing.Budget) { b.Amount = -1 },
		"window":       func(b *billing.Budget) { b.Window = "decade" },
		"timezone":     func(b *billing.Budget) { b.Zone = "Mars/Olympus" },
		"on_exhausted": func(b *billing.Budget) { b.OnExhausted = "explode" },
		"thresholds":   func(b *billing.Budget) { b.Thresholds = []int{101} },
		"currency":     func(b *billing.Budget) { b.Unit = billing.InMoney },
	} {
		t.Run(field, func(t *testing.T) {
			b := callBudget(1)
			change(&b)
			_, err := s.Budgets.AddBudget(t.Context(), actor, acme, b)
			wantInvalid(t, err, field)
		})
	}
	soft := callBudget(1)
	soft.Hard, soft.OnExhausted = false, billing.Pause
	_, err := s.Budgets.AddBudget(t.Context(), actor, acme, soft)
	wantInvalid(t, err, "on_exhausted")
}

// TestReserve checks reservation and settlement: all budgets that apply take part, or none.
func TestReserve(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := openBilling(t, d)
		a, m := s.Budgets.NewBudgetGate(acme.ID, ""), s.Usage.NewMeter(acme.ID, "")
		if r, err := a.ReserveUsage(t.Context(), newUsageRequest()); r != nil || err != nil {
			t.Fatalf("without a budget: %v, %v", r, err)
		}
		addBudget(t, s, acme, tokenBudget(1000))
		addBudget(t, s, tenancy.App{}, callBudget(2))
		other := tokenBudget(5)
		other.Name, other.Scope = "others", billing.Scope{User: "bob"}
		addBudget(t, s, acme, other)

		first := newUsageRequest()
		r, err := a.ReserveUsage(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		wantBalance(t, s, acme.ID, "tokens", 0, 110)
		wantBalance(t, s, "", "calls", 0, 1)
		wantBalance(t, s, acme.ID, "others", 0, 0)
		for range 2 { // a repetition changes nothing
			if err := r.SettleUsage(t.Context(), m, usageOf(r, first, 9, 30)); err != nil {
				t.Fatal(err)
			}
		}
		wantBalance(t, s, acme.ID, "tokens", 39, 0)
		wantBalance(t, s, "", "calls", 1, 0)

		if r, err = a.ReserveUsage(t.Context(), newUsageRequest()); err != nil {
			t.Fatal(err)
		}
		if err := r.ReleaseUsage(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantBalance(t, s, acme.ID, "tokens", 39, 0)
		wantBalance(t, s, "", "calls", 1, 0)

		last := newUsageRequest()
		if r, err = a.ReserveUsage(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		if err := r.SettleUsage(t.Context(), m, usageOf(r, last, 10, 5000)); err != nil { // more than was reserved
			t.Fatal(err)
		}
		wantBalance(t, s, acme.ID, "tokens", 5049, 0)
		_, err = a.ReserveUsage(t.Context(), newUsageRequest())
		wantExhausted(t, err, "tokens", "calls")
		wantExhausted(t, a.CheckBudget(t.Context(), "assistant", ana), "calls")
		wantBalance(t, s, "", "calls", 2, 0)
		wantConsistent(t, s)
	})
}

func wantExhausted(t testing.TB, err error, budgets ...string) {
	t.Helper()
	var e *agentsvc.BudgetExhaustedError
	if !errors.As(err, &e) || !slices.Contains(budgets, e.Budget) {
		t.Errorf("error %v, want that one of %v is used up", err, budgets)
	}
}

// TestScarceBudget checks that a response is shortened to what is left, down to its useful minimum, and that a call
// waits for calls in progress.
func TestScarceBudget(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := openBilling(t, d)
		a, m := s.Budgets.NewBudgetGate(acme.ID, ""), s.Usage.NewMeter(acme.ID, "")
		addBudget(t, s, acme, tokenBudget(150))
		one, two, three := newUsageRequest(), newUsageRequest(), newUsageRequest()
		first, err := a.ReserveUsage(t.Context(), one)
		if err != nil || first.Output != 100 {
			t.Fatal(first, err)
		}
		second, err := a.ReserveUsage(t.Context(), two)
		if err != nil || second.Output != 30 {
			t.Fatalf("%+v, %v, want an answer of 30", second, err)
		}
		wantBalance(t, s, acme.ID, "tokens", 0, 150)
		go func() {
			time.Sleep(50 * time.Millisecond)
			_ = first.SettleUsage(context.Background(), m, usageOf(first, one, 10, 10))
		}()
		third, err := a.ReserveUsage(t.Context(), three)
		if err != nil || third.Output != 80 {
			t.Fatalf("%+v, %v, want what the first gives back", third, err)
		}
		for _, r := range []struct {
			*billing.Reservation
			of  billing.UsageRequest
			out int64
		}{{second, two, 30}, {third, three, 80}} {
			if err := r.SettleUsage(t.Context(), m, usageOf(r.Reservation, r.of, 10, r.out)); err != nil {
				t.Fatal(err)
			}
		}
		wantBalance(t, s, acme.ID, "tokens", 150, 0)
		_, err = a.ReserveUsage(t.Context(), newUsageRequest())
		wantExhausted(t, err, "tokens")
	})
}

// TestManyCallers checks that 200 callers in three processes do not exceed small budgets by a single unit.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		const available = 37
		processes := []*billing.Service{openBilling(t, d), openBilling(t, d), openBilling(t, d)}
		addBudget(t, processes[0], acme, callBudget(available))
		addBudget(t, processes[0], tenancy.App{}, tokenBudget(100_000))
		mine := callBudget(1000)
		mine.Name, mine.Scope = "mine", billing.Scope{User: "ana"}
		addBudget(t, processes[0], acme, mine)
		for _, s := range processes {
			if _, err := s.Budgets.ListBudgets(t.Context(), acme.ID); err != nil {
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
				x := newUsageRequest()
				r, err := s.Budgets.NewBudgetGate(acme.ID, "").ReserveUsage(t.Context(), x)
				if err == nil {
					err = r.SettleUsage(t.Context(), s.Usage.NewMeter(acme.ID, ""), usageOf(r, x, 5, 6))
				}
				var e *agentsvc.BudgetExhaustedError
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					made++
				case errors.As(err, &e):
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
		wantBalance(t, processes[1], acme.ID, "calls", available, 0)
		wantBalance(t, processes[1], acme.ID, "mine", available, 0)
		wantBalance(t, processes[1], "", "tokens", 11*available, 0)
		wantConsistent(t, processes[2])
	})
}

// TestExpiredReservations checks the expiry of a dead process's reservations, with a usage row and without.
func TestExpiredReservations(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		gone, s := openBilling(t, d), openBilling(t, d)
		addBudget(t, gone, acme, tokenBudget(1000))
		if _, err := s.Budgets.ListBudgets(t.Context(), acme.ID); err != nil {
			t.Fatal(err)
		}
		a, m := gone.Budgets.NewBudgetGate(acme.ID, ""), gone.Usage.NewMeter(acme.ID, "")
		requests := []billing.UsageRequest{newUsageRequest(), newUsageRequest(), newUsageRequest()}
		var reserved []*billing.Reservation
		for _, x := range requests {
			r, err := a.ReserveUsage(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			reserved = append(reserved, r)
		}
		// The second call has written its usage row.
		row := billing.RunFacts{Task: "t1", Agent: "assistant", Owner: ana, Events: []agentsvc.Event{{Usage: new(usageOf(reserved[1], requests[1], 10, 20))}}}
		if err := m.WriteUsage(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		if err := s.Budgets.ExpireReservations(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantBalance(t, s, acme.ID, "tokens", 0, 330)
		expireReservations(t, d)
		for range 2 {
			if err := s.Budgets.ExpireReservations(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantBalance(t, s, acme.ID, "tokens", 30, 0)
		}
		// The process was only suspended: what it used counts, once.
		for i, r := range reserved {
			if err := r.SettleUsage(t.Context(), m, usageOf(r, requests[i], 10, 20)); err != nil {
				t.Fatal(err)
			}
		}
		wantBalance(t, s, acme.ID, "tokens", 90, 0)
		wantConsistent(t, s)
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
		s := openBilling(t, d)
		addBudget(t, s, acme, callBudget(20))
		for range 20 {
			x := newUsageRequest()
			r, err := s.Budgets.NewBudgetGate(acme.ID, "").ReserveUsage(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.SettleUsage(t.Context(), s.Usage.NewMeter(acme.ID, ""), usageOf(r, x, 1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := s.Budgets.FindBudget(t.Context(), acme.ID, "calls")
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
		s := openBilling(t, d)
		price := billing.PriceVersion{Version: "one", Currency: "USD", Effective: january, Items: []billing.PriceItem{
			chargeItem("input_tokens", "", "m", 1000, 3), chargeItem("output_tokens", "", "m", 1, 7), chargeItem("reasoning_tokens", "", "m", 1, 9),
		}}
		if _, err := s.Prices.AddPriceVersion(t.Context(), actor, price); err != nil {
			t.Fatal(err)
		}
		money := billing.Budget{Name: "money", Unit: billing.InMoney, Amount: 500, Window: billing.Day, Hard: true}
		addBudget(t, s, acme, money)
		a, m := s.Budgets.NewBudgetGate(acme.ID, ""), s.Usage.NewMeter(acme.ID, "")
		x := newUsageRequest()
		r, err := a.ReserveUsage(t.Context(), x)
		if err != nil || r.Output != 55 { // 1 for the input, 4 for rounding, 9 for each output token
			t.Fatalf("%+v, %v, want 55 tokens", r, err)
		}
		u := usageOf(r, x, 10, 55)
		u.ReasoningTokens = 5
		if err := r.SettleUsage(t.Context(), m, u); err != nil {
			t.Fatal(err)
		}
		wantBalance(t, s, acme.ID, "money", 1+50*7+5*9, 0)
		wantConsistent(t, s)
		y := newUsageRequest()
		y.Model = "free"
		_, err = a.ReserveUsage(t.Context(), y)
		var invalid *agentsvc.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("a model without a price: %v", err)
		}
	})
}

// TestNewBudget checks that usage from before a budget was created counts.
func TestNewBudget(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := openBilling(t, d)
		m := s.Usage.NewMeter(acme.ID, "")
		for i, at := range []time.Time{time.Now(), time.Now(), time.Now().AddDate(-1, 0, 0)} {
			u := agentsvc.Usage{Call: fmt.Sprint(i), StartedAt: at, Provider: "openai", Model: "gpt", InputTokens: 7, OutputTokens: 3}
			if err := m.WriteUsage(t.Context(), billing.RunFacts{Task: "t1", Agent: "assistant", Owner: ana, Events: []agentsvc.Event{{Usage: &u}}}); err != nil {
				t.Fatal(err)
			}
		}
		for name, want := range map[string]struct {
			scope     billing.Scope
			committed int64
		}{
			"all": {billing.Scope{}, 20}, "agent": {billing.Scope{Agent: "assistant"}, 20}, "other": {billing.Scope{Agent: "x"}, 0},
			"user": {billing.Scope{User: "ana"}, 20}, "key": {billing.Scope{Key: "ana"}, 0}, "model": {billing.Scope{Model: "openai/*"}, 20},
			"name": {billing.Scope{Model: "gpt"}, 20}, "stranger": {billing.Scope{Model: "claude*"}, 0},
		} {
			b := tokenBudget(100)
			b.Name, b.Scope, b.Window = name, want.scope, billing.Month
			addBudget(t, s, acme, b)
			wantBalance(t, s, acme.ID, name, want.committed, 0)
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
		s, err := billing.Open(t.Context(), d, nil, billing.Options{Log: slog.New(slog.DiscardHandler), MaxWait: 1})
		if err != nil {
			rt.Fatal(err)
		}
		amount := rapid.Int64Range(0, 2000).Draw(rt, "amount")
		addBudget(t, s, app, tokenBudget(amount))
		a, m := s.Budgets.NewBudgetGate(app.ID, ""), s.Usage.NewMeter(app.ID, "")
		type reserved struct {
			*billing.Reservation
			ask    billing.UsageRequest
			lapsed bool
		}
		var pending []reserved
		var spent int64
		honest := true
		rt.Repeat(map[string]func(*rapid.T){
			"reserve": func(rt *rapid.T) {
				x := newUsageRequest()
				x.Output = rapid.Int64Range(1, 300).Draw(rt, "output")
				x.MinOutput = 1
				r, err := a.ReserveUsage(t.Context(), x)
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
				if err := h.SettleUsage(t.Context(), m, usageOf(h.Reservation, h.ask, 10, out)); err != nil {
					rt.Fatal(err)
				}
				spent += 10 + out
			},
			"release": func(rt *rapid.T) {
				if len(pending) == 0 {
					rt.Skip()
				}
				if err := pending[0].ReleaseUsage(t.Context()); err != nil {
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
				if got, want := balanceOf(t, s, app.ID, "tokens"), [2]int64{spent, reserved}; got != want {
					rt.Fatalf("the budget stands at %v, want %v", got, want)
				}
				if honest && spent+reserved > amount {
					rt.Fatalf("%d spent and %d reserved of %d", spent, reserved, amount)
				}
			},
		})
	})
}
