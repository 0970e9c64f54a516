package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// TestCallCancel: a wish about a call of a turn at work is found by the worker that has it, until it is fulfilled.
func TestCallCancel(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, s *store.Store) {
		ctx, q := t.Context(), store.NewRuns(d)
		run, waits := accept(t, s, aRun("w1")), waiting(t, s)
		for name, c := range map[string]store.CallCancel{
			"of another turn":       {Task: run.Task, Turn: 2, Call: "c1"},
			"of a task that waits":  {Task: waits.ID, Turn: 1, Call: "c1"},
			"of a task that is not": {Task: "no", Turn: 1, Call: "c1"},
		} {
			if err := s.AskCancel(ctx, c); !errors.Is(err, agentsvc.ErrLost) {
				t.Errorf("a wish about a call %s: %v, want lost", name, err)
			}
		}
		wish := store.CallCancel{Tenant: "acme", Task: run.Task, Turn: 1, Call: "c1", Reason: "enough"}
		again := wish
		again.Reason = "more than that"
		for _, c := range []store.CallCancel{wish, again} {
			if err := s.AskCancel(ctx, c); err != nil {
				t.Fatal(err)
			}
		}
		for worker, want := range map[string][]store.CallCancel{"w1": {wish}, "w2": nil} {
			asked, err := q.AskedCancels(ctx, worker)
			if diff := cmp.Diff(want, asked); err != nil || diff != "" {
				t.Errorf("%s finds (%v)\n%s", worker, err, diff)
			}
		}
		if taken, err := s.CancelTaken(ctx, wish); err != nil || taken {
			t.Errorf("fulfilled before it is: %v (%v)", taken, err)
		}
		if err := q.TakeCancel(ctx, wish); err != nil {
			t.Fatal(err)
		}
		if taken, err := s.CancelTaken(ctx, wish); err != nil || !taken {
			t.Errorf("not fulfilled: %v (%v)", taken, err)
		}
		if asked, err := q.AskedCancels(ctx, "w1"); err != nil || len(asked) != 0 {
			t.Errorf("a wish that is fulfilled is found again: %v (%v)", asked, err)
		}
		if cancelled, err := q.Cancelled(ctx, "acme", run.Task); err != nil || cancelled {
			t.Errorf("the task counts as cancelled: %v (%v)", cancelled, err)
		}
		seen := task(t, s, run.Task)
		if err := s.Cancel(ctx, seen, events(run.Task, seen.Seq+1, status(agentsvc.Cancelled, nil))[0]); err != nil {
			t.Fatal(err)
		}
		if cancelled, err := q.Cancelled(ctx, "acme", run.Task); err != nil || !cancelled {
			t.Errorf("a cancelled task does not count as such: %v (%v)", cancelled, err)
		}
	})
}
