package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ana = agentsvc.Owner{Issuer: "stoa", Subject: "ana"}

// forEachEngine runs f on each engine, with the store of a tenant.
func forEachEngine(t *testing.T, f func(t *testing.T, d *db.DB, s *store.Store)) {
	t.Parallel()
	t.Helper()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) { f(t, d, store.New(d, "acme")) })
}

// newRun returns the first turn of a new task, leased to worker, or pending where that is "".
func newRun(worker string) store.Run {
	run := store.Run{
		Tenant: "acme", Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Agent: "assistant", Context: "c1", Owner: ana, Revision: 7, FirstSeq: 1, IsNewContext: true,
		Message: agentsvc.Message{ID: "m1", Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart("hello")}},
		Lease:   store.Lease{Worker: worker, Epoch: 1, Seq: 1},
	}
	run.Message.Task = run.Task
	if worker != "" {
		run.Seq, run.Attempts = 2, 1
	}
	return run
}

// openingEvents returns the events that open run's task.
func openingEvents(run store.Run) []agentsvc.Event {
	evs := sequenceEvents(run.Task, 1, statusEvent(agentsvc.Submitted, &run.Message))
	if run.Worker != "" {
		evs = append(evs, sequenceEvents(run.Task, 2, statusEvent(agentsvc.Working, nil))...)
	}
	return evs
}

// newTurn returns the turn that opens run's task. A run of a known session that has no worker may wait in its queue.
func newTurn(run store.Run) store.NewTurn {
	return store.NewTurn{Run: run, Events: openingEvents(run), MayWait: run.Worker == "" && !run.IsNewContext}
}

func createTask(t *testing.T, s *store.Store, run store.Run) store.Run {
	t.Helper()
	return createTurn(t, s, newTurn(run))
}

func createTurn(t *testing.T, s *store.Store, turn store.NewTurn) store.Run {
	t.Helper()
	if err := s.Tasks.Create(t.Context(), turn); err != nil {
		t.Fatal(err)
	}
	return turn.Run
}

// createWaitingTask accepts a task and lets its worker ask the user.
func createWaitingTask(t *testing.T, s *store.Store) store.StoredTask {
	t.Helper()
	run := createTask(t, s, newRun("w1"))
	rec := store.Record{Events: sequenceEvents(run.Task, 3, statusEvent(agentsvc.InputRequired, agentMessage("which one?"))), EndState: store.InputRequired}
	if err := s.Runs.WriteRecord(t.Context(), &run, rec); err != nil {
		t.Fatal(err)
	}
	return loadTask(t, s, run.Task)
}

func loadTask(t *testing.T, s *store.Store, id agentsvc.TaskID) store.StoredTask {
	t.Helper()
	got, err := s.Tasks.Load(t.Context(), nil, id, store.TaskParts{History: true, Artifacts: true})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func loadLog(t *testing.T, s *store.Store, id agentsvc.TaskID) []agentsvc.Event {
	t.Helper()
	evs, err := s.Events.Load(t.Context(), nil, id, 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	return evs
}

// sequenceEvents numbers evs as events of a task's log, from sequence seq on.
func sequenceEvents(id agentsvc.TaskID, seq int64, evs ...agentsvc.Event) []agentsvc.Event {
	at := time.Now().UTC().Truncate(time.Microsecond)
	for i := range evs {
		evs[i].Task, evs[i].Seq, evs[i].At = id, seq+int64(i), at
		if evs[i].Status != nil {
			evs[i].Status.At = at
		}
	}
	return evs
}

func statusEvent(state agentsvc.State, m *agentsvc.Message) agentsvc.Event {
	return agentsvc.Event{Status: &agentsvc.Status{State: state, Message: m}}
}

func agentMessage(text string) *agentsvc.Message {
	return &agentsvc.Message{ID: agentsvc.MessageID(agentsvc.NewID()), Role: agentsvc.RoleAgent, Parts: []agentsvc.Part{agentsvc.TextPart(text)}}
}

func messageEvent(text string) agentsvc.Event { return agentsvc.Event{Message: agentMessage(text)} }

// dumpedTables are the tables that the writers of tasks change.
var dumpedTables = []string{"task", "event", "run", "session_turn", "sent", "approval", "call_cancel", "receiver"}

// dumpTables returns every row of every table, in order.
func dumpTables(t *testing.T, d *db.DB) string {
	t.Helper()
	columns := map[string]string{
		"task":         "tenant || ' ' || id || ' ' || state || ' ' || epoch || ' ' || seq || ' ' || status_seq || ' ' || turn || ' ' || updated_at",
		"event":        "tenant || ' ' || task || ' ' || seq || ' ' || at || ' ' || kind || ' ' || body",
		"run":          "tenant || ' ' || task || ' ' || turn || ' ' || state || ' ' || attempts || ' ' || worker || ' ' || available_at || ' ' || last_error",
		"session_turn": "tenant || ' ' || context_id || ' ' || position || ' ' || task || ' ' || body",
		"approval":     "tenant || ' ' || task || ' ' || seq || ' ' || COALESCE(due_at, 0)",
		"call_cancel":  "tenant || ' ' || task || ' ' || turn || ' ' || call || ' ' || reason || ' ' || CAST(taken AS INTEGER)",
		"receiver":     "tenant || ' ' || task || ' ' || id || ' ' || state || ' ' || told || ' ' || value",
		"sent":         "tenant || ' ' || context_id || ' ' || message_id || ' ' || variant || ' ' || task",
	}
	var out string
	var b db.Batch
	for _, table := range dumpedTables {
		b.Query(func(r db.Row) error {
			var row string
			err := r.Scan(&row)
			out += table + " " + row + "\n"
			return err
		}, fmt.Sprintf("SELECT %s FROM %s ORDER BY 1", columns[table], table))
	}
	if err := d.Platform().Do(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	return out
}

// loadRunState reads a run's row.
func loadRunState(t *testing.T, d *db.DB, run store.Run) (state store.RunState, attempts int64, worker string) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan((*string)(&state), &attempts, &worker) },
		"SELECT state, attempts, worker FROM run WHERE tenant = $1 AND task = $2 AND turn = $3", string(run.Tenant), string(run.Task), run.Turn)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return state, attempts, worker
}
