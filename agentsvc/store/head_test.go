package store_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// TestHeadsAreNeverStale: after each change, which another process makes, one that has read all tasks before reads the same as
// one that reads them for the first time.
func TestHeadsAreNeverStale(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB, writer *store.Store) {
		reader := store.New(d, "acme")
		same := func(step string) {
			t.Helper()
			for _, with := range []store.With{{}, {History: true}, {Artifacts: true}, {History: true, Artifacts: true}} {
				for _, f := range []store.Filter{{Limit: 20}, {Limit: 20, State: agentsvc.Working}} {
					f.With = with
					wanted, err := store.New(d, "acme").Tasks(t.Context(), f)
					want, n := wanted.Tasks, wanted.Total
					if err != nil {
						t.Fatal(err)
					}
					read, err := reader.Tasks(t.Context(), f)
					got, m := read.Tasks, read.Total
					if diff := cmp.Diff(want, got); err != nil || diff != "" || m != n {
						t.Errorf("%s, with %+v: %d and %d tasks (%v): first read -, read again +\n%s", step, with, n, m, err, diff)
					}
					for _, w := range want {
						got, err := reader.Task(t.Context(), w.ID, with)
						if diff := cmp.Diff(w, got); err != nil || diff != "" {
							t.Errorf("%s, with %+v (%v): first read -, read again +\n%s", step, with, err, diff)
						}
					}
				}
			}
		}
		runs := make([]store.Run, 8)
		for i := range runs {
			runs[i] = accept(t, writer, aRun("w1"))
		}
		same("at first")
		same("read again")
		record := func(run *store.Run, end store.RunState, evs ...agentsvc.Event) {
			t.Helper()
			if err := writer.Record(t.Context(), run, store.Record{Events: events(run.Task, run.Seq+1, evs...), End: end}); err != nil {
				t.Fatal(err)
			}
		}
		record(&runs[0], "", message("a fact that leaves the status as it is"))
		same("a message")
		record(&runs[0], "", agentsvc.Event{Artifact: &agentsvc.ArtifactUpdate{Artifact: agentsvc.Artifact{ID: "a"}}})
		same("an artifact")
		record(&runs[0], store.Completed, status(agentsvc.Completed, says("the end")))
		same("an end")
		for i := range runs[1:7] {
			record(&runs[i+1], store.InputRequired, status(agentsvc.InputRequired, says("which?")))
		}
		same("many changes")
		seen := task(t, writer, runs[7].Task)
		if err := writer.Cancel(t.Context(), seen, events(seen.ID, seen.Seq+1, status(agentsvc.Cancelled, nil))[0]); err != nil {
			t.Fatal(err)
		}
		accept(t, writer, aRun(""))
		same("a cancellation and a new task")
		var b db.Batch
		b.Exec(nil, `DELETE FROM task WHERE tenant = $1 AND id = $2`, "acme", string(runs[3].Task))
		if err := d.Tenant("acme").Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		same("a deletion")
		if got, err := reader.Task(t.Context(), runs[3].Task, store.With{}); err == nil {
			t.Errorf("the deleted task is still read: %+v", got)
		}
	})
}

// TestHeadsAreShared: whoever reads a task again has the same, whatever the one before has made of it.
func TestHeadsAreShared(t *testing.T) {
	each(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		run := accept(t, s, aRun("w1"))
		first := task(t, s, run.Task)
		for _, ev := range events(run.Task, 3, message("mine"), agentsvc.Event{Artifact: &agentsvc.ArtifactUpdate{Artifact: agentsvc.Artifact{ID: "a"}}}) {
			first.Apply(ev)
		}
		if again := task(t, s, run.Task); len(again.History) != 1 || again.Artifacts != nil {
			t.Errorf("read again it holds %d messages and %d artifacts", len(again.History), len(again.Artifacts))
		}
		made := 0
		note := func() string {
			t.Helper()
			listed, err := s.Tasks(t.Context(), store.Filter{Limit: 1})
			tasks := listed.Tasks
			if err != nil {
				t.Fatal(err)
			}
			got, err := tasks[0].Memo.Get("note", func() ([]byte, error) { made++; return []byte(tasks[0].Status.State), nil })
			if err != nil {
				t.Fatal(err)
			}
			return string(got)
		}
		if a, b := note(), note(); a != "working" || b != "working" || made != 1 {
			t.Errorf("%s and %s, worked out %d times", a, b, made)
		}
		if err := s.Record(t.Context(), &run, store.Record{Events: events(run.Task, 3, status(agentsvc.Completed, says("end"))), End: store.Completed}); err != nil {
			t.Fatal(err)
		}
		if got := note(); got != "completed" || made != 2 {
			t.Errorf("after its end %s, worked out %d times", got, made)
		}
	})
}

// TestHeadsAreBounded: however many and however large tasks are read, no more than so much of them is kept.
func TestHeadsAreBounded(t *testing.T) {
	each(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		size := func() (heads, weight int) {
			t.Helper()
			if _, err := s.Tasks(t.Context(), store.Filter{Limit: 1000}); err != nil {
				t.Fatal(err)
			}
			return s.Heads()
		}
		large := accept(t, s, aRun("w1"))
		end := status(agentsvc.Completed, says(strings.Repeat("x", store.MaxHeads/8)))
		if err := s.Record(t.Context(), &large, store.Record{Events: events(large.Task, 3, end), End: store.Completed}); err != nil {
			t.Fatal(err)
		}
		if heads, _ := size(); heads != 0 {
			t.Error("a task as large as what is kept of all is kept")
		}
		for range 20 {
			run := accept(t, s, aRun("w1"))
			end := status(agentsvc.Completed, says(strings.Repeat("x", store.MaxHeads/80)))
			if err := s.Record(t.Context(), &run, store.Record{Events: events(run.Task, 3, end), End: store.Completed}); err != nil {
				t.Fatal(err)
			}
		}
		if heads, weight := size(); heads < 5 || weight > store.MaxHeads {
			t.Errorf("%d heads of %d bytes are kept, at most %d may be", heads, weight, store.MaxHeads)
		}
	})
}
