package store_test

import (
	"errors"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// TestRescuedWriter: a worker whose run was rescued writes nothing from that moment on, also before another worker
// begins the run; the other worker can write.
func TestRescuedWriter(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		q, ctx := store.NewRunQueue(d), t.Context()
		for name, acquire := range map[string]func() error{
			"rescued":  func() error { _, _, err := q.RescueRuns(ctx, time.Hour); return err },
			"released": func() error { _, err := q.ReleaseRuns(ctx, "w1"); return err },
		} {
			for _, rec := range []struct {
				name  string
				event agentsvc.Event
				end   store.RunState
			}{
				{"a fact", messageEvent("late"), ""},
				{"its end", statusEvent(agentsvc.Completed, agentMessage("late")), store.Completed},
			} {
				run := createTask(t, s, newRun("w1"))
				before := loadTask(t, s, run.Task)
				if err := acquire(); err != nil {
					t.Fatal(err)
				}
				old := run
				err := s.Runs.WriteRecord(ctx, &old, store.Record{Events: sequenceEvents(run.Task, 3, rec.event), EndState: rec.end})
				if !errors.Is(err, agentsvc.ErrLeaseLost) {
					t.Errorf("%s, then %s: %v, want that the lease is lost", name, rec.name, err)
				}
				if after := loadTask(t, s, run.Task); after.Seq != before.Seq || len(loadLog(t, s, run.Task)) != 2 {
					t.Errorf("%s, then %s: the log went from %d to %d", name, rec.name, before.Seq, after.Seq)
				}
				if state, _, _ := loadRunState(t, d, run); state != store.Pending {
					t.Errorf("%s, then %s: the run is %s", name, rec.name, state)
				}
				claimAndFinish(t, s, q, run)
			}
		}
	})
}

// TestRescuedBegin: a worker does not begin a run that it claimed and that was rescued meanwhile, whether the run is
// pending or leased to another worker.
func TestRescuedBegin(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		q, ctx := store.NewRunQueue(d), t.Context()
		for _, other := range []bool{false, true} {
			createTask(t, s, newRun(""))
			got, err := claimRuns(ctx, q, "w1", 1)
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			if n, _, err := q.RescueRuns(ctx, time.Hour); err != nil || n != 1 {
				t.Fatal(n, err)
			}
			stale := got[0]
			if other {
				if got, err = claimRuns(ctx, q, "w2", 1); err != nil || len(got) != 1 {
					t.Fatal(got, err)
				}
			}
			if _, err := s.Runs.BeginRun(ctx, &stale); !errors.Is(err, agentsvc.ErrLeaseLost) {
				t.Errorf("begun after its rescue: %v (claimed by another: %v)", err, other)
			}
			if other {
				acquireAndFinish(t, s, got[0])
			} else {
				claimAndFinish(t, s, q, stale)
			}
		}
	})
}

// claimAndFinish claims run as another worker, begins it and ends it.
func claimAndFinish(t *testing.T, s *store.Store, q *store.RunQueue, run store.Run) {
	t.Helper()
	got, err := claimRuns(t.Context(), q, "w2", 10)
	if err != nil || len(got) != 1 || got[0].Task != run.Task {
		t.Fatalf("claimed %+v (%v)", got, err)
	}
	acquireAndFinish(t, s, got[0])
}

func acquireAndFinish(t *testing.T, s *store.Store, run store.Run) {
	t.Helper()
	if _, err := s.Runs.BeginRun(t.Context(), &run); err != nil {
		t.Fatal(err)
	}
	rec := store.Record{Events: sequenceEvents(run.Task, run.Seq+1, statusEvent(agentsvc.Completed, agentMessage("done"))), EndState: store.Completed}
	if err := s.Runs.WriteRecord(t.Context(), &run, rec); err != nil {
		t.Fatal(err)
	}
}

// leaseRun returns the run of a task's turn as a worker has it that has just claimed it, whichever worker had it
// before.
func leaseRun(t *testing.T, d *db.DB, id agentsvc.TaskID, turn int64) store.Run {
	t.Helper()
	run := store.Run{Tenant: "acme", Task: id, Turn: turn, Attempts: 9, Lease: store.Lease{Worker: "w2"}}
	var b db.Batch
	b.Exec(nil, `UPDATE run SET state = 'running', worker = $4, attempts = $5 WHERE tenant = $1 AND task = $2 AND turn = $3`,
		string(run.Tenant), string(id), turn, run.Worker, run.Attempts)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return run
}
