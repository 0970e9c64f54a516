package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

const day = 24 * time.Hour

// testRetention is the retention of the test's tenant.
var testRetention = store.Retention{Tasks: 30 * day, Events: 10 * day, Sessions: 20 * day}

// createAgedTask accepts a task in a context and ends it, all of it the given time ago.
func createAgedTask(t *testing.T, d *db.DB, s *store.Store, tenant, id string, ago time.Duration, end agentsvc.State) agentsvc.TaskID {
	t.Helper()
	run := newRun("w1")
	run.Context = agentsvc.ContextID("of-" + id)
	run.Message.ID = agentsvc.MessageID(id)
	if err := s.Tasks.Create(t.Context(), store.NewTurn{Run: run, Events: openingEvents(run), Sent: &store.SentMessage{Message: run.Message.ID, Context: run.Context, Hash: "h"}}); err != nil {
		t.Fatal(err)
	}
	rec := store.Record{Events: sequenceEvents(run.Task, 3, messageEvent("thinking"), statusEvent(end, agentMessage("done"))), EndState: store.Completed}
	if end == agentsvc.InputRequired {
		call := agentsvc.ToolCall{ID: "c", Name: "x"}
		rec.Events = sequenceEvents(run.Task, 3, agentsvc.Event{Approval: &agentsvc.Approval{Call: call}}, statusEvent(end, agentMessage("may I?")))
		rec.EndState = store.InputRequired
	}
	rec.SessionEntries = []agentsvc.Entry{{Message: agentMessage("done")}}
	if err := s.Runs.WriteRecord(t.Context(), &run, rec); err != nil {
		t.Fatal(err)
	}
	key := agentsvc.SessionKey{Owner: ana, Context: run.Context}
	if _, err := s.Sessions.SaveSummary(t.Context(), key, "assistant", store.Summary{Turn: 1, Text: "short"}); err != nil {
		t.Fatal(err)
	}
	return backdateTask(t, d, run.Task, tenant, ago)
}

// backdateTask makes a task and its session older.
func backdateTask(t *testing.T, d *db.DB, id agentsvc.TaskID, tenant string, ago time.Duration) agentsvc.TaskID {
	t.Helper()
	at := time.Now().Add(-ago)
	old := agentsvc.TaskID(store.FirstTaskID(at)[:15] + string(id[15:]))
	var b db.Batch
	for table, column := range map[string]string{"task": "id", "event": "task", "run": "task", "approval": "task", "sent": "task", "session_turn": "task"} {
		b.Exec(nil, "UPDATE "+table+" SET "+column+" = $1 WHERE tenant = $2 AND "+column+" = $3", string(old), tenant, string(id))
	}
	b.Exec(nil, "UPDATE task SET updated_at = $1 WHERE id = $2", at.UnixMicro(), string(old))
	b.Exec(nil, "UPDATE session_turn SET at = $1 WHERE task = $2", at.UnixMicro(), string(old))
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return old
}

// listRowsOf counts the rows of each table that belong to a task or its context.
func listRowsOf(t *testing.T, d *db.DB, id agentsvc.TaskID, context string) string {
	t.Helper()
	var all []string
	var b db.Batch
	for _, q := range []string{
		"SELECT 'task', COUNT(*) FROM task WHERE id = $1", "SELECT 'event', COUNT(*) FROM event WHERE task = $1", "SELECT 'run', COUNT(*) FROM run WHERE task = $1",
		"SELECT 'approval', COUNT(*) FROM approval WHERE task = $1", "SELECT 'sent', COUNT(*) FROM sent WHERE task = $1",
	} {
		queryRowNames(&b, &all, q, string(id))
	}
	queryRowNames(&b, &all, "SELECT 'turn', COUNT(*) FROM session_turn WHERE context_id = $1", context)
	queryRowNames(&b, &all, "SELECT 'summary', COUNT(*) FROM session_summary WHERE context_id = $1", context)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func queryRowNames(b *db.Batch, all *[]string, q, arg string) {
	b.Query(func(r db.Row) error {
		var name string
		var n int
		err := r.Scan(&name, &n)
		for range n {
			*all = append(*all, name)
		}
		return err
	}, q, arg)
}

// TestSweep: old finished tasks are deleted with all their rows; unfinished ones keep everything, also their session.
func TestSweep(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		complete := "task event event event event run sent turn summary"
		cases := []struct {
			name string
			ago  time.Duration
			end  agentsvc.State
			want string
		}{
			{"young", day, agentsvc.Completed, complete},
			{"middle-aged", 15 * day, agentsvc.Failed, "task event run sent turn summary"},
			{"silent", 25 * day, agentsvc.Rejected, "task event run sent"},
			{"old", 40 * day, agentsvc.Cancelled, ""},
			{"waiting", 400 * day, agentsvc.InputRequired, "task event event event event run approval sent turn summary"},
		}
		ids := map[string]agentsvc.TaskID{}
		for _, c := range cases {
			ids[c.name] = createAgedTask(t, d, s, "acme", c.name, c.ago, c.end)
		}
		other := store.New(d, "globex")
		foreign := createAgedTask(t, d, other, "globex", "foreign", 40*day, agentsvc.Completed)
		swept, err := s.Sweeper.SweepExpired(t.Context(), testRetention)
		if err != nil {
			t.Fatal(err)
		}
		if want := (store.SweepCounts{Tasks: 1, Events: 6, Sessions: 2}); swept != want {
			t.Errorf("swept %+v, want %+v", swept, want)
		}
		for _, c := range cases {
			if diff := cmp.Diff(c.want, listRowsOf(t, d, ids[c.name], "of-"+c.name)); diff != "" {
				t.Errorf("%s: %s", c.name, diff)
			}
		}
		if diff := cmp.Diff(complete, listRowsOf(t, d, foreign, "of-foreign")); diff != "" {
			t.Errorf("another tenant's: %s", diff)
		}
		if _, err := s.Tasks.Load(t.Context(), nil, ids["old"], store.TaskParts{}); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("a deleted task: %v, want not found", err)
		}
		if got := loadTask(t, s, ids["middle-aged"]); got.Status.State != agentsvc.Failed || got.Status.Message.Text() != "done" {
			t.Errorf("a task without its events: %+v", got.Status)
		}
		if again, err := s.Sweeper.SweepExpired(t.Context(), testRetention); err != nil || again != (store.SweepCounts{}) {
			t.Errorf("a second sweep: %+v %v", again, err)
		}
		if none, err := other.Sweeper.SweepExpired(t.Context(), store.Retention{}); err != nil || none != (store.SweepCounts{}) {
			t.Errorf("a sweep of who keeps everything: %+v %v", none, err)
		}
	})
}

// TestSweepExternalSessions: sessions in another database than their tasks are deleted, except those of unfinished
// tasks.
func TestSweepExternalSessions(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		tasks := dbtest.NewSQLite(t)
		s := newExternalSessionStore(t, tasks, d)
		for _, name := range []string{"idle", "waiting"} {
			run := newRun("w1")
			run.Context = agentsvc.ContextID(name)
			run = createTask(t, s, run)
			rec := completedTurn(&run, name)
			if name == "waiting" {
				rec.Events = sequenceEvents(run.Task, 3, statusEvent(agentsvc.InputRequired, agentMessage("which?")))
				rec.EndState = store.InputRequired
			}
			if err := s.Runs.WriteRecord(t.Context(), &run, rec); err != nil {
				t.Fatal(err)
			}
		}
		var b db.Batch
		b.Exec(nil, "UPDATE session_turn SET at = 1")
		if err := d.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		swept, err := s.Sweeper.SweepExpired(t.Context(), store.Retention{Sessions: day})
		if err != nil || swept.Sessions != 1 {
			t.Errorf("%+v %v", swept, err)
		}
		for name, want := range map[string]int{"idle": 0, "waiting": 1} {
			if got := conversationTexts(t, s, store.Run{Owner: ana, Context: agentsvc.ContextID(name)}); len(got) != want {
				t.Errorf("%s: %d turns, want %d", name, len(got), want)
			}
		}
	})
}

// TestSweepLong: a log and a session with more rows than one transaction deletes.
func TestSweepLong(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		run := createTask(t, s, newRun("w1"))
		for range 45 {
			evs := make([]agentsvc.Event, 100)
			for i := range evs {
				evs[i] = messageEvent("x")
			}
			if err := s.Runs.WriteRecord(t.Context(), &run, store.Record{Events: sequenceEvents(run.Task, run.Seq+1, evs...)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Runs.WriteRecord(t.Context(), &run, completedTurn(&run, "done")); err != nil {
			t.Fatal(err)
		}
		lengthenSession(t, d, string(run.Context))
		id := backdateTask(t, d, run.Task, "acme", 40*day)
		if _, err := s.Sweeper.SweepExpired(t.Context(), testRetention); err != nil {
			t.Fatal(err)
		}
		if got := listRowsOf(t, d, id, string(run.Context)); got != "" {
			t.Errorf("left: %d words", len(strings.Fields(got)))
		}
	})
}

// lengthenSession adds turns to a session.
func lengthenSession(t *testing.T, d *db.DB, context string) {
	t.Helper()
	var b db.Batch
	for i := range 1200 {
		b.Exec(nil, `INSERT INTO session_turn (tenant, owner_iss, owner_sub, context_id, position, task, turn, epoch, at, body)
			SELECT tenant, owner_iss, owner_sub, context_id, position + $1, task, turn, epoch, at, body FROM session_turn WHERE context_id = $2 AND position = 1`, i+1, context)
	}
	b.Exec(nil, "UPDATE session_turn SET at = 1")
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// TestSweepLocked: a task that another transaction has locked is skipped and does not block the sweep.
func TestSweepLocked(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	s := store.New(d, "acme")
	held := createAgedTask(t, d, s, "acme", "held", 40*day, agentsvc.Completed)
	free := createAgedTask(t, d, s, "acme", "free", 40*day, agentsvc.Completed)
	err := d.Tenant("acme").RunTx(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), "UPDATE task SET updated_at = updated_at WHERE id = $1", string(held)); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		swept, err := s.Sweeper.SweepExpired(ctx, testRetention)
		if err == nil && swept.Tasks != 1 {
			t.Errorf("swept %+v", swept)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tasks.Load(t.Context(), nil, free, store.TaskParts{}); !errors.Is(err, agentsvc.ErrNotFound) {
		t.Errorf("the free task: %v", err)
	}
	if _, err := s.Tasks.Load(t.Context(), nil, held, store.TaskParts{}); err != nil {
		t.Errorf("the locked task: %v", err)
	}
}

// TestTaskTables: every table whose rows name a task is in taskTables, or is known to keep its rows longer.
func TestTaskTables(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	outlive := []string{"session_turn", "memory", "usage", "usage_billed", "usage_exported", "reservation", "trigger_start"} // have retention or bounds of their own, or are kept for billing
	var tables []string
	var b db.Batch
	b.Query(func(r db.Row) error {
		var name string
		err := r.Scan(&name)
		tables = append(tables, name)
		return err
	}, `SELECT t.name FROM pragma_table_list t WHERE t.schema = 'main' AND t.type = 'table'
		AND EXISTS (SELECT 1 FROM pragma_table_info(t.name) x WHERE x.name = 'task') ORDER BY t.name`)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	want := slices.Sorted(slices.Values(slices.Concat(store.TaskTables, outlive)))
	if diff := cmp.Diff(want, tables); diff != "" {
		t.Errorf("a table names tasks and is in neither list (taskTables in sweep.go, outlive here): %s", diff)
	}
}
