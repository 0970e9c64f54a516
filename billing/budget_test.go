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

// calls is a hard budget of calls.
func calls(n int64) billing.Budget {
	return billing.Budget{Name: "calls", Unit: billing.InCalls, Amount: n, Window: billing.Month, Hard: true}
}

// tokens is a hard budget of tokens.
func tokens(n int64) billing.Budget {
	return billing.Budget{Name: "tokens", Unit: billing.InTokens, Amount: n, Window: billing.Total, Hard: true}
}

// add makes a budget, for the platform where app is the zero one.
func add(t *testing.T, s *billing.Service, app tenancy.App, b billing.Budget) {
	t.Helper()
	if _, err := s.AddBudget(t.Context(), actor, app, b); err != nil {
		t.Fatal(err)
	}
}

// to makes a budget b, whatever it was.
func to(b billing.Budget) func(billing.Budget) (billing.Budget, error) {
	return func(billing.Budget) (billing.Budget, error) { return b, nil }
}

// ask is a call of ana's of up to 110 tokens.
func ask() billing.Ask {
	return billing.Ask{
		Call: agentsvc.NewID(), Task: "t1", Epoch: 1, Agent: "assistant", Owner: ana, Provider: "scripted", Model: "m", Input: 10, Output: 100, Least: 20,
	}
}

// used is what the call of a reservation has used.
func used(r *billing.Reservation, a billing.Ask, in, out int64) agentsvc.Usage {
	return agentsvc.Usage{Call: a.Call, Began: r.Began, Provider: a.Provider, Model: a.Model, InputTokens: in, OutputTokens: out}
}

// standing is how far a budget is used up.
func standing(t *testing.T, s *billing.Service, app db.ID, name string) [2]int64 {
	t.Helper()
	b, err := s.Find(t.Context(), app, name)
	if err != nil {
		t.Fatal(err)
	}
	return [2]int64{b.Committed, b.Reserved}
}

func wantStanding(t *testing.T, s *billing.Service, app db.ID, name string, committed, reserved int64) {
	t.Helper()
	if got := standing(t, s, app, name); got != [2]int64{committed, reserved} {
		t.Errorf("the budget %s stands at %v, want %v", name, got, [2]int64{committed, reserved})
	}
}

// wantRight fails the test if a balance is not what the rows add up to.
func wantRight(t testing.TB, s *billing.Service) {
	t.Helper()
	wrong, err := s.RebuildAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range wrong {
		t.Errorf("the rows do not add up to the balance: %+v", d)
	}
}

func TestBudgets(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		want := billing.Budget{
			App: acme.ID, Name: "month", Scope: billing.Scope{Agent: "assistant", Model: "openai/*"}, Unit: billing.InTokens, Amount: 1000, Window: billing.Month,
			Zone: "Europe/Berlin", Hard: true, OnExhausted: billing.Reject, Thresholds: []int{80, 95, 100},
		}
		given := want
		given.OnExhausted, given.Thresholds = "", nil
		made, err := s.AddBudget(t.Context(), actor, acme, given)
		if err != nil {
			t.Fatal(err)
		}
		ignore := cmpopts.IgnoreFields(billing.Budget{}, "ID", "CreatedAt", "UpdatedAt")
		unexported := cmpopts.IgnoreUnexported(billing.Budget{})
		if diff := cmp.Diff(want, made.Budget, ignore, unexported); diff != "" {
			t.Errorf("made (-want +got):\n%s", diff)
		}
		if _, until := billing.Month.Bounds(time.Now(), location(t, "Europe/Berlin")); !made.ResetsAt.Equal(until) || made.Remaining() != 1000 {
			t.Errorf("resets at %v with %d left, want %v with all", made.ResetsAt, made.Remaining(), until)
		}
		_, err = s.AddBudget(t.Context(), actor, acme, given)
		wantErr(t, err, billing.ErrExists)
		add(t, s, tenancy.App{}, calls(5))

		change := made.Budget
		change.Amount, change.Hard = 2000, false
		if _, err := s.PutBudget(t.Context(), actor, acme, change.Name, to(change)); err != nil {
			t.Fatal(err)
		}
		change.Window = billing.Day
		_, err = s.PutBudget(t.Context(), actor, acme, change.Name, to(change))
		wantInvalid(t, err, "window")

		got, err := s.Budgets(t.Context(), acme.ID)
		if err != nil || len(got) != 1 || got[0].Amount != 2000 || got[0].Hard {
			t.Errorf("budgets %+v, %v", got, err)
		}
		wantErr(t, s.DeleteBudget(t.Context(), actor, tenancy.App{ID: "globex-id"}, "month"), billing.ErrNotFound)
		if err := s.DeleteBudget(t.Context(), actor, acme, "month"); err != nil {
			t.Fatal(err)
		}
		_, err = s.Find(t.Context(), acme.ID, "month")
		wantErr(t, err, billing.ErrNotFound)
	})
}

func TestBudgetMistakes(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.SQLite(t))
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
			b := calls(1)
			change(&b)
			_, err := s.AddBudget(t.Context(), actor, acme, b)
			wantInvalid(t, err, field)
		})
	}
	soft := calls(1)
	soft.Hard, soft.OnExhausted = false, billing.Pause
	_, err := s.AddBudget(t.Context(), actor, acme, soft)
	wantInvalid(t, err, "on_exhausted")
}

// TestReserve walks a call through reservation and settlement: all budgets that apply take part, or none.
func TestReserve(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		a, m := s.Allowance(acme.ID, ""), s.Meter(acme.ID, "")
		if r, err := a.Reserve(t.Context(), ask()); r != nil || err != nil {
			t.Fatalf("without a budget: %v, %v", r, err)
		}
		add(t, s, acme, tokens(1000))
		add(t, s, tenancy.App{}, calls(2))
		other := tokens(5)
		other.Name, other.Scope = "others", billing.Scope{User: "bob"}
		add(t, s, acme, other)

		first := ask()
		r, err := a.Reserve(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		wantStanding(t, s, acme.ID, "tokens", 0, 110)
		wantStanding(t, s, "", "calls", 0, 1)
		wantStanding(t, s, acme.ID, "others", 0, 0)
		for range 2 { // again changes nothing
			if err := r.Settle(t.Context(), m, used(r, first, 9, 30)); err != nil {
				t.Fatal(err)
			}
		}
		wantStanding(t, s, acme.ID, "tokens", 39, 0)
		wantStanding(t, s, "", "calls", 1, 0)

		if r, err = a.Reserve(t.Context(), ask()); err != nil {
			t.Fatal(err)
		}
		if err := r.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantStanding(t, s, acme.ID, "tokens", 39, 0)
		wantStanding(t, s, "", "calls", 1, 0)

		last := ask()
		if r, err = a.Reserve(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		if err := r.Settle(t.Context(), m, used(r, last, 10, 5000)); err != nil { // more than it could be
			t.Fatal(err)
		}
		wantStanding(t, s, acme.ID, "tokens", 5049, 0)
		_, err = a.Reserve(t.Context(), ask())
		wantExhausted(t, err, "tokens", "calls")
		wantExhausted(t, a.Check(t.Context(), "assistant", ana), "calls")
		wantStanding(t, s, "", "calls", 2, 0)
		wantRight(t, s)
	})
}

func wantExhausted(t testing.TB, err error, budgets ...string) {
	t.Helper()
	var e *agentsvc.ExhaustedError
	if !errors.As(err, &e) || !slices.Contains(budgets, e.Budget) {
		t.Errorf("error %v, want that one of %v is used up", err, budgets)
	}
}

// TestScarce bounds an answer to what is left, as long as that is of use, and waits for calls under way.
func TestScarce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		a, m := s.Allowance(acme.ID, ""), s.Meter(acme.ID, "")
		add(t, s, acme, tokens(150))
		one, two, three := ask(), ask(), ask()
		first, err := a.Reserve(t.Context(), one)
		if err != nil || first.Output != 100 {
			t.Fatal(first, err)
		}
		second, err := a.Reserve(t.Context(), two)
		if err != nil || second.Output != 30 {
			t.Fatalf("%+v, %v, want an answer of 30", second, err)
		}
		wantStanding(t, s, acme.ID, "tokens", 0, 150)
		go func() {
			time.Sleep(50 * time.Millisecond)
			_ = first.Settle(context.Background(), m, used(first, one, 10, 10))
		}()
		third, err := a.Reserve(t.Context(), three)
		if err != nil || third.Output != 80 {
			t.Fatalf("%+v, %v, want what the first gives back", third, err)
		}
		for _, r := range []struct {
			*billing.Reservation
			of  billing.Ask
			out int64
		}{{second, two, 30}, {third, three, 80}} {
			if err := r.Settle(t.Context(), m, used(r.Reservation, r.of, 10, r.out)); err != nil {
				t.Fatal(err)
			}
		}
		wantStanding(t, s, acme.ID, "tokens", 150, 0)
		_, err = a.Reserve(t.Context(), ask())
		wantExhausted(t, err, "tokens")
	})
}

// TestManyCallers has 200 callers of three processes share small budgets. None passes, by not one unit.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const room = 37
		processes := []*billing.Service{open(t, d), open(t, d), open(t, d)}
		add(t, processes[0], acme, calls(room))
		add(t, processes[0], tenancy.App{}, tokens(100_000))
		mine := calls(1000)
		mine.Name, mine.Scope = "mine", billing.Scope{User: "ana"}
		add(t, processes[0], acme, mine)
		for _, s := range processes {
			if _, err := s.Budgets(t.Context(), acme.ID); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Budgets(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		made, refused := 0, 0
		for i := range 200 {
			all.Go(func() {
				s := processes[i%3]
				x := ask()
				r, err := s.Allowance(acme.ID, "").Reserve(t.Context(), x)
				if err == nil {
					err = r.Settle(t.Context(), s.Meter(acme.ID, ""), used(r, x, 5, 6))
				}
				var e *agentsvc.ExhaustedError
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
		if made != room || refused != 200-room {
			t.Errorf("%d calls were made and %d refused, want %d and %d", made, refused, room, 200-room)
		}
		wantStanding(t, processes[1], acme.ID, "calls", room, 0)
		wantStanding(t, processes[1], acme.ID, "mine", room, 0)
		wantStanding(t, processes[1], "", "tokens", 11*room, 0)
		wantRight(t, processes[2])
	})
}

// TestLapse ends the reservation of a process that is gone, with what its call has used and without.
func TestLapse(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		gone, s := open(t, d), open(t, d)
		add(t, gone, acme, tokens(1000))
		if _, err := s.Budgets(t.Context(), acme.ID); err != nil {
			t.Fatal(err)
		}
		a, m := gone.Allowance(acme.ID, ""), gone.Meter(acme.ID, "")
		asks := []billing.Ask{ask(), ask(), ask()}
		var held []*billing.Reservation
		for _, x := range asks {
			r, err := a.Reserve(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, r)
		}
		// The second has got as far as its usage row.
		row := billing.Facts{Task: "t1", Agent: "assistant", Owner: ana, Events: []agentsvc.Event{{Usage: new(used(held[1], asks[1], 10, 20))}}}
		if err := m.Write(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		if err := s.Lapse(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantStanding(t, s, acme.ID, "tokens", 0, 330)
		expire(t, d)
		for range 2 {
			if err := s.Lapse(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantStanding(t, s, acme.ID, "tokens", 30, 0)
		}
		// It was only asleep: what it used counts, once.
		for i, r := range held {
			if err := r.Settle(t.Context(), m, used(r, asks[i], 10, 20)); err != nil {
				t.Fatal(err)
			}
		}
		wantStanding(t, s, acme.ID, "tokens", 90, 0)
		wantRight(t, s)
	})
}

// expire lets the time of all reservations be over.
func expire(t testing.TB, d *db.DB) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, `UPDATE reservation SET expires_at = 0`)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// TestThresholds notes each threshold once in a window.
func TestThresholds(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		add(t, s, acme, calls(20))
		for range 20 {
			x := ask()
			r, err := s.Allowance(acme.ID, "").Reserve(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Settle(t.Context(), s.Meter(acme.ID, ""), used(r, x, 1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := s.Find(t.Context(), acme.ID, "calls")
		if err != nil {
			t.Fatal(err)
		}
		var list [][2]int64
		for _, p := range got.Passed {
			list = append(list, [2]int64{int64(p.Threshold), p.Committed})
		}
		if diff := cmp.Diff([][2]int64{{80, 16}, {95, 19}, {100, 20}}, list); diff != "" {
			t.Errorf("thresholds (-want +got):\n%s", diff)
		}
	})
}

// TestMoney holds calls to a budget of money, and refuses what has no price.
func TestMoney(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		price := billing.Price{Version: "one", Currency: "USD", Effective: january, Items: []billing.Item{
			charge("input_tokens", "", "m", 1000, 3), charge("output_tokens", "", "m", 1, 7), charge("reasoning_tokens", "", "m", 1, 9),
		}}
		if _, err := s.AddPrice(t.Context(), actor, price); err != nil {
			t.Fatal(err)
		}
		money := billing.Budget{Name: "money", Unit: billing.InMoney, Amount: 500, Window: billing.Day, Hard: true}
		add(t, s, acme, money)
		a, m := s.Allowance(acme.ID, ""), s.Meter(acme.ID, "")
		x := ask()
		r, err := a.Reserve(t.Context(), x)
		if err != nil || r.Output != 55 { // 1 for the input, 4 against rounding, 9 for each token
			t.Fatalf("%+v, %v, want 55 tokens", r, err)
		}
		u := used(r, x, 10, 55)
		u.ReasoningTokens = 5
		if err := r.Settle(t.Context(), m, u); err != nil {
			t.Fatal(err)
		}
		wantStanding(t, s, acme.ID, "money", 1+50*7+5*9, 0)
		wantRight(t, s)
		y := ask()
		y.Model = "free"
		_, err = a.Reserve(t.Context(), y)
		var invalid *agentsvc.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("a model without a price: %v", err)
		}
	})
}

// TestNewBudget counts what was used before the budget was made.
func TestNewBudget(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		m := s.Meter(acme.ID, "")
		for i, at := range []time.Time{time.Now(), time.Now(), time.Now().AddDate(-1, 0, 0)} {
			u := agentsvc.Usage{Call: fmt.Sprint(i), Began: at, Provider: "openai", Model: "gpt", InputTokens: 7, OutputTokens: 3}
			if err := m.Write(t.Context(), billing.Facts{Task: "t1", Agent: "assistant", Owner: ana, Events: []agentsvc.Event{{Usage: &u}}}); err != nil {
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
			b := tokens(100)
			b.Name, b.Scope, b.Window = name, want.scope, billing.Month
			add(t, s, acme, b)
			wantStanding(t, s, acme.ID, name, want.committed, 0)
		}
	})
}

// TestReservationsAddUp plays reservations, settlements, releases and lapses in any order: what is committed is what was
// used, what is reserved is what is under way, and a hard cap is passed only by what a vendor reports beyond its bound.
func TestReservationsAddUp(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		app := tenancy.App{ID: db.ID(fmt.Sprintf("app-%d", n)), Name: "app"}
		s, err := billing.Open(t.Context(), d, nil, billing.Options{Log: slog.New(slog.DiscardHandler), Patience: 1})
		if err != nil {
			rt.Fatal(err)
		}
		amount := rapid.Int64Range(0, 2000).Draw(rt, "amount")
		add(t, s, app, tokens(amount))
		a, m := s.Allowance(app.ID, ""), s.Meter(app.ID, "")
		type held struct {
			*billing.Reservation
			ask    billing.Ask
			lapsed bool
		}
		var under []held
		var spent int64
		honest := true
		rt.Repeat(map[string]func(*rapid.T){
			"reserve": func(rt *rapid.T) {
				x := ask()
				x.Output = rapid.Int64Range(1, 300).Draw(rt, "output")
				x.Least = 1
				r, err := a.Reserve(t.Context(), x)
				if err == nil {
					under = append(under, held{r, x, false})
				}
			},
			"settle": func(rt *rapid.T) {
				if len(under) == 0 {
					rt.Skip()
				}
				h := under[0]
				under = under[1:]
				out := rapid.Int64Range(0, h.Output).Draw(rt, "out")
				if rapid.IntRange(0, 9).Draw(rt, "more") == 0 {
					out, honest = h.Output+50, false
				}
				honest = honest && !h.lapsed
				if err := h.Settle(t.Context(), m, used(h.Reservation, h.ask, 10, out)); err != nil {
					rt.Fatal(err)
				}
				spent += 10 + out
			},
			"release": func(rt *rapid.T) {
				if len(under) == 0 {
					rt.Skip()
				}
				if err := under[0].Release(t.Context()); err != nil {
					rt.Fatal(err)
				}
				under = under[1:]
			},
			"lapse": func(rt *rapid.T) {
				expire(t, d)
				if err := s.Lapse(t.Context()); err != nil {
					rt.Fatal(err)
				}
				for i := range under {
					under[i].lapsed = true
				}
			},
			"": func(rt *rapid.T) {
				var reserved int64
				for _, h := range under {
					if !h.lapsed {
						reserved += 10 + h.Output
					}
				}
				if got, want := standing(t, s, app.ID, "tokens"), [2]int64{spent, reserved}; got != want {
					rt.Fatalf("the budget stands at %v, want %v", got, want)
				}
				if honest && spent+reserved > amount {
					rt.Fatalf("%d spent and %d reserved of %d", spent, reserved, amount)
				}
			},
		})
	})
}
