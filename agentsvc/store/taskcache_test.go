package store_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// TestTaskCacheIsNeverStale: after each change, made by another process, a store that has cached all tasks reads the
// same as one without a cache.
func TestTaskCacheIsNeverStale(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, writer *store.Store) {
		reader := store.New(d, "acme")
		same := func(step string) {
			t.Helper()
			for _, with := range []store.TaskParts{{}, {History: true}, {Artifacts: true}, {History: true, Artifacts: true}} {
				for _, f := range []store.TaskFilter{{Limit: 20}, {Limit: 20, State: agentsvc.Working}} {
					f.Parts = with
					wanted, err := store.New(d, "acme").Tasks.List(t.Context(), nil, f)
					want, n := wanted.Tasks, wanted.Total
					if err != nil {
						t.Fatal(err)
					}
					read, err := reader.Tasks.List(t.Context(), nil, f)
					got, m := read.Tasks, read.Total
					if diff := cmp.Diff(want, got); err != nil || diff != "" || m != n {
						t.Errorf("%s, with %+v: %d and %d tasks (%v): first read -, read again +\n%s", step, with, n, m, err, diff)
					}
					for _, w := range want {
						got, err := reader.Tasks.Load(t.Context(), nil, w.ID, with)
						if diff := cmp.Diff(w, got); err != nil || diff != "" {
							t.Errorf("%s, with %+v (%v): first read -, read again +\n%s", step, with, err, diff)
						}
					}
				}
			}
		}
		runs := make([]store.Run, 8)
		for i := range runs {
			runs[i] = createTask(t, writer, newRun("w1"))
		}
		same("at first")
		same("read again")
		record := func(run *store.Run, end store.RunState, evs ...agentsvc.Event) {
			t.Helper()
			if err := writer.Runs.WriteRecord(t.Context(), run, store.Record{Events: sequenceEvents(run.Task, run.Seq+1, evs...), EndState: end}); err != nil {
				t.Fatal(err)
			}
		}
		record(&runs[0], "", messageEvent("a fact that leaves the status as it is"))
		same("a message")
		record(&runs[0], "", agentsvc.Event{Artifact: &agentsvc.ArtifactUpdate{Artifact: agentsvc.Artifact{ID: "a"}}})
		same("an artifact")
		record(&runs[0], store.Completed, statusEvent(agentsvc.Completed, agentMessage("the end")))
		same("an end")
		for i := range runs[1:7] {
			record(&runs[i+1], store.InputRequired, statusEvent(agentsvc.InputRequired, agentMessage("which?")))
		}
		same("many changes")
		seen := loadTask(t, writer, runs[7].Task)
		if err := writer.Tasks.Cancel(t.Context(), seen, sequenceEvents(seen.ID, seen.Seq+1, statusEvent(agentsvc.Cancelled, nil))[0]); err != nil {
			t.Fatal(err)
		}
		createTask(t, writer, newRun(""))
		same("a cancellation and a new task")
		var b db.Batch
		b.Exec(nil, `DELETE FROM task WHERE tenant = $1 AND id = $2`, "acme", string(runs[3].Task))
		if err := d.Tenant("acme").Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		same("a deletion")
		if got, err := reader.Tasks.Load(t.Context(), nil, runs[3].Task, store.TaskParts{}); err == nil {
			t.Errorf("the deleted task is still read: %+v", got)
		}
	})
}

// TestTaskCacheIsShared: every reader of a task gets the same value, whatever an earlier reader did with its own.
func TestTaskCacheIsShared(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		run := createTask(t, s, newRun("w1"))
		first := loadTask(t, s, run.Task)
		for _, ev := range sequenceEvents(run.Task, 3, messageEvent("mine"), agentsvc.Event{Artifact: &agentsvc.ArtifactUpdate{Artifact: agentsvc.Artifact{ID: "a"}}}) {
			first.ApplyEvent(ev)
		}
		if again := loadTask(t, s, run.Task); len(again.History) != 1 || again.Artifacts != nil {
			t.Errorf("read again it holds %d messages and %d artifacts", len(again.History), len(again.Artifacts))
		}
		made := 0
		note := func() string {
			t.Helper()
			listed, err := s.Tasks.List(t.Context(), nil, store.TaskFilter{Limit: 1})
			tasks := listed.Tasks
			if err != nil {
				t.Fatal(err)
			}
			got, err := tasks[0].EncodedCache.GetOrEncode("note", func() ([]byte, error) { made++; return []byte(tasks[0].Status.State), nil })
			if err != nil {
				t.Fatal(err)
			}
			return string(got)
		}
		if a, b := note(), note(); a != "working" || b != "working" || made != 1 {
			t.Errorf("%s and %s, worked out %d times", a, b, made)
		}
		if err := s.Runs.WriteRecord(t.Context(), &run, store.Record{Events: sequenceEvents(run.Task, 3, statusEvent(agentsvc.Completed, agentMessage("end"))), EndState: store.Completed}); err != nil {
			t.Fatal(err)
		}
		if got := note(); got != "completed" || made != 2 {
			t.Errorf("after its end %s, worked out %d times", got, made)
		}
	})
}

// TestTaskCacheIsBounded: the cache stays below its bound, however many and however large tasks are read.
func TestTaskCacheIsBounded(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		size := func() (cachedTasks, weight int) {
			t.Helper()
			if _, err := s.Tasks.List(t.Context(), nil, store.TaskFilter{Limit: 1000}); err != nil {
				t.Fatal(err)
			}
			return s.CacheSize()
		}
		large := createTask(t, s, newRun("w1"))
		end := statusEvent(agentsvc.Completed, agentMessage(strings.Repeat("x", store.MaxCacheBytes/8)))
		if err := s.Runs.WriteRecord(t.Context(), &large, store.Record{Events: sequenceEvents(large.Task, 3, end), EndState: store.Completed}); err != nil {
			t.Fatal(err)
		}
		if cachedTasks, _ := size(); cachedTasks != 0 {
			t.Error("a task as large as what is kept of all is kept")
		}
		for range 20 {
			run := createTask(t, s, newRun("w1"))
			end := statusEvent(agentsvc.Completed, agentMessage(strings.Repeat("x", store.MaxCacheBytes/80)))
			if err := s.Runs.WriteRecord(t.Context(), &run, store.Record{Events: sequenceEvents(run.Task, 3, end), EndState: store.Completed}); err != nil {
				t.Fatal(err)
			}
		}
		if cachedTasks, weight := size(); cachedTasks < 5 || weight > store.MaxCacheBytes {
			t.Errorf("%d heads of %d bytes are kept, at most %d may be", cachedTasks, weight, store.MaxCacheBytes)
		}
	})
}
