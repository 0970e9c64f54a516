package task_test

import (
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/deadletter"
	"stoa/agentsvc/store/queuestats"
	"stoa/agentsvc/task"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// setOptions replaces the options of p's task service.
func (p *process) setOptions(o task.Options) {
	p.Service = task.New(p.st, "acme", 7, p.hub, p.pool, slog.New(slog.NewTextHandler(io.Discard, nil)), o)
}

// insertApp writes the tenant's row, from which claims read the limit.
func insertApp(t *testing.T, d *db.DB, concurrent int64) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, `INSERT INTO app (tenant, name, display_name, status, revision, inputs, generation, grants, plan, labels, data_key, master_key, created_at, updated_at, max_concurrent_tasks)
		VALUES ('acme', 'acme', '', 'active', 1, 1, 1, '[]', '', '{}', $1, '', 0, 0, $2)`, []byte{}, concurrent)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// TestConcurrent: of all runs of a tenant, live, queued and continued, in two processes, never more execute at a time
// than the limit; the others wait and all end.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		const limit, calls = 2, 10
		insertApp(t, d, limit)
		var at, most atomic.Int64
		handle := func(w *runWork) error {
			most.Store(max(most.Load(), at.Add(1)))
			time.Sleep(3 * time.Millisecond)
			at.Add(-1)
			return replyUntilEnough(w)
		}
		var wg sync.WaitGroup
		for range 2 {
			p := startProcess(t, d, handle)
			p.setOptions(task.Options{MaxConcurrent: limit})
			p.startClaiming(t)
			for i := range calls {
				wg.Go(func() {
					sub := newSubmission("hi")
					if i%2 == 0 {
						if _, err := p.Messages.Submit(t.Context(), sub); err != nil {
							t.Error(err)
						}
						return
					}
					opened, evs, err := p.Messages.SubmitAndFollow(t.Context(), sub)
					if err != nil {
						t.Error(err)
						return
					}
					drainTurn(t, evs)
					if _, evs, err = p.Messages.SubmitAndFollow(t.Context(), newReply(opened, "enough")); err != nil {
						t.Error(err)
						return
					}
					drainTurn(t, evs)
				})
			}
		}
		wg.Wait()
		var st queuestats.Stats
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			var err error
			if st, err = queuestats.Count(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			if st.Pending+st.Running == 0 {
				break
			}
		}
		if st.Pending+st.Running > 0 || st.InputRequired+st.Completed != 2*calls+calls {
			t.Errorf("in the end: %+v", st)
		}
		if most.Load() > limit {
			t.Errorf("%d were at work at a time, %d may be", most.Load(), limit)
		}
	})
}

// TestDepthLimit: a message that finds the queue full is refused before anything is written; one that gets a live
// slot is not subject to the limit.
func TestDepthLimit(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		p := startProcess(t, d, replyUntilEnough)
		p.setOptions(task.Options{MaxQueueDepth: 2})
		for i := range 4 {
			_, err := p.Messages.Submit(t.Context(), newSubmission("hi"))
			var full *agentsvc.Error
			if refused := errors.As(err, &full) && full.Code == agentsvc.CodeExhausted && full.RetryAfter > 0; refused != (i >= 2) {
				t.Errorf("message %d: %v", i+1, err)
			}
		}
		if page, err := p.Reader.List(t.Context(), task.Visibility{}, task.Query{}); err != nil || page.Total != 2 {
			t.Errorf("%d tasks (%v)", page.Total, err)
		}
		if got, _ := submitAndDrain(t, p, newSubmission("hi")); got.Status.State != agentsvc.Working {
			t.Errorf("in place: %s", got.Status.State)
		}
	})
}

// TestRequeue: a requeued dead letter continues in a new task from its recorded facts, and can be requeued only once.
func TestRequeue(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		journalSizes := make(chan int, 10)
		p := startProcess(t, d, func(w *runWork) error {
			evs, err := w.ReadJournal(w)
			if err != nil {
				return err
			}
			journalSizes <- len(evs)
			if len(evs) > 2 { // continues after the message
				return w.recordEnd(agentsvc.Completed, "done")
			}
			if err := w.recordMessage("halfway"); err != nil {
				return err
			}
			return w.RecordFacts(w, store.Record{Events: []agentsvc.Event{{Status: &agentsvc.Status{State: agentsvc.Failed}}}, EndState: store.Failed, Error: "no luck"})
		})
		p.startClaiming(t)
		letters := task.NewDeadLetters(d, p.hub, p.pool.WakeClaimers, task.DeadOptions{})
		sub := newSubmission("hi")
		sub.Roles = []string{"finance"}
		opened, _ := submitAndDrain(t, p, sub)
		dead, total, err := letters.List(t.Context(), deadletter.Filter{Limit: 10})
		if err != nil || total != 1 || dead[0].ID.Task != opened.ID || dead[0].Error != "no luck" {
			t.Fatalf("%d dead letters: %+v (%v)", total, dead, err)
		}
		_, next, err := letters.Requeue(t.Context(), nil, audit.Actor{Name: "op"}, dead[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := letters.Requeue(t.Context(), nil, audit.Actor{Name: "op"}, dead[0].ID); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("again: %v", err)
		}
		if roles, err := p.st.Runs.LoadRoles(t.Context(), next); err != nil || len(roles) != 1 || roles[0] != "finance" {
			t.Errorf("the roles are %v, %v", roles, err)
		}
		if n := countAuditEntries(t, d, "queue.requeue"); n != 1 {
			t.Errorf("%d entries on the audit trail, want 1", n)
		}
		got, evs, err := p.Reader.Follow(withTimeout(t), task.Visibility{Owner: &ana}, next, nil)
		if err != nil {
			t.Fatal(err)
		}
		for ev, err := range evs {
			if err != nil {
				t.Fatal(err)
			}
			got.ApplyEvent(ev)
		}
		if got.Status.State != agentsvc.Completed || len(got.History) < 3 || got.History[1].Text() != "halfway" || <-journalSizes != 2 || <-journalSizes != 3 {
			t.Errorf("went on as %s with %d messages", got.Status.State, len(got.History))
		}
		if old, err := p.Reader.Get(t.Context(), task.Visibility{}, opened.ID, store.TaskParts{}); err != nil || old.Status.State != agentsvc.Failed {
			t.Errorf("the old task is %s (%v)", old.Status.State, err)
		}
	})
}

// TestGivenUp: giving up a run fails its task and its readers see that; a task that has changed is left alone.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		p := startProcess(t, d, replyUntilEnough)
		letters := task.NewDeadLetters(d, p.hub, p.pool.WakeClaimers, task.DeadOptions{})
		opened, err := p.Messages.Submit(t.Context(), newSubmission("hi"))
		if err != nil {
			t.Fatal(err)
		}
		_, evs, err := p.Reader.Follow(withTimeout(t), task.Visibility{}, opened.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		run := store.Run{Tenant: "acme", Task: opened.ID, Turn: 1, Attempts: 4}
		if err := letters.GiveUp(t.Context(), run, "it never began"); err != nil {
			t.Fatal(err)
		}
		if facts := drainTurn(t, evs); len(facts) != 1 || facts[0].Status.State != agentsvc.Failed {
			t.Errorf("listeners heard %+v", facts)
		}
		dead, _, err := letters.List(t.Context(), deadletter.Filter{Limit: 1})
		if err != nil || len(dead) != 1 || dead[0].Attempts != 4 || dead[0].Error != "it never began" {
			t.Errorf("%+v (%v)", dead, err)
		}
		for _, run := range []store.Run{run, {Tenant: "acme", Task: "gone", Turn: 1}, {Tenant: "globex", Task: opened.ID, Turn: 1}} {
			if err := letters.GiveUp(t.Context(), run, "late"); !errors.Is(err, agentsvc.ErrLeaseLost) {
				t.Errorf("%s of %s: %v", run.Task, run.Tenant, err)
			}
		}
	})
}

// countAuditEntries returns the number of audit entries with an action.
func countAuditEntries(t *testing.T, d *db.DB, action string) (n int) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, `SELECT COUNT(*) FROM audit WHERE app_id = 'acme' AND actor = 'op' AND action = $1`, action)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}
