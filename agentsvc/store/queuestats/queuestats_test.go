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

// TestSuspendedApps: the waiting runs of a suspended app are counted by themselves, and their age is not that of the queue.
func TestSuspendedApps(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		var b db.Batch
		for _, app := range []struct{ id, status string }{{"acme", "active"}, {"globex", "suspended"}} {
			b.Exec(nil, `INSERT INTO app (tenant, name, display_name, status, revision, inputs, generation, grants, plan, labels, data_key, master_key, created_at, updated_at)
				VALUES ($1, $1, '', $2, 1, 1, 1, '[]', '', '{}', $3, '', 0, 0)`, app.id, app.status, []byte{})
		}
		if err := d.Platform().Do(ctx, &b); err != nil {
			t.Fatal(err)
		}
		for _, tenant := range []db.ID{"acme", "globex", "globex"} {
			id := agentsvc.TaskID(agentsvc.NewID())
			run := store.Run{Tenant: tenant, Task: id, Context: agentsvc.ContextID(agentsvc.NewID()), Turn: 1, Agent: "a", FirstSeq: 1, IsNewContext: true, Lease: store.Lease{Seq: 1}}
			events := []agentsvc.Event{{Task: id, Seq: 1, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Submitted}}}
			if err := store.New(d, tenant).Tasks.Create(ctx, store.NewTurn{Run: run, Events: events}); err != nil {
				t.Fatal(err)
			}
		}
		var older db.Batch
		older.Exec(nil, `UPDATE run SET created_at = created_at - 3600000000 WHERE tenant = 'globex'`)
		if err := d.Platform().Do(ctx, &older); err != nil {
			t.Fatal(err)
		}
		got, err := queuestats.Count(ctx, d)
		want := queuestats.Stats{Pending: 1, Suspended: 2, Apps: []queuestats.AppCounts{{App: "acme", Pending: 1}}}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(queuestats.Stats{}, "OldestPending")); err != nil || diff != "" {
			t.Errorf("(%v)\n%s", err, diff)
		}
		if got.OldestPending > 30*time.Minute {
			t.Errorf("the oldest has waited for %s, which only runs of the suspended app have", got.OldestPending)
		}
	})
}
