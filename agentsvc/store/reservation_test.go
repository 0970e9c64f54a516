package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// listReservations returns the reservation notes of a task's runs.
func listReservations(t *testing.T, d *db.DB, id agentsvc.TaskID) (notes []string) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error {
		var note string
		err := r.Scan(&note)
		notes = append(notes, note)
		return err
	}, `SELECT reserved FROM run WHERE task = $1 ORDER BY turn`, string(id))
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return notes
}

// TestReserved: the note of a turn's reservation is stored until it is settled, whatever opened the turn.
func TestReserved(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := store.New(d, "acme")
		for name, fresh := range map[string]bool{"fresh": true, "in a session": false} {
			run := newRun("")
			run.IsNewContext, run.LimitReservation = fresh, name
			run = createTask(t, s, run)
			got, err := store.NewRunQueue(d).ClaimRuns(t.Context(), "w1", []store.Share{{Tenant: "acme", ClaimCount: 1}})
			if err != nil || len(got) != 1 || got[0].Task != run.Task || got[0].LimitReservation != name {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
			if _, err := s.Runs.BeginRun(t.Context(), &got[0]); err != nil {
				t.Fatal(err)
			}
			rec := store.Record{Events: sequenceEvents(run.Task, 3, statusEvent(agentsvc.InputRequired, nil)), EndState: store.InputRequired}
			if err := s.Runs.WriteRecord(t.Context(), &got[0], rec); err != nil {
				t.Fatal(err)
			}
			// Two concurrent answers: the second finds that the task has changed, and does not change the first one's
			// turn.
			var errs []error
			for _, note := range []string{"first", "second"} {
				next := got[0]
				next.Turn, next.Epoch, next.FirstSeq, next.Seq, next.LimitReservation, next.Worker = 2, got[0].Epoch+1, 4, 5, note, "w2"
				evs := append(sequenceEvents(run.Task, 4, agentsvc.Event{Message: &run.Message}), sequenceEvents(run.Task, 5, statusEvent(agentsvc.Working, nil))...)
				errs = append(errs, s.Tasks.Continue(t.Context(), store.StoredTask{Task: agentsvc.Task{ID: run.Task, Seq: 3}, Epoch: got[0].Epoch}, store.NewTurn{Run: next, Events: evs}))
			}
			if errs[0] != nil || !errors.Is(errs[1], agentsvc.ErrTaskChanged) {
				t.Errorf("%s: %v", name, errs)
			}
			if diff := cmp.Diff([]string{name, "first"}, listReservations(t, d, run.Task)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			end := got[0]
			end.Turn, end.Epoch, end.Seq, end.Worker = 2, got[0].Epoch+1, 5, "w2"
			if err := s.Runs.WriteRecord(t.Context(), &end, store.Record{Events: sequenceEvents(run.Task, 6, statusEvent(agentsvc.Completed, nil)), EndState: store.Completed}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
