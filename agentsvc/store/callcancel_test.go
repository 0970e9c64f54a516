package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/callcancel"
	"stoa/tenancy/db"
)

// TestCallCancel: a request to cancel a call of the current turn is listed for its worker until it is fulfilled.
func TestCallCancel(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		ctx, q, requests := t.Context(), store.NewRunQueue(d), callcancel.NewQueue(d)
		run, waits := createTask(t, s, newRun("w1")), createWaitingTask(t, s)
		for name, c := range map[string]callcancel.Request{
			"of another turn":       {Task: run.Task, Turn: 2, Call: "c1"},
			"of a task that waits":  {Task: waits.ID, Turn: 1, Call: "c1"},
			"of a task that is not": {Task: "no", Turn: 1, Call: "c1"},
		} {
			if err := s.CallCancels.Request(ctx, c); !errors.Is(err, agentsvc.ErrTaskChanged) {
				t.Errorf("a wish about a call %s: %v, want lost", name, err)
			}
		}
		callCancel := callcancel.Request{Tenant: "acme", Task: run.Task, Turn: 1, Call: "c1", Reason: "enough"}
		again := callCancel
		again.Reason = "more than that"
		for _, c := range []callcancel.Request{callCancel, again} {
			if err := s.CallCancels.Request(ctx, c); err != nil {
				t.Fatal(err)
			}
		}
		for worker, want := range map[string][]callcancel.Request{"w1": {callCancel}, "w2": nil} {
			requested, err := requests.ListOpen(ctx, worker)
			if diff := cmp.Diff(want, requested); err != nil || diff != "" {
				t.Errorf("%s finds (%v)\n%s", worker, err, diff)
			}
		}
		if taken, err := s.CallCancels.IsCancelled(ctx, callCancel); err != nil || taken {
			t.Errorf("fulfilled before it is: %v (%v)", taken, err)
		}
		if err := requests.MarkCancelled(ctx, callCancel); err != nil {
			t.Fatal(err)
		}
		if taken, err := s.CallCancels.IsCancelled(ctx, callCancel); err != nil || !taken {
			t.Errorf("not fulfilled: %v (%v)", taken, err)
		}
		if requested, err := requests.ListOpen(ctx, "w1"); err != nil || len(requested) != 0 {
			t.Errorf("a wish that is fulfilled is found again: %v (%v)", requested, err)
		}
		if cancelled, err := q.IsTaskCancelled(ctx, "acme", run.Task); err != nil || cancelled {
			t.Errorf("the task counts as cancelled: %v (%v)", cancelled, err)
		}
		seen := loadTask(t, s, run.Task)
		if err := s.Tasks.Cancel(ctx, seen, sequenceEvents(run.Task, seen.Seq+1, statusEvent(agentsvc.Cancelled, nil))[0]); err != nil {
			t.Fatal(err)
		}
		if cancelled, err := q.IsTaskCancelled(ctx, "acme", run.Task); err != nil || !cancelled {
			t.Errorf("a cancelled task does not count as such: %v (%v)", cancelled, err)
		}
	})
}
