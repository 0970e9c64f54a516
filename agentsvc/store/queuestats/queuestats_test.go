package queuestats_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/queuestats"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestInputRequired: a run that paused its turn counts while its task waits, and as completed when a later run has
// continued the task.
func TestInputRequired(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx, s := t.Context(), store.New(d, "acme")
		status := func(id agentsvc.TaskID, seq int64, state agentsvc.State) []agentsvc.Event {
			return []agentsvc.Event{{Task: id, Seq: seq, At: time.Now(), Status: &agentsvc.Status{State: state}}}
		}
		var waiting []store.Run
		for _, state := range []agentsvc.State{agentsvc.InputRequired, agentsvc.InputRequired, agentsvc.AuthRequired} {
			run := store.Run{
				Tenant: "acme", Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Agent: "a", Attempts: 1, FirstSeq: 1, IsNewContext: true,
				Lease: store.Lease{Worker: "w1", Epoch: 1, Seq: 1},
			}
			run.Context = agentsvc.ContextID(agentsvc.NewID())
			if err := s.Tasks.Create(ctx, store.NewTurn{Run: run, Events: status(run.Task, 1, agentsvc.Working)}); err != nil {
				t.Fatal(err)
			}
			if err := s.Runs.WriteRecord(ctx, &run, store.Record{Events: status(run.Task, 2, state), EndState: store.InputRequired}); err != nil {
				t.Fatal(err)
			}
			waiting = append(waiting, run)
		}
		count := func(want queuestats.Stats) {
			t.Helper()
			got, err := queuestats.Count(ctx, d)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(queuestats.Stats{}, "Apps", "OldestPending")); err != nil || diff != "" {
				t.Errorf("(%v)\n%s", err, diff)
			}
		}
		count(queuestats.Stats{InputRequired: 3})

		seen, err := s.Tasks.Load(ctx, nil, waiting[0].Task, store.TaskParts{})
		if err != nil {
			t.Fatal(err)
		}
		next := waiting[0]
		next.Turn, next.Epoch, next.Seq, next.FirstSeq, next.IsNewContext = 2, seen.Epoch+1, seen.Seq+1, seen.Seq+1, false
		if err := s.Tasks.Continue(ctx, seen, store.NewTurn{Run: next, Events: status(next.Task, next.Seq, agentsvc.Working)}); err != nil {
			t.Fatal(err)
		}
		count(queuestats.Stats{InputRequired: 2, Running: 1, Completed: 1})
	})
}
