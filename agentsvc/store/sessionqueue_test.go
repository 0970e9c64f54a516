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

// newQueuedRun returns the first turn of a new task in session c1, leased to worker, or waiting in the session's
// queue where that is "".
func newQueuedRun(worker string) store.Run {
	run := newRun(worker)
	run.IsNewContext = false
	return run
}

// loadRunStates reads the states of runs.
func loadRunStates(t *testing.T, d *db.DB, runs ...store.Run) (got []store.RunState) {
	t.Helper()
	for _, run := range runs {
		state, _, _ := loadRunState(t, d, run)
		got = append(got, state)
	}
	return got
}

func promoteNextRun(t *testing.T, s *store.Store) bool {
	t.Helper()
	called, err := s.Runs.PromoteNext(t.Context(), ana, "c1")
	if err != nil {
		t.Fatal(err)
	}
	return called
}

// TestSessionQueue: whatever becomes of the head, the runs behind it keep their order and begin only after it has
// ended.
func TestSessionQueue(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		ctx, q := t.Context(), store.NewRunQueue(d)
		record := func(end store.RunState, state agentsvc.State) func(run *store.Run) error {
			return func(run *store.Run) error {
				rec := store.Record{Events: sequenceEvents(run.Task, run.Seq+1, statusEvent(state, agentMessage("x"))), EndState: end, RetryDelay: time.Hour}
				if state == "" {
					rec.Events = nil
				}
				if err := s.Runs.WriteRecord(ctx, run, rec); err != nil || !run.HasQueuedRuns {
					return fmt.Errorf("its worker hears that others wait: %v (%w)", run.HasQueuedRuns, err)
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
				return s.Tasks.Cancel(ctx, loadTask(t, s, run.Task), sequenceEvents(run.Task, run.Seq+1, statusEvent(agentsvc.Cancelled, nil))[0])
			}, true, false},
			{"is dropped", func(run *store.Run) error {
				setTask(t, d, *run, "turn = 2")
				return q.DropRun(ctx, *run)
			}, true, false},
			{"is tried again in an hour", record(store.Pending, ""), false, false},
			{"is given back", func(run *store.Run) error { return q.ReturnRun(ctx, *run, store.ReturnOptions{}) }, false, true},
			{"is postponed", func(run *store.Run) error {
				return q.ReturnRun(ctx, *run, store.ReturnOptions{Delay: time.Hour, Uncounted: true})
			}, false, false},
			{"is released", func(*store.Run) error { _, err := q.ReleaseRuns(ctx, "w1"); return err }, false, true},
			{"loses its worker", func(*store.Run) error { _, _, err := q.RescueRuns(ctx, time.Hour); return err }, false, true},
		} {
			head := createTask(t, s, newQueuedRun("w1"))
			second, third := createTask(t, s, newQueuedRun("")), createTask(t, s, newQueuedRun(""))
			if promoteNextRun(t, s) {
				t.Errorf("%s: the second begins beside the first", c.name)
			}
			if err := c.do(&head); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if n, err := q.PromoteStalledRuns(ctx); err != nil || (n == 1) != c.frees {
				t.Errorf("%s: called up %d (%v)", c.name, n, err)
			}
			want := []store.RunState{store.Waiting, store.Waiting}
			if c.frees {
				want[0] = store.Pending
			}
			if diff := cmp.Diff(want, loadRunStates(t, d, second, third)); diff != "" {
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
			claimed, err := claimRuns(ctx, q, "w2", 10)
			for _, run := range claimed {
				got = append(got, run.Task)
			}
			if diff := cmp.Diff(due, got); err != nil || diff != "" {
				t.Errorf("%s: claimed (%v)\n%s", c.name, err, diff)
			}
			for _, run := range []store.Run{head, second, third} {
				seen := loadTask(t, s, run.Task)
				if !seen.Status.State.IsTerminal() {
					if err := s.Tasks.Cancel(ctx, seen, sequenceEvents(run.Task, seen.Seq+1, statusEvent(agentsvc.Cancelled, nil))[0]); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got := loadRunStates(t, d, second, third); promoteNextRun(t, s) || got[0] != store.Completed || got[1] != store.Completed {
				t.Errorf("%s: cancelled, those behind it are %v", c.name, got)
			}
		}
	})
}

// TestOccupied: a run that may not wait is written only if the session is free; another session, owner or tenant, or
// a new context, does not occupy it.
func TestOccupied(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		head := createTask(t, s, newQueuedRun("w1"))
		waiting := createTask(t, s, newQueuedRun(""))
		asking, _ := createPausedTask(t, s, 0)
		before := dumpTables(t, d)
		alone := newQueuedRun("w2")
		idle := newQueuedRun("")
		for _, run := range []store.Run{alone, idle} { // neither may wait
			if err := s.Tasks.Create(t.Context(), store.NewTurn{Run: run, Events: openingEvents(run), Sent: &store.SentMessage{Message: "m9", Context: "c1", Hash: "h"}}); !errors.Is(err, agentsvc.ErrSessionBusy) {
				t.Errorf("accepted: %v", err)
			}
		}
		again, evs := nextTurn(asking, "w2", "more")
		again.IsNewContext = false
		if err := s.Tasks.Continue(t.Context(), asking, store.NewTurn{Run: again, Events: evs}); !errors.Is(err, agentsvc.ErrSessionBusy) {
			t.Errorf("continued: %v", err)
		}
		resumed := store.NewTurn{Run: again}
		r := store.DecisionRecord{Events: evs[1:], NextTurn: &resumed}
		r.Events[0].Seq, resumed.Seq = asking.Seq+1, asking.Seq+1
		if err := s.Approvals.RecordDecisions(t.Context(), asking, r); !errors.Is(err, agentsvc.ErrSessionBusy) {
			t.Errorf("decided: %v", err)
		}
		if diff := cmp.Diff(before, dumpTables(t, d)); diff != "" {
			t.Errorf("what was refused left\n%s", diff)
		}
		resumed.Worker, resumed.Attempts, resumed.MayWait = "", 0, true
		if err := s.Approvals.RecordDecisions(t.Context(), asking, r); err != nil {
			t.Errorf("decided, to wait: %v", err)
		}
		if ids, err := s.Runs.ListQueuedTasks(t.Context(), ana, "c1"); err != nil || !slices.Equal(ids, []agentsvc.TaskID{again.Task, waiting.Task, head.Task}) {
			t.Errorf("the line is %v (%v)", ids, err)
		}
		for name, change := range map[string]func(run *store.Run){
			"context": func(run *store.Run) { run.Context = "c2" },
			"subject": func(run *store.Run) { run.Owner.Subject = "bob" },
			"issuer":  func(run *store.Run) { run.Owner.Issuer = "other" },
			"fresh":   func(run *store.Run) { run.IsNewContext = true },
			"tenant":  func(run *store.Run) { run.Tenant = "globex" },
		} {
			run := newQueuedRun("w2")
			change(&run)
			if err := store.New(d, run.Tenant).Tasks.Create(t.Context(), newTurn(run)); err != nil {
				t.Errorf("another %s: %v", name, err)
			}
		}
	})
}

// TestOpeningRunIsQueued: the run that opened a context enters the session's queue when another run joins it.
func TestOpeningRunIsQueued(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		fresh := func(worker string) store.Run {
			run := newRun(worker)
			run.Context = agentsvc.ContextID(agentsvc.NewID())
			return createTask(t, s, run)
		}
		follower := func(of store.Run, worker string) store.Run {
			run := newQueuedRun(worker)
			run.Context = of.Context
			return run
		}
		for _, worker := range []string{"w1", ""} {
			began := fresh(worker)
			alone := follower(began, "w2")
			if err := s.Tasks.Create(t.Context(), newTurn(alone)); !errors.Is(err, agentsvc.ErrSessionBusy) {
				t.Errorf("beside a fresh run of %q: %v", worker, err)
			}
			other := follower(began, "w2")
			other.Owner.Subject = "bob"
			if err := s.Tasks.Create(t.Context(), newTurn(other)); err != nil {
				t.Errorf("somebody else's: %v", err)
			}
			behind := createTask(t, s, follower(began, ""))
			if worker == "" {
				began = leaseRun(t, d, began.Task, 1)
				if _, err := s.Runs.BeginRun(t.Context(), &began); err != nil {
					t.Fatal(err)
				}
			}
			if got := loadRunStates(t, d, behind); got[0] != store.Waiting {
				t.Errorf("behind a fresh run of %q: %s", worker, got[0])
			}
			rec := store.Record{Events: sequenceEvents(began.Task, began.Seq+1, statusEvent(agentsvc.Completed, nil)), EndState: store.Completed}
			if err := s.Runs.WriteRecord(t.Context(), &began, rec); err != nil || !began.HasQueuedRuns {
				t.Errorf("ended %v, followed %v", err, began.HasQueuedRuns)
			}
			if called, err := s.Runs.PromoteNext(t.Context(), ana, began.Context); err != nil || !called {
				t.Errorf("called up %v (%v)", called, err)
			}
		}
		ended := fresh("w1")
		rec := store.Record{Events: sequenceEvents(ended.Task, 3, statusEvent(agentsvc.Completed, nil)), EndState: store.Completed}
		if err := s.Runs.WriteRecord(t.Context(), &ended, rec); err != nil || ended.HasQueuedRuns {
			t.Errorf("ended %v, followed %v", err, ended.HasQueuedRuns)
		}
		createTask(t, s, follower(ended, "w2"))
	})
}

// TestOverdueInSessionQueue: a task whose approval expired is ended although another run of its session executes, and
// blocks no other run.
func TestOverdueInSessionQueue(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		q := store.NewRunQueue(d)
		late := newQueuedRun("w1")
		createTask(t, s, late)
		rec := store.Record{Events: sequenceEvents(late.Task, 3, approvalEvent("c1", time.Microsecond), statusEvent(agentsvc.InputRequired, agentMessage("May I?"))), EndState: store.InputRequired}
		if err := s.Runs.WriteRecord(t.Context(), &late, rec); err != nil {
			t.Fatal(err)
		}
		createTask(t, s, newQueuedRun("w1"))
		behind := createTask(t, s, newQueuedRun(""))
		time.Sleep(time.Millisecond)
		if n, err := q.WakeOverdueRuns(t.Context()); err != nil || n != 1 {
			t.Errorf("%d overdue (%v)", n, err)
		}
		if runs, err := claimRuns(t.Context(), q, "w2", 10); err != nil || len(runs) != 1 || runs[0].Task != late.Task {
			t.Errorf("claimed %+v (%v)", runs, err)
		}
		if got := loadRunStates(t, d, behind); promoteNextRun(t, s) || got[0] != store.Waiting {
			t.Errorf("another began beside the first: %s", got[0])
		}
	})
}

// TestSessionQueueAtOnce: of many concurrent runs of an empty session one becomes the head.
func TestSessionQueueAtOnce(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		const n = 40
		runs, errs := make([]store.Run, n), make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			runs[i] = newQueuedRun([]string{"w1", ""}[i%2])
			wg.Go(func() {
				for range n {
					errs[i] = s.Tasks.Create(context.Background(), newTurn(runs[i]))
					if runs[i].Worker != "" || !errors.Is(errs[i], agentsvc.ErrSessionBusy) {
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
				count[loadRunStates(t, d, runs[i])[0]]++
			case runs[i].Worker == "" || !errors.Is(err, agentsvc.ErrSessionBusy):
				t.Error(err)
			}
		}
		if cachedTasks := count[store.Running] + count[store.Pending]; cachedTasks != 1 || count[store.Waiting] < n/2-1 {
			t.Errorf("%v, want one at the head and those who wait behind it", count)
		}
	})
}
