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

func approvalEvent(call agentsvc.CallID, timeout time.Duration) agentsvc.Event {
	return agentsvc.Event{Frame: "team/writer", Approval: &agentsvc.Approval{
		Call: agentsvc.ToolCall{ID: call, Name: "send", Arguments: []byte(`{"to":"bob"}`)}, Kind: agentsvc.ApproveCall, Prompt: "Send it?", Timeout: timeout,
	}}
}

// createPausedTask accepts a task whose worker asks for approval of the calls c1 and c2; the first one has a timeout.
func createPausedTask(t *testing.T, s *store.Store, timeout time.Duration) (store.StoredTask, store.Run) {
	t.Helper()
	run := createTask(t, s, newRun("w1"))
	rec := store.Record{
		Events:   sequenceEvents(run.Task, 3, messageEvent("think"), approvalEvent("c1", timeout), approvalEvent("c2", 0), statusEvent(agentsvc.InputRequired, agentMessage("May I?"))),
		EndState: store.InputRequired,
	}
	if err := s.Runs.WriteRecord(t.Context(), &run, rec); err != nil {
		t.Fatal(err)
	}
	return loadWithApprovals(t, s, run.Task), run
}

func loadWithApprovals(t *testing.T, s *store.Store, id agentsvc.TaskID) store.StoredTask {
	t.Helper()
	got, err := s.Tasks.Load(t.Context(), nil, id, store.TaskParts{Approvals: true})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func openCalls(t store.StoredTask) (calls []agentsvc.CallID) {
	for _, a := range t.Approvals {
		calls = append(calls, a.Call.ID)
	}
	return calls
}

// TestApprovals: open approvals are written with the status that waits for them, and are read with the task.
func TestApprovals(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		seen, run := createPausedTask(t, s, time.Hour)
		want := *approvalEvent("c1", time.Hour).Approval
		want.Seq, want.Frame, want.At = 4, "team/writer", loadLog(t, s, run.Task)[3].At
		if len(seen.Approvals) != 2 || seen.FirstSeq != 1 {
			t.Fatalf("%+v", seen)
		}
		if diff := cmp.Diff(want, seen.Approvals[0]); diff != "" {
			t.Error(diff)
		}
		page, err := s.Tasks.List(t.Context(), nil, store.TaskFilter{State: agentsvc.InputRequired, Limit: 10, Parts: store.TaskParts{Approvals: true}})
		listed := page.Tasks
		if err != nil || len(listed) != 1 {
			t.Fatalf("%+v (%v)", listed, err)
		}
		if diff := cmp.Diff(seen.Approvals, listed[0].Approvals); diff != "" {
			t.Error(diff)
		}
		if state, _, _ := loadRunState(t, d, run); state != store.InputRequired {
			t.Errorf("the run is %s", state)
		}
		ev := sequenceEvents(run.Task, seen.Seq+1, statusEvent(agentsvc.Cancelled, nil))[0]
		if err := s.Tasks.Cancel(t.Context(), seen, ev); err != nil {
			t.Fatal(err)
		}
		if got := loadWithApprovals(t, s, run.Task); got.Approvals != nil {
			t.Errorf("a cancelled task waits for %v", openCalls(got))
		}
	})
}

// TestApprovalsLost: a worker that has lost its lease opens no approval.
func TestApprovalsLost(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		run := createTask(t, s, newRun("w1"))
		taken := leaseRun(t, d, run.Task, 1)
		if _, err := s.Runs.BeginRun(t.Context(), &taken); err != nil {
			t.Fatal(err)
		}
		before := dumpTables(t, d)
		rec := store.Record{Events: sequenceEvents(run.Task, 3, approvalEvent("c1", 0), statusEvent(agentsvc.InputRequired, agentMessage("May I?"))), EndState: store.InputRequired}
		if err := s.Runs.WriteRecord(t.Context(), &run, rec); !errors.Is(err, agentsvc.ErrLeaseLost) {
			t.Error(err)
		}
		if diff := cmp.Diff(before, dumpTables(t, d)); diff != "" {
			t.Error(diff)
		}
	})
}

// newDecisionRecord returns decisions on the first calls of c1 and c2, after which the task is in state.
func newDecisionRecord(seen store.StoredTask, state agentsvc.State, calls ...agentsvc.CallID) store.DecisionRecord {
	r := store.DecisionRecord{Sender: ana, SentMessage: &store.SentMessage{Message: agentsvc.MessageID(agentsvc.NewID()), Context: "c1", Hash: "h"}}
	var evs []agentsvc.Event
	for _, a := range seen.Approvals {
		for _, c := range calls {
			if a.Call.ID == c {
				r.ClosedApprovals = append(r.ClosedApprovals, a.Seq)
				evs = append(evs, agentsvc.Event{Decision: &agentsvc.Decision{Call: c, Outcome: agentsvc.OutcomeApproved, By: ana}})
			}
		}
	}
	r.Events = sequenceEvents(seen.ID, seen.Seq+1, append(evs, statusEvent(state, nil))...)
	if state == agentsvc.Working {
		r.NextTurn = &store.NewTurn{Run: store.Run{
			Tenant: "acme", Task: seen.ID, Turn: seen.Turn + 1, Agent: seen.Agent, Context: agentsvc.ContextID(seen.ID), Owner: seen.Owner, Revision: 8, FirstSeq: seen.FirstSeq,
			Lease: store.Lease{Epoch: seen.Epoch + 1},
		}}
	}
	return r
}

// TestOneMoment: a task that is read while it is decided has the approvals and the history of one moment.
func TestOneMoment(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		for range 30 {
			seen, _ := createPausedTask(t, s, 0)
			open := map[int64]int{seen.Seq: 2, seen.Seq + 2: 1, seen.Seq + 4: 0} // by sequence of the task
			var readers sync.WaitGroup
			for range 4 {
				readers.Go(func() {
					for {
						got, err := s.Tasks.Load(t.Context(), nil, seen.ID, store.TaskParts{Approvals: true, History: true})
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
			first := newDecisionRecord(seen, agentsvc.InputRequired, "c1")
			first.Events[len(first.Events)-1].Status.Message = agentMessage("One more?")
			if err := s.Approvals.RecordDecisions(t.Context(), seen, first); err != nil {
				t.Fatal(err)
			}
			between := loadWithApprovals(t, s, seen.ID)
			last := newDecisionRecord(between, agentsvc.InputRequired, "c2")
			last.Events[len(last.Events)-1].Status.Message = agentMessage("Thanks.")
			if err := s.Approvals.RecordDecisions(t.Context(), between, last); err != nil {
				t.Fatal(err)
			}
			readers.Wait()
		}
	})
}

// TestDecide: one decision leaves the other approval open, the last one writes the run that continues the turn.
func TestDecide(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		seen, run := createPausedTask(t, s, time.Hour)
		if err := s.Approvals.RecordDecisions(t.Context(), seen, newDecisionRecord(seen, agentsvc.InputRequired, "c2")); err != nil {
			t.Fatal(err)
		}
		between := loadWithApprovals(t, s, seen.ID)
		if diff := cmp.Diff([]agentsvc.CallID{"c1"}, openCalls(between)); diff != "" || between.Turn != 1 || between.Status.State != agentsvc.InputRequired {
			t.Errorf("after one decision %+v\n%s", between, diff)
		}
		last := newDecisionRecord(between, agentsvc.Working, "c1")
		if err := s.Approvals.RecordDecisions(t.Context(), between, last); err != nil {
			t.Fatal(err)
		}
		got := loadWithApprovals(t, s, seen.ID)
		if got.Approvals != nil || got.Turn != 2 || got.Status.State != agentsvc.Working || got.FirstSeq != 1 {
			t.Errorf("after both %+v", got)
		}
		checkGapless(t, loadLog(t, s, seen.ID), 10)
		if state, attempts, worker := loadRunState(t, d, last.NextTurn.Run); state != store.Pending || attempts != 0 || worker != "" {
			t.Errorf("the next run is %s at %q after %d attempts", state, worker, attempts)
		}
		if state, _, _ := loadRunState(t, d, run); state != store.InputRequired {
			t.Errorf("the run before is %s", state)
		}
		id, _, err := s.Tasks.FindSentMessage(t.Context(), ana, seen.Agent, *last.SentMessage)
		if err != nil || id != seen.ID {
			t.Errorf("the message that decided went to %q (%v)", id, err)
		}
	})
}

// TestDecideEnds: a task that a decision ends has no unfinished run and no open approval.
func TestDecideEnds(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		seen, run := createPausedTask(t, s, time.Hour)
		if err := s.Approvals.RecordDecisions(t.Context(), seen, newDecisionRecord(seen, agentsvc.Rejected, "c2")); err != nil {
			t.Fatal(err)
		}
		if got := loadWithApprovals(t, s, seen.ID); got.Status.State != agentsvc.Rejected || got.Approvals != nil {
			t.Errorf("%+v", got)
		}
		if state, _, _ := loadRunState(t, d, run); state != store.Completed {
			t.Errorf("the run is %s", state)
		}
		if err := s.Approvals.RecordDecisions(t.Context(), seen, newDecisionRecord(seen, agentsvc.Working, "c1")); !errors.Is(err, agentsvc.ErrTaskChanged) {
			t.Errorf("another decision: %v", err)
		}
	})
}

// TestDecideRace: of concurrent decisions one is written, and the others leave nothing.
func TestDecideRace(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		for range 10 {
			seen, _ := createPausedTask(t, s, time.Hour)
			var won atomic.Int64
			var wg sync.WaitGroup
			for _, state := range []agentsvc.State{agentsvc.Working, agentsvc.Rejected, agentsvc.Working, agentsvc.InputRequired} {
				wg.Go(func() {
					switch err := s.Approvals.RecordDecisions(t.Context(), seen, newDecisionRecord(seen, state, "c1", "c2")); {
					case err == nil:
						won.Add(1)
					case !errors.Is(err, agentsvc.ErrTaskChanged):
						t.Error(err)
					}
				})
			}
			wg.Go(func() {
				if s.Tasks.Cancel(t.Context(), seen, sequenceEvents(seen.ID, seen.Seq+1, statusEvent(agentsvc.Cancelled, nil))[0]) == nil {
					won.Add(1)
				}
			})
			wg.Wait()
			if won.Load() != 1 {
				t.Errorf("%d won", won.Load())
			}
			checkGapless(t, loadLog(t, s, seen.ID), int(loadWithApprovals(t, s, seen.ID).Seq))
		}
	})
}

// TestOverdue: the run of an expired approval can be claimed, once, and can be returned to its rest.
func TestOverdue(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		ctx, q := t.Context(), store.NewRunQueue(d)
		seen, run := createPausedTask(t, s, time.Hour)
		if n, err := q.WakeOverdueRuns(ctx); err != nil || n != 0 {
			t.Fatalf("%d are overdue (%v)", n, err)
		}
		late, lateRun := createPausedTask(t, s, time.Microsecond)
		if n, err := q.WakeOverdueRuns(ctx); err != nil || n != 1 {
			t.Fatalf("%d are overdue (%v)", n, err)
		}
		if n, err := q.WakeOverdueRuns(ctx); err != nil || n != 0 {
			t.Fatalf("%d are overdue again (%v)", n, err)
		}
		if state, _, _ := loadRunState(t, d, run); state != store.InputRequired {
			t.Errorf("the other run is %s", state)
		}
		claimed, err := claimRuns(ctx, q, "w2", 10)
		if err != nil || len(claimed) != 1 || claimed[0].Task != late.ID {
			t.Fatalf("claimed %+v (%v)", claimed, err)
		}
		if _, err := s.Runs.BeginRun(ctx, &claimed[0]); !errors.Is(err, store.ErrTaskInterrupted) {
			t.Errorf("begun: %v", err)
		}
		seqs, err := s.Approvals.ListOverdue(ctx, late.ID)
		if diff := cmp.Diff([]int64{4}, seqs); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		if err := s.Runs.Unclaim(ctx, claimed[0]); err != nil {
			t.Fatal(err)
		}
		if state, attempts, worker := loadRunState(t, d, lateRun); state != store.InputRequired || attempts != 1 || worker != "" {
			t.Errorf("put to rest it is %s at %q after %d attempts", state, worker, attempts)
		}
		if seqs, err := s.Approvals.ListOverdue(ctx, seen.ID); err != nil || seqs != nil {
			t.Errorf("%v (%v)", seqs, err)
		}
	})
}
