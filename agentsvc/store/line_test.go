package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// inLine is the first turn of a new task of the session c1, at work at worker, or behind the others where that is "".
func inLine(worker string) store.Run {
	run := aRun(worker)
	run.Fresh, run.Wait = false, worker == ""
	return run
}

// states reads the states of runs.
func states(t *testing.T, d *db.DB, runs ...store.Run) (got []store.RunState) {
	t.Helper()
	for _, run := range runs {
		state, _, _ := runState(t, d, run)
		got = append(got, state)
	}
	return got
}

func next1(t *testing.T, s *store.Store) bool {
	t.Helper()
	called, err := s.CallUp(t.Context(), ana, "c1")
	if err != nil {
		t.Fatal(err)
	}
	return called
}

// TestLine: whatever becomes of the run at the head, those behind it keep their order, and begin when it has ended and
// not before.
func TestLine(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, s *store.Store) {
		ctx, q := t.Context(), store.NewRuns(d)
		record := func(end store.RunState, state agentsvc.State) func(run *store.Run) error {
			return func(run *store.Run) error {
				rec := store.Record{Events: events(run.Task, run.Seq+1, status(state, says("x"))), End: end, Delay: time.Hour}
				if state == "" {
					rec.Events = nil
				}
				if err := s.Record(ctx, run, rec); err != nil || !run.Followed {
					return fmt.Errorf("its worker hears that others wait: %v (%w)", run.Followed, err)
				}
				return nil
			}
		}
		for _, c := range []struct {
			name  string
			do    func(run *store.Run) error
			frees bool
			due   bool // the head can be claimed
		}{
			{"completes", record(store.Completed, agentsvc.Completed), true, false},
			{"fails", record(store.Failed, agentsvc.Failed), true, false},
			{"asks its user", record(store.InputRequired, agentsvc.InputRequired), true, false},
			{"waits for a credential", record(store.InputRequired, agentsvc.AuthRequired), true, false},
			{"is cancelled", func(run *store.Run) error {
				return s.Cancel(ctx, task(t, s, run.Task), events(run.Task, run.Seq+1, status(agentsvc.Cancelled, nil))[0])
			}, true, false},
			{"is dropped", func(run *store.Run) error { return q.Drop(ctx, *run) }, true, false},
			{"is tried again in an hour", record(store.Pending, ""), false, false},
			{"is given back", func(run *store.Run) error { return q.GiveBack(ctx, *run, store.Back{}) }, false, true},
			{"is postponed", func(run *store.Run) error { return q.GiveBack(ctx, *run, store.Back{Delay: time.Hour, Free: true}) }, false, false},
			{"is released", func(*store.Run) error { return q.Release(ctx, "w1") }, false, true},
			{"loses its worker", func(*store.Run) error { _, err := q.Rescue(ctx, time.Hour); return err }, false, true},
		} {
			head := accept(t, s, inLine("w1"))
			second, third := accept(t, s, inLine("")), accept(t, s, inLine(""))
			if next1(t, s) {
				t.Errorf("%s: the second begins beside the first", c.name)
			}
			if err := c.do(&head); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if n, err := q.CallUp(ctx); err != nil || (n == 1) != c.frees {
				t.Errorf("%s: called up %d (%v)", c.name, n, err)
			}
			want := []store.RunState{store.Waiting, store.Waiting}
			if c.frees {
				want[0] = store.Pending
			}
			if diff := cmp.Diff(want, states(t, d, second, third)); diff != "" {
				t.Errorf("%s: those behind it\n%s", c.name, diff)
			}
			var due []agentsvc.TaskID
			switch {
			case c.frees:
				due = append(due, second.Task)
			case c.due:
				due = append(due, head.Task)
			}
			var got []agentsvc.TaskID
			claimed, err := claim(ctx, q, "w2", 10)
			for _, run := range claimed {
				got = append(got, run.Task)
			}
			if diff := cmp.Diff(due, got); err != nil || diff != "" {
				t.Errorf("%s: claimed (%v)\n%s", c.name, err, diff)
			}
			for _, run := range []store.Run{head, second, third} {
				seen := task(t, s, run.Task)
				if !seen.Status.State.Terminal() {
					if err := s.Cancel(ctx, seen, events(run.Task, seen.Seq+1, status(agentsvc.Cancelled, nil))[0]); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got := states(t, d, second, third); next1(t, s) || got[0] != store.Completed || got[1] != store.Completed {
				t.Errorf("%s: cancelled, those behind it are %v", c.name, got)
			}
		}
	})
}

// TestOccupied: who is not to wait is born alone or not at all; another session, owner, tenant or a fresh context is
// in nobody's way.
func TestOccupied(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, s *store.Store) {
		head := accept(t, s, inLine("w1"))
		waiting := accept(t, s, inLine(""))
		asking, _ := paused(t, s, 0)
		before := dump(t, d)
		alone := inLine("w2")
		idle := inLine("")
		idle.Wait = false
		for _, run := range []store.Run{alone, idle} {
			if err := s.Accept(t.Context(), run, first(run), &store.Sent{Message: "m9", Context: "c1", Hash: "h"}); !errors.Is(err, agentsvc.ErrOccupied) {
				t.Errorf("accepted: %v", err)
			}
		}
		again, evs := next(asking, "w2", "more")
		again.Fresh = false
		if err := s.Continue(t.Context(), asking.Task, asking.Epoch, again, evs, nil); !errors.Is(err, agentsvc.ErrOccupied) {
			t.Errorf("continued: %v", err)
		}
		r := store.Ruling{Events: evs[1:], Next: &again}
		r.Events[0].Seq, again.Seq = asking.Seq+1, asking.Seq+1
		if err := s.Decide(t.Context(), asking, r); !errors.Is(err, agentsvc.ErrOccupied) {
			t.Errorf("decided: %v", err)
		}
		if diff := cmp.Diff(before, dump(t, d)); diff != "" {
			t.Errorf("what was refused left\n%s", diff)
		}
		again.Worker, again.Attempts, again.Wait = "", 0, true
		if err := s.Decide(t.Context(), asking, r); err != nil {
			t.Errorf("decided, to wait: %v", err)
		}
		if ids, err := s.Line(t.Context(), ana, "c1"); err != nil || !slices.Equal(ids, []agentsvc.TaskID{again.Task, waiting.Task, head.Task}) {
			t.Errorf("the line is %v (%v)", ids, err)
		}
		for name, change := range map[string]func(run *store.Run){
			"context": func(run *store.Run) { run.Context = "c2" },
			"subject": func(run *store.Run) { run.Owner.Subject = "bob" },
			"issuer":  func(run *store.Run) { run.Owner.Issuer = "other" },
			"fresh":   func(run *store.Run) { run.Fresh = true },
			"tenant":  func(run *store.Run) { run.Tenant = "globex" },
		} {
			run := inLine("w2")
			change(&run)
			if err := store.New(d, run.Tenant).Accept(t.Context(), run, first(run), nil); err != nil {
				t.Errorf("another %s: %v", name, err)
			}
		}
	})
}

// TestAdopt: the run that began a session takes its place in line when somebody comes behind it.
func TestAdopt(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, s *store.Store) {
		fresh := func(worker string) store.Run {
			run := aRun(worker)
			run.Context = store.FreshContext(run.Task)
			return accept(t, s, run)
		}
		follower := func(of store.Run, worker string) store.Run {
			run := inLine(worker)
			run.Context = of.Context
			return run
		}
		for _, worker := range []string{"w1", ""} {
			began := fresh(worker)
			if began.Context == agentsvc.ContextID(began.Task) {
				t.Fatal("a context has the id of its task")
			}
			alone := follower(began, "w2")
			if err := s.Accept(t.Context(), alone, first(alone), nil); !errors.Is(err, agentsvc.ErrOccupied) {
				t.Errorf("beside a fresh run of %q: %v", worker, err)
			}
			stranger := follower(began, "w2")
			stranger.Owner.Subject = "bob"
			if err := s.Accept(t.Context(), stranger, first(stranger), nil); err != nil {
				t.Errorf("somebody else's: %v", err)
			}
			behind := accept(t, s, follower(began, ""))
			if worker == "" {
				began = leased(t, d, began.Task, 1)
				if _, err := s.Begin(t.Context(), &began); err != nil {
					t.Fatal(err)
				}
			}
			if got := states(t, d, behind); got[0] != store.Waiting {
				t.Errorf("behind a fresh run of %q: %s", worker, got[0])
			}
			rec := store.Record{Events: events(began.Task, began.Seq+1, status(agentsvc.Completed, nil)), End: store.Completed}
			if err := s.Record(t.Context(), &began, rec); err != nil || !began.Followed {
				t.Errorf("ended %v, followed %v", err, began.Followed)
			}
			if called, err := s.CallUp(t.Context(), ana, began.Context); err != nil || !called {
				t.Errorf("called up %v (%v)", called, err)
			}
		}
		over := fresh("w1")
		rec := store.Record{Events: events(over.Task, 3, status(agentsvc.Completed, nil)), End: store.Completed}
		if err := s.Record(t.Context(), &over, rec); err != nil || over.Followed {
			t.Errorf("ended %v, followed %v", err, over.Followed)
		}
		accept(t, s, follower(over, "w2"))
	})
}

// TestOverdueInLine: a task that nobody decided on is ended although its session is at work, and keeps nobody waiting.
func TestOverdueInLine(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, s *store.Store) {
		q := store.NewRuns(d)
		late := inLine("w1")
		accept(t, s, late)
		rec := store.Record{Events: events(late.Task, 3, approval("c1", time.Microsecond), status(agentsvc.InputRequired, says("May I?"))), End: store.InputRequired}
		if err := s.Record(t.Context(), &late, rec); err != nil {
			t.Fatal(err)
		}
		accept(t, s, inLine("w1"))
		behind := accept(t, s, inLine(""))
		time.Sleep(time.Millisecond)
		if n, err := q.Overdue(t.Context()); err != nil || n != 1 {
			t.Errorf("%d overdue (%v)", n, err)
		}
		if runs, err := claim(t.Context(), q, "w2", 10); err != nil || len(runs) != 1 || runs[0].Task != late.Task {
			t.Errorf("claimed %+v (%v)", runs, err)
		}
		if got := states(t, d, behind); next1(t, s) || got[0] != store.Waiting {
			t.Errorf("another began beside the first: %s", got[0])
		}
	})
}

// TestLineAtOnce: of many who come at once to an empty session one is at its head.
func TestLineAtOnce(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, s *store.Store) {
		const n = 40
		runs, errs := make([]store.Run, n), make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			runs[i] = inLine([]string{"w1", ""}[i%2])
			wg.Go(func() {
				for range n {
					errs[i] = s.Accept(context.Background(), runs[i], first(runs[i]), nil)
					if !runs[i].Wait || !errors.Is(errs[i], agentsvc.ErrOccupied) {
						return
					}
				}
			})
		}
		wg.Wait()
		count := map[store.RunState]int{}
		for i, err := range errs {
			switch {
			case err == nil:
				count[states(t, d, runs[i])[0]]++
			case runs[i].Wait || !errors.Is(err, agentsvc.ErrOccupied):
				t.Error(err)
			}
		}
		if heads := count[store.Running] + count[store.Pending]; heads != 1 || count[store.Waiting] < n/2-1 {
			t.Errorf("%v, want one at the head and those who wait behind it", count)
		}
	})
}
