package store_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

func approval(call agentsvc.CallID, timeout time.Duration) agentsvc.Event {
	return agentsvc.Event{Frame: "team/writer", Approval: &agentsvc.Approval{
		Call: agentsvc.ToolCall{ID: call, Name: "send", Arguments: []byte(`{"to":"bob"}`)}, Kind: agentsvc.ApproveCall, Prompt: "Send it?", Timeout: timeout,
	}}
}

// paused accepts a task whose worker asks for approval of calls c1 and c2, the first of which must be decided in time.
func paused(t *testing.T, s *store.Store, timeout time.Duration) (store.Stored, store.Run) {
	t.Helper()
	run := accept(t, s, aRun("w1"))
	rec := store.Record{
		Events: events(run.Task, 3, message("think"), approval("c1", timeout), approval("c2", 0), status(agentsvc.InputRequired, says("May I?"))),
		End:    store.InputRequired,
	}
	if err := s.Record(t.Context(), &run, rec); err != nil {
		t.Fatal(err)
	}
	return waits(t, s, run.Task), run
}

func waits(t *testing.T, s *store.Store, id agentsvc.TaskID) store.Stored {
	t.Helper()
	got, err := s.Task(t.Context(), id, store.With{Approvals: true})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func open(t store.Stored) (calls []agentsvc.CallID) {
	for _, a := range t.Approvals {
		calls = append(calls, a.Call.ID)
	}
	return calls
}

// TestApprovals: what waits for a human comes with the fact that it does, and is told with its task.
func TestApprovals(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, s *store.Store) {
		seen, run := paused(t, s, time.Hour)
		want := *approval("c1", time.Hour).Approval
		want.Seq, want.Frame, want.At = 4, "team/writer", log(t, s, run.Task)[3].At
		if len(seen.Approvals) != 2 || seen.FirstSeq != 1 {
			t.Fatalf("%+v", seen)
		}
		if diff := cmp.Diff(want, seen.Approvals[0]); diff != "" {
			t.Error(diff)
		}
		page, err := s.Tasks(t.Context(), store.Filter{State: agentsvc.InputRequired, Limit: 10, With: store.With{Approvals: true}})
		listed := page.Tasks
		if err != nil || len(listed) != 1 {
			t.Fatalf("%+v (%v)", listed, err)
		}
		if diff := cmp.Diff(seen.Approvals, listed[0].Approvals); diff != "" {
			t.Error(diff)
		}
		if state, _, _ := runState(t, d, run); state != store.InputRequired {
			t.Errorf("the run is %s", state)
		}
		ev := events(run.Task, seen.Seq+1, status(agentsvc.Cancelled, nil))[0]
		if err := s.Cancel(t.Context(), seen, ev); err != nil {
			t.Fatal(err)
		}
		if got := waits(t, s, run.Task); got.Approvals != nil {
			t.Errorf("a cancelled task waits for %v", open(got))
		}
	})
}

// TestApprovalsLost: a worker that lost its task asks nobody.
func TestApprovalsLost(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, s *store.Store) {
		run := accept(t, s, aRun("w1"))
		taken := leased(t, d, run.Task, 1)
		if _, err := s.Begin(t.Context(), &taken); err != nil {
			t.Fatal(err)
		}
		before := dump(t, d)
		rec := store.Record{Events: events(run.Task, 3, approval("c1", 0), status(agentsvc.InputRequired, says("May I?"))), End: store.InputRequired}
		if err := s.Record(t.Context(), &run, rec); !errors.Is(err, agentsvc.ErrLost) {
			t.Error(err)
		}
		if diff := cmp.Diff(before, dump(t, d)); diff != "" {
			t.Error(diff)
		}
	})
}

// rule is a ruling on c1 and c2: it settles as many as calls says, and the task is then in state.
func rule(seen store.Stored, state agentsvc.State, calls ...agentsvc.CallID) store.Ruling {
	r := store.Ruling{Sender: ana, Sent: &store.Sent{Message: agentsvc.MessageID(agentsvc.NewID()), Context: "c1", Hash: "h"}}
	var evs []agentsvc.Event
	for _, a := range seen.Approvals {
		for _, c := range calls {
			if a.Call.ID == c {
				r.Settled = append(r.Settled, a.Seq)
				evs = append(evs, agentsvc.Event{Decision: &agentsvc.Decision{Call: c, Verdict: agentsvc.Approve, By: ana}})
			}
		}
	}
	r.Events = events(seen.ID, seen.Seq+1, append(evs, status(state, nil))...)
	if state == agentsvc.Working {
		r.Next = &store.Run{
			Tenant: "acme", Task: seen.ID, Turn: seen.Turn + 1, Agent: seen.Agent, Context: agentsvc.ContextID(seen.ID), Owner: seen.Owner, Revision: 8,
			Epoch: seen.Epoch + 1, FirstSeq: seen.FirstSeq,
		}
	}
	return r
}

// TestOneMoment: whoever reads a task while it is decided on sees it with the approvals and the history of one moment.
func TestOneMoment(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, s *store.Store) {
		for range 30 {
			seen, _ := paused(t, s, 0)
			open := map[int64]int{seen.Seq: 2, seen.Seq + 2: 1, seen.Seq + 4: 0} // by where the task stands
			var readers sync.WaitGroup
			for range 4 {
				readers.Go(func() {
					for {
						got, err := s.Task(t.Context(), seen.ID, store.With{Approvals: true, History: true})
						if err != nil || len(got.Approvals) != open[got.Seq] || len(got.History) != 3+2-open[got.Seq] {
							t.Errorf("at event %d it waits for %d decisions with %d messages (%v)", got.Seq, len(got.Approvals), len(got.History), err)
							return
						}
						if got.Seq == seen.Seq+4 {
							return
						}
					}
				})
			}
			first := rule(seen, agentsvc.InputRequired, "c1")
			first.Events[len(first.Events)-1].Status.Message = says("One more?")
			if err := s.Decide(t.Context(), seen, first); err != nil {
				t.Fatal(err)
			}
			between := waits(t, s, seen.ID)
			last := rule(between, agentsvc.InputRequired, "c2")
			last.Events[len(last.Events)-1].Status.Message = says("Thanks.")
			if err := s.Decide(t.Context(), between, last); err != nil {
				t.Fatal(err)
			}
			readers.Wait()
		}
	})
}

// TestDecide: one decision leaves the other open, the last one has the turn go on in a run of its own.
func TestDecide(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, s *store.Store) {
		seen, run := paused(t, s, time.Hour)
		if err := s.Decide(t.Context(), seen, rule(seen, agentsvc.InputRequired, "c2")); err != nil {
			t.Fatal(err)
		}
		between := waits(t, s, seen.ID)
		if diff := cmp.Diff([]agentsvc.CallID{"c1"}, open(between)); diff != "" || between.Turn != 1 || between.Status.State != agentsvc.InputRequired {
			t.Errorf("after one decision %+v\n%s", between, diff)
		}
		last := rule(between, agentsvc.Working, "c1")
		if err := s.Decide(t.Context(), between, last); err != nil {
			t.Fatal(err)
		}
		got := waits(t, s, seen.ID)
		if got.Approvals != nil || got.Turn != 2 || got.Status.State != agentsvc.Working || got.FirstSeq != 1 {
			t.Errorf("after both %+v", got)
		}
		gapless(t, log(t, s, seen.ID), 10)
		if state, attempts, worker := runState(t, d, *last.Next); state != store.Pending || attempts != 0 || worker != "" {
			t.Errorf("the next run is %s at %q after %d attempts", state, worker, attempts)
		}
		if state, _, _ := runState(t, d, run); state != store.InputRequired {
			t.Errorf("the run before is %s", state)
		}
		id, _, err := s.FindSent(t.Context(), ana, seen.Agent, *last.Sent)
		if err != nil || id != seen.ID {
			t.Errorf("the message that decided went to %q (%v)", id, err)
		}
	})
}

// TestDecideEnds: a task that a decision ends has no more runs and asks for nothing more.
func TestDecideEnds(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, s *store.Store) {
		seen, run := paused(t, s, time.Hour)
		if err := s.Decide(t.Context(), seen, rule(seen, agentsvc.Rejected, "c2")); err != nil {
			t.Fatal(err)
		}
		if got := waits(t, s, seen.ID); got.Status.State != agentsvc.Rejected || got.Approvals != nil {
			t.Errorf("%+v", got)
		}
		if state, _, _ := runState(t, d, run); state != store.Completed {
			t.Errorf("the run is %s", state)
		}
		if err := s.Decide(t.Context(), seen, rule(seen, agentsvc.Working, "c1")); !errors.Is(err, agentsvc.ErrLost) {
			t.Errorf("another decision: %v", err)
		}
	})
}

// TestDecideRace: of decisions made at once one counts, and the others leave nothing.
func TestDecideRace(t *testing.T) {
	each(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		for range 10 {
			seen, _ := paused(t, s, time.Hour)
			var won atomic.Int64
			var wg sync.WaitGroup
			for _, state := range []agentsvc.State{agentsvc.Working, agentsvc.Rejected, agentsvc.Working, agentsvc.InputRequired} {
				wg.Go(func() {
					switch err := s.Decide(t.Context(), seen, rule(seen, state, "c1", "c2")); {
					case err == nil:
						won.Add(1)
					case !errors.Is(err, agentsvc.ErrLost):
						t.Error(err)
					}
				})
			}
			wg.Go(func() {
				if s.Cancel(t.Context(), seen, events(seen.ID, seen.Seq+1, status(agentsvc.Cancelled, nil))[0]) == nil {
					won.Add(1)
				}
			})
			wg.Wait()
			if won.Load() != 1 {
				t.Errorf("%d won", won.Load())
			}
			gapless(t, log(t, s, seen.ID), int(waits(t, s, seen.ID).Seq))
		}
	})
}

// TestOverdue: a run whose decision is late is there to be claimed, once, and may be put to rest again.
func TestOverdue(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, s *store.Store) {
		ctx, q := t.Context(), store.NewRuns(d)
		seen, run := paused(t, s, time.Hour)
		if n, err := q.Overdue(ctx); err != nil || n != 0 {
			t.Fatalf("%d are overdue (%v)", n, err)
		}
		late, lateRun := paused(t, s, time.Microsecond)
		if n, err := q.Overdue(ctx); err != nil || n != 1 {
			t.Fatalf("%d are overdue (%v)", n, err)
		}
		if n, err := q.Overdue(ctx); err != nil || n != 0 {
			t.Fatalf("%d are overdue again (%v)", n, err)
		}
		if state, _, _ := runState(t, d, run); state != store.InputRequired {
			t.Errorf("the other run is %s", state)
		}
		claimed, err := claim(ctx, q, "w2", 10)
		if err != nil || len(claimed) != 1 || claimed[0].Task != late.ID {
			t.Fatalf("claimed %+v (%v)", claimed, err)
		}
		if _, err := s.Begin(ctx, &claimed[0]); !errors.Is(err, store.ErrWaiting) {
			t.Errorf("begun: %v", err)
		}
		seqs, err := s.Overdue(ctx, late.ID)
		if diff := cmp.Diff([]int64{4}, seqs); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		if err := s.Rest(ctx, claimed[0]); err != nil {
			t.Fatal(err)
		}
		if state, attempts, worker := runState(t, d, lateRun); state != store.InputRequired || attempts != 1 || worker != "" {
			t.Errorf("put to rest it is %s at %q after %d attempts", state, worker, attempts)
		}
		if seqs, err := s.Overdue(ctx, seen.ID); err != nil || seqs != nil {
			t.Errorf("%v (%v)", seqs, err)
		}
	})
}
