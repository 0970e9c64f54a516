package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// newExternalSessionStore returns a store whose sessions are in d and whose tasks are in another database.
func newExternalSessionStore(t *testing.T, tasks, d *db.DB) *store.Store {
	t.Helper()
	return store.New(tasks, "acme").WithSessions(store.NewExternalSessions("acme", func(context.Context) (*db.DB, error) { return d, nil }))
}

func completedTurn(run *store.Run, text string) store.Record {
	return store.Record{
		Events: sequenceEvents(run.Task, run.Seq+1, statusEvent(agentsvc.Completed, agentMessage(text))), EndState: store.Completed,
		SessionEntries: []agentsvc.Entry{{Message: agentMessage(text)}},
	}
}

func conversationTexts(t *testing.T, s *store.Store, run store.Run) (lines []string) {
	t.Helper()
	sess, err := s.Sessions.LoadConversation(t.Context(), nil, run)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range sess.Entries {
		lines = append(lines, e.Message.Text())
	}
	return lines
}

// TestExternalSessions: turns are written to a session in another database than their tasks.
func TestExternalSessions(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		tasks := dbtest.NewSQLite(t)
		s := newExternalSessionStore(t, tasks, d)
		everyone := store.Run{Owner: ana, Context: "c1"}

		first := createTask(t, s, newRun("w1"))
		if err := s.Runs.WriteRecord(t.Context(), &first, completedTurn(&first, "one")); err != nil {
			t.Fatal(err)
		}
		if got, _ := store.New(tasks, "acme").Sessions.Load(t.Context(), ana, "c1"); len(got.Entries) != 0 {
			t.Errorf("the tasks' database has the session as well: %v", got)
		}

		t.Run("lost", func(t *testing.T) {
			run := createTask(t, s, newRun("w1"))
			late := run
			late.Epoch--
			if err := s.Runs.WriteRecord(t.Context(), &late, completedTurn(&late, "of a worker that lost its task")); !errors.Is(err, agentsvc.ErrLeaseLost) {
				t.Errorf("%v, want lost", err)
			}
			if diff := cmp.Diff([]string{"one"}, conversationTexts(t, s, everyone)); diff != "" {
				t.Error(diff)
			}
		})

		t.Run("again", func(t *testing.T) {
			run := createTask(t, s, newRun("w1"))
			broken := completedTurn(&run, "two, before the log was there")
			broken.Events[0].Status = nil // no fact, so the log refuses the event
			if err := s.Runs.WriteRecord(t.Context(), &run, broken); err == nil {
				t.Fatal("a record without facts was written")
			}
			if diff := cmp.Diff([]string{"one"}, conversationTexts(t, s, run)); diff != "" {
				t.Errorf("the next attempt reads what the last one wrote: %s", diff)
			}
			other := createTask(t, s, newRun("w1"))
			if err := s.Runs.WriteRecord(t.Context(), &other, completedTurn(&other, "three")); err != nil {
				t.Fatal(err)
			}
			stale := run
			run.Epoch++
			setTaskEpoch(t, tasks, run)
			if err := s.Runs.WriteRecord(t.Context(), &run, completedTurn(&run, "two")); err != nil {
				t.Fatal(err)
			}
			if err := s.Runs.WriteRecord(t.Context(), &stale, completedTurn(&stale, "two, too late")); !errors.Is(err, agentsvc.ErrLeaseLost) {
				t.Errorf("%v, want lost", err)
			}
			if diff := cmp.Diff([]string{"one", "two", "three"}, conversationTexts(t, s, everyone)); diff != "" {
				t.Errorf("a turn that is written again has another place, or two: %s", diff)
			}
		})
	})
}

// setTaskEpoch sets the epoch of run's task to the run's epoch.
func setTaskEpoch(t *testing.T, d *db.DB, run store.Run) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, "UPDATE task SET epoch = $1 WHERE id = $2", run.Epoch, string(run.Task))
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// TestSessionsUnavailable: an error of the session database is an UnavailableError, leaves the task unchanged and
// contains no address.
func TestSessionsUnavailable(t *testing.T) {
	t.Parallel()
	tasks := dbtest.NewSQLite(t)
	s := store.New(tasks, "acme").WithSessions(store.NewExternalSessions("acme", func(context.Context) (*db.DB, error) {
		return nil, errors.New("dial tcp 10.0.0.7: secret-canary")
	}))
	run := createTask(t, s, newRun("w1"))
	before := loadTask(t, s, run.Task)
	_, rerr := s.Sessions.LoadConversation(t.Context(), nil, run)
	for operation, err := range map[string]error{"read": rerr, "write": s.Runs.WriteRecord(t.Context(), &run, completedTurn(&run, "one"))} {
		var unavailable *store.UnavailableError
		if !errors.As(err, &unavailable) || unavailable.Error() != "the database of the app's sessions is unavailable: the connection failed" {
			t.Errorf("%s: %v", operation, err)
		}
	}
	if diff := cmp.Diff(before, loadTask(t, s, run.Task)); diff != "" {
		t.Error(diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Sessions.LoadConversation(ctx, nil, run); !errors.Is(err, context.Canceled) || errors.As(err, new(*store.UnavailableError)) {
		t.Errorf("%v, want the caller's own end", err)
	}
}
