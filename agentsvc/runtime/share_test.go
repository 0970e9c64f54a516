package runtime

import (
	"errors"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trigger"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestShareOfMemory checks that an app that stores as much as it can in memory cannot fill the database. Its runs end,
// and it can continue once its oldest finished data is deleted.
func TestShareOfMemory(t *testing.T) {
	t.Parallel()
	p := openProcess(t, dbtest.NewSQLite(t), InMemoryDBOptions{MaxPages: 2000})
	p.loadApp(t, "tasks: {backend: inmemory}, sessions: {backend: inmemory}")
	text := strings.Repeat("x", 100_000)
	submitSome := func(size int) error {
		_, err := p.app.Load().Tasks().Messages.Submit(t.Context(), task.Submission{
			Agent: "helper", Owner: bea, Message: agentsvc.Message{Parts: []agentsvc.Part{agentsvc.TextPart(text[:size])}},
		})
		return err
	}
	submit := func() error { return submitSome(len(text)) }
	waiting := p.runTurn(t, "ask", "")
	var err error
	for range 200 {
		if err = submit(); err != nil {
			break
		}
	}
	if agentsvc.DetailOf[agentsvc.StorageUse](err).MaxBytes == 0 || !strings.Contains(err.Error(), "storage.tasks.backend: sql") {
		t.Fatalf("%v, want the app's share to be used up, and what helps", err)
	}
	for size := len(text) / 2; size > 0; size /= 2 { // fill the rest
		for submitSome(size) == nil {
		}
	}
	tick := trigger.Tick{Tenant: "acme", Agent: "timed", Spec: p.app.Load().Schedules()["timed"].Cron.String(), At: time.Now()}
	if _, err := p.app.Load().StartTick(t.Context(), tick); !errors.Is(err, trigger.ErrTickRefused) {
		t.Errorf("a tick: %v, want it to be refused, so that it is not tried over and over", err)
	}
	other := store.New(p.InMemory.DB, "globex")
	for i := range 5 {
		run := store.Run{Tenant: "globex", Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Agent: "helper", Owner: bea, FirstSeq: 1, IsNewContext: true, Lease: store.Lease{Worker: "w", Epoch: 1, Seq: 1}}
		m := agentsvc.Message{ID: "m", Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart(text)}}
		evs := []agentsvc.Event{{Task: run.Task, Seq: 1, Status: &agentsvc.Status{State: agentsvc.Submitted, Message: &m}}}
		if err := other.Tasks.Create(t.Context(), store.NewTurn{Run: run, Events: evs}); err != nil {
			t.Fatalf("task %d of another app: %v", i, err)
		}
	}
	dbtest.WaitUntil(t, "every run of the app has ended", func() bool { return countActiveRuns(t, p.InMemory.DB, "acme") == 0 })
	dbtest.WaitUntil(t, "there is room again", func() bool {
		if err := p.InMemory.cleanUpApps(t.Context()); err != nil {
			t.Fatal(err)
		}
		return submit() == nil
	})
	if _, err := p.app.Load().Tasks().Reader.Get(t.Context(), task.Visibility{}, waiting.ID, store.TaskParts{}); err != nil {
		t.Errorf("the task that waits for its user: %v", err)
	}
}

// TestResultBeyondShare checks that a run whose result does not fit ends at once, with the reason in its task.
func TestResultBeyondShare(t *testing.T) {
	t.Parallel()
	p := openProcess(t, dbtest.NewSQLite(t), InMemoryDBOptions{MaxPages: 700})
	p.loadApp(t, "tasks: {backend: inmemory}, sessions: {backend: inmemory}")
	outcome := p.runTurn(t, strings.Repeat("x", 700_000), "")
	if outcome.Status.State != agentsvc.Failed || !strings.Contains(outcome.Status.Message.Text(), "could not be stored") {
		t.Errorf("%s %.200q, want it to fail for lack of memory", outcome.Status.State, outcome.Status.Message.Text())
	}
	if n := countActiveRuns(t, p.InMemory.DB, "acme"); n != 0 {
		t.Errorf("%d runs are left, want none", n)
	}
}

// countActiveRuns counts the runs of an app that have not ended.
func countActiveRuns(t *testing.T, d *db.DB, app db.ID) (n int) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM run WHERE tenant = $1 AND state IN ('waiting', 'pending', 'running')", string(app))
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}

// countRows counts the rows of a table.
func countRows(t *testing.T, d *db.DB, table string) (n int) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM "+table)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}
