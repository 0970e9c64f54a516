package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// TestAccept: a run is written under its worker's lease, or pending.
func TestAccept(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		for _, c := range []struct {
			worker   string
			state    agentsvc.State
			queue    store.RunState
			attempts int64
		}{
			{"w1", agentsvc.Working, store.Running, 1},
			{"", agentsvc.Submitted, store.Pending, 0},
		} {
			run := createTask(t, s, newRun(c.worker))
			got := loadTask(t, s, run.Task)
			want := store.StoredTask{
				Task: agentsvc.Task{
					ID: run.Task, Context: "c1", Agent: "assistant", Owner: ana, Created: got.Created, Seq: run.Seq,
					Status: agentsvc.Status{State: c.state, At: got.Status.At}, History: []agentsvc.Message{run.Message},
				},
				Epoch: 1, Turn: 1,
			}
			if c.worker == "" {
				want.Status.Message = &run.Message
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("worker %q: want -, got +\n%s", c.worker, diff)
			}
			if state, attempts, worker := loadRunState(t, d, run); state != c.queue || attempts != c.attempts || worker != c.worker {
				t.Errorf("worker %q: run is %s at %q, attempt %d; want %s, attempt %d", c.worker, state, worker, attempts, c.queue, c.attempts)
			}
		}
		run := newRun("")
		if _, err := s.Tasks.Load(t.Context(), nil, run.Task, store.TaskParts{}); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("a task that is not there: %v", err)
		}
	})
}

// TestSent: a repeated message finds the task that it opened; which messages are equal depends on whether the client
// named a context.
func TestSent(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		open := func(owner agentsvc.Owner, agent string, sent store.SentMessage) error {
			run := newRun("w1")
			run.Owner, run.Agent = owner, agent
			return s.Tasks.Create(t.Context(), store.NewTurn{Run: run, Events: openingEvents(run), Sent: &sent})
		}
		bob := agentsvc.Owner{Issuer: "stoa", Subject: "bob"}
		sameSubject := agentsvc.Owner{Issuer: "other", Subject: "ana"}
		for _, c := range []struct {
			name  string
			owner agentsvc.Owner
			agent string
			sent  store.SentMessage
			again bool
		}{
			{"first in a context", ana, "a", store.SentMessage{Message: "m", Context: "c", Hash: "h1"}, false},
			{"the same", ana, "a", store.SentMessage{Message: "m", Context: "c", Hash: "h1"}, true},
			{"another body in that context", ana, "a", store.SentMessage{Message: "m", Context: "c", Hash: "h2"}, true},
			{"another context", ana, "a", store.SentMessage{Message: "m", Context: "c2", Hash: "h1"}, false},
			{"another owner", bob, "a", store.SentMessage{Message: "m", Context: "c", Hash: "h1"}, false},
			{"the same subject of another issuer", sameSubject, "a", store.SentMessage{Message: "m", Context: "c", Hash: "h1"}, false},
			{"another agent", ana, "b", store.SentMessage{Message: "m", Context: "c", Hash: "h1"}, false},
			{"another message", ana, "a", store.SentMessage{Message: "m2", Context: "c", Hash: "h1"}, false},
			{"first without a context", ana, "a", store.SentMessage{Message: "m", Hash: "h1"}, false},
			{"the same without a context", ana, "a", store.SentMessage{Message: "m", Hash: "h1"}, true},
			{"another body without a context", ana, "a", store.SentMessage{Message: "m", Hash: "h2"}, false},
		} {
			before := dumpTables(t, d)
			err := open(c.owner, c.agent, c.sent)
			if again := errors.Is(err, store.ErrAlreadySent); again != c.again || err != nil && !again {
				t.Errorf("%s: %v, want sent before: %v", c.name, err, c.again)
			}
			if c.again && dumpTables(t, d) != before {
				t.Errorf("%s: left rows behind", c.name)
			}
			if _, _, err := s.Tasks.FindSentMessage(t.Context(), c.owner, c.agent, c.sent); err != nil {
				t.Errorf("%s: not found afterwards: %v", c.name, err)
			}
		}
		id, hash, err := s.Tasks.FindSentMessage(t.Context(), ana, "a", store.SentMessage{Message: "m", Context: "c", Hash: "h2"})
		if err != nil || id == "" || hash != "h1" {
			t.Errorf("found task %q of body %q (%v), want the first body's", id, hash, err)
		}
		if _, _, err := s.Tasks.FindSentMessage(t.Context(), ana, "a", store.SentMessage{Message: "no"}); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("a message never sent: %v", err)
		}
	})
}

// TestSentAtOnce: of many equal concurrent messages one opens a task.
func TestSentAtOnce(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		var wg sync.WaitGroup
		errs := make([]error, 20)
		for i := range errs {
			wg.Go(func() {
				run := newRun("w1")
				errs[i] = s.Tasks.Create(context.Background(), store.NewTurn{Run: run, Events: openingEvents(run), Sent: &store.SentMessage{Message: "m", Hash: "h"}})
			})
		}
		wg.Wait()
		opened := 0
		for _, err := range errs {
			if err == nil {
				opened++
			} else if !errors.Is(err, store.ErrAlreadySent) {
				t.Error(err)
			}
		}
		if opened != 1 {
			t.Errorf("%d tasks opened, want 1", opened)
		}
	})
}

// nextTurn returns a further turn of the waiting task seen.
func nextTurn(seen store.StoredTask, worker string, answer string) (store.Run, []agentsvc.Event) {
	run := newRun(worker)
	run.Task, run.Turn, run.Epoch, run.FirstSeq, run.Seq, run.Message.ID = seen.ID, seen.Turn+1, seen.Epoch+1, seen.Seq+1, seen.Seq+2, agentsvc.MessageID(answer)
	run.Message.Task = seen.ID
	return run, sequenceEvents(seen.ID, seen.Seq+1, agentsvc.Event{Message: &run.Message}, statusEvent(agentsvc.Working, nil))
}

func TestContinue(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		seen := createWaitingTask(t, s)
		run, evs := nextTurn(seen, "w2", "answer")
		if err := s.Tasks.Continue(t.Context(), seen, store.NewTurn{Run: run, Events: evs, Sent: &store.SentMessage{Message: "answer", Context: "c1", Hash: "h"}}); err != nil {
			t.Fatal(err)
		}
		got := loadTask(t, s, seen.ID)
		if got.Turn != 2 || got.Epoch != 2 || got.Seq != 5 || got.Status.State != agentsvc.Working || len(got.History) != 3 {
			t.Errorf("continued to %+v", got)
		}
		if state, attempts, worker := loadRunState(t, d, run); state != store.Running || attempts != 1 || worker != "w2" {
			t.Errorf("the new run is %s at %q, attempt %d", state, worker, attempts)
		}
		run.Turn = 1
		if state, _, _ := loadRunState(t, d, run); state != store.InputRequired {
			t.Errorf("the old run is %s, want it to rest", state)
		}
		if id, _, err := s.Tasks.FindSentMessage(t.Context(), ana, "assistant", store.SentMessage{Message: "answer", Context: "c1"}); err != nil || id != seen.ID {
			t.Errorf("the answer leads to %q (%v)", id, err)
		}
		before := dumpTables(t, d)
		again, evs := nextTurn(seen, "w3", "late")
		if err := s.Tasks.Continue(t.Context(), seen, store.NewTurn{Run: again, Events: evs}); !errors.Is(err, agentsvc.ErrTaskChanged) {
			t.Errorf("a task that no longer waits: %v, want ErrLost", err)
		}
		if diff := cmp.Diff(before, dumpTables(t, d)); diff != "" {
			t.Errorf("the lost one left:\n%s", diff)
		}
	})
}

// TestContinueAtOnce: of many concurrent answers one is accepted; the others get ErrTaskChanged and leave nothing.
func TestContinueAtOnce(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		const answers = 8
		for range 5 {
			seen := createWaitingTask(t, s)
			errs := make([]error, answers)
			var wg sync.WaitGroup
			for i := range answers {
				run, evs := nextTurn(seen, fmt.Sprint("w", i), fmt.Sprint("answer", i))
				wg.Go(func() {
					errs[i] = s.Tasks.Continue(context.Background(), seen, store.NewTurn{Run: run, Events: evs, Sent: &store.SentMessage{Message: run.Message.ID, Context: "c1", Hash: "h"}})
				})
			}
			wg.Wait()
			winner := -1
			for i, err := range errs {
				switch {
				case err == nil && winner < 0:
					winner = i
				case err == nil:
					t.Errorf("answers %d and %d were both taken", winner, i)
				case !errors.Is(err, agentsvc.ErrTaskChanged):
					t.Errorf("answer %d: %v, want ErrLost", i, err)
				}
			}
			got := loadLog(t, s, seen.ID)
			if len(got) != 5 || winner < 0 || got[3].Message.ID != agentsvc.MessageID(fmt.Sprint("answer", winner)) {
				t.Errorf("winner %d, log %v", winner, got)
			}
			if n := countRows(t, d, "run", seen.ID); n != 2 {
				t.Errorf("%d runs, want 2", n)
			}
			if n := countRows(t, d, "sent", seen.ID); n != 1 {
				t.Errorf("%d messages were taken, want 1", n)
			}
		}
	})
}

// countRows returns the number of a table's rows that belong to a task.
func countRows(t *testing.T, d *db.DB, table string, id agentsvc.TaskID) (n int) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM "+table+" WHERE task = $1", string(id))
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}
