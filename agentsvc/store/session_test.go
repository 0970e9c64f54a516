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

// apart returns a store whose sessions are in d and whose tasks are elsewhere.
func apart(t *testing.T, tasks, d *db.DB) *store.Store {
	t.Helper()
	return store.New(tasks, "acme").With(store.SessionsApart("acme", func(context.Context) (*db.DB, error) { return d, nil }))
}

func turn(run *store.Run, text string) store.Record {
	return store.Record{
		Events: events(run.Task, run.Seq+1, status(agentsvc.Completed, says(text))), End: store.Completed,
		Session: []agentsvc.Entry{{Message: says(text)}},
	}
}

func said(t *testing.T, s *store.Store, run store.Run) (lines []string) {
	t.Helper()
	sess, err := s.Before(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range sess.Entries {
		lines = append(lines, e.Message.Text())
	}
	return lines
}

// TestApart writes turns to a session that is in another database than their tasks.
func TestApart(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tasks := dbtest.SQLite(t)
		s := apart(t, tasks, d)
		everyone := store.Run{Owner: ana, Context: "c1"}

		first := accept(t, s, aRun("w1"))
		if err := s.Record(t.Context(), &first, turn(&first, "one")); err != nil {
			t.Fatal(err)
		}
		if got, _ := store.New(tasks, "acme").Session(t.Context(), ana, "c1"); len(got.Entries) != 0 {
			t.Errorf("the tasks' database has the session as well: %v", got)
		}

		t.Run("lost", func(t *testing.T) {
			run := accept(t, s, aRun("w1"))
			late := run
			late.Epoch--
			if err := s.Record(t.Context(), &late, turn(&late, "of a worker that lost its task")); !errors.Is(err, agentsvc.ErrLost) {
				t.Errorf("%v, want lost", err)
			}
			if diff := cmp.Diff([]string{"one"}, said(t, s, everyone)); diff != "" {
				t.Error(diff)
			}
		})

		t.Run("again", func(t *testing.T) {
			run := accept(t, s, aRun("w1"))
			broken := turn(&run, "two, before the log was there")
			broken.Events[0].Status = nil // no fact: the log refuses it
			if err := s.Record(t.Context(), &run, broken); err == nil {
				t.Fatal("a record without facts was written")
			}
			if diff := cmp.Diff([]string{"one"}, said(t, s, run)); diff != "" {
				t.Errorf("the next attempt reads what the last one said: %s", diff)
			}
			other := accept(t, s, aRun("w1"))
			if err := s.Record(t.Context(), &other, turn(&other, "three")); err != nil {
				t.Fatal(err)
			}
			stale := run
			run.Epoch++
			bump(t, tasks, run)
			if err := s.Record(t.Context(), &run, turn(&run, "two")); err != nil {
				t.Fatal(err)
			}
			if err := s.Record(t.Context(), &stale, turn(&stale, "two, too late")); !errors.Is(err, agentsvc.ErrLost) {
				t.Errorf("%v, want lost", err)
			}
			if diff := cmp.Diff([]string{"one", "two", "three"}, said(t, s, everyone)); diff != "" {
				t.Errorf("a turn that is written again has another place, or two: %s", diff)
			}
		})
	})
}

// bump has run's task stand at the run's epoch.
func bump(t *testing.T, d *db.DB, run store.Run) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, "UPDATE task SET epoch = $1 WHERE id = $2", run.Epoch, string(run.Task))
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// TestAway: what goes wrong in the sessions' database is told apart, leaves the task alone and names no address.
func TestAway(t *testing.T) {
	t.Parallel()
	tasks := dbtest.SQLite(t)
	s := store.New(tasks, "acme").With(store.SessionsApart("acme", func(context.Context) (*db.DB, error) {
		return nil, errors.New("dial tcp 10.0.0.7: secret-canary")
	}))
	run := accept(t, s, aRun("w1"))
	before := task(t, s, run.Task)
	_, rerr := s.Before(t.Context(), run)
	for doing, err := range map[string]error{"read": rerr, "write": s.Record(t.Context(), &run, turn(&run, "one"))} {
		var away *store.AwayError
		if !errors.As(err, &away) || away.Error() != "the database of the app's sessions is unavailable: the connection failed" {
			t.Errorf("%s: %v", doing, err)
		}
	}
	if diff := cmp.Diff(before, task(t, s, run.Task)); diff != "" {
		t.Error(diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Before(ctx, run); !errors.Is(err, context.Canceled) || errors.As(err, new(*store.AwayError)) {
		t.Errorf("%v, want the caller's own end", err)
	}
}
