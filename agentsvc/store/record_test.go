package store_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestRecordEnd: a turn's last fact, its session entry and the end of its run are written together.
func TestRecordEnd(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		for _, c := range []struct {
			state agentsvc.State
			end   store.RunState
		}{
			{agentsvc.Completed, store.Completed},
			{agentsvc.Failed, store.Failed},
			{agentsvc.Rejected, store.Completed},
			{agentsvc.InputRequired, store.InputRequired},
			{agentsvc.AuthRequired, store.InputRequired},
		} {
			run := newRun("w1")
			run.Context = agentsvc.ContextID("of " + c.state)
			createTask(t, s, run)
			entries := []agentsvc.Entry{{Message: agentMessage("a"), Turn: 1}, {Result: &agentsvc.ToolResult{Call: "c", Name: "n", Text: "x"}, Turn: 1}}
			rec := store.Record{
				Events: sequenceEvents(run.Task, 3, messageEvent("think"), statusEvent(c.state, agentMessage("end"))), EndState: c.end, SessionEntries: entries, Error: "why",
			}
			if err := s.Runs.WriteRecord(t.Context(), &run, rec); err != nil {
				t.Fatal(err)
			}
			got := loadTask(t, s, run.Task)
			if got.Status.State != c.state || got.Seq != 4 || run.Seq != 4 || got.Status.Message.Text() != "end" || len(got.History) != 3 {
				t.Errorf("%s: task %+v, run at %d", c.state, got, run.Seq)
			}
			if state, _, worker := loadRunState(t, d, run); state != c.end || worker != "" {
				t.Errorf("%s: run is %s at %q, want %s", c.state, state, worker, c.end)
			}
			sess, err := s.Sessions.Load(t.Context(), ana, run.Context)
			if diff := cmp.Diff(entries, sess.Entries); err != nil || diff != "" {
				t.Errorf("%s: session (%v)\n%s", c.state, err, diff)
			}
		}
	})
}

// TestRecordRetry: a run that is to be retried is pending, and can be claimed when its delay is over.
func TestRecordRetry(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		run := createTask(t, s, newRun("w1"))
		if err := s.Runs.WriteRecord(t.Context(), &run, store.Record{EndState: store.Pending, RetryDelay: time.Hour, Error: "upstream"}); err != nil {
			t.Fatal(err)
		}
		if state, attempts, worker := loadRunState(t, d, run); state != store.Pending || attempts != 1 || worker != "" {
			t.Errorf("run is %s at %q after attempt %d, want pending after 1", state, worker, attempts)
		}
		q := store.NewRunQueue(d)
		in, ok, err := nextPendingDelay(t, d)
		if err != nil || !ok || in < 59*time.Minute || in > time.Hour {
			t.Errorf("claimable in %v, %v (%v), want in about an hour", in, ok, err)
		}
		if runs, err := claimRuns(t.Context(), q, "w2", 10); err != nil || len(runs) != 0 {
			t.Errorf("claimed %v (%v) before its time", runs, err)
		}
	})
}

// TestStale: a worker that has lost its lease can write nothing at all.
func TestStale(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		run := createTask(t, s, newRun("w1"))
		newer := run
		if _, err := s.Runs.BeginRun(t.Context(), &newer); err != nil {
			t.Fatal(err)
		}
		ended := createTask(t, s, newRun("w1"))
		if err := s.Runs.WriteRecord(t.Context(), &ended, store.Record{Events: sequenceEvents(ended.Task, 3, statusEvent(agentsvc.Completed, agentMessage("x"))), EndState: store.Completed}); err != nil {
			t.Fatal(err)
		}
		behind := createTask(t, s, newRun("w1"))
		ahead := behind
		if err := s.Runs.WriteRecord(t.Context(), &behind, store.Record{Events: sequenceEvents(behind.Task, 3, messageEvent("x"), messageEvent("y"))}); err != nil {
			t.Fatal(err)
		}
		before := dumpTables(t, d)
		for _, c := range []struct {
			name string
			run  store.Run
		}{{"an older epoch", run}, {"a task that has ended", ended}, {"an older sequence", ahead}} {
			id, seq := c.run.Task, c.run.Seq+1
			entries := []agentsvc.Entry{{Message: agentMessage("late")}}
			for what, rec := range map[string]store.Record{
				"a fact":        {Events: sequenceEvents(id, seq, messageEvent("late"))},
				"many facts":    {Events: sequenceEvents(id, seq, slices.Repeat([]agentsvc.Event{messageEvent("late")}, 150)...)},
				"the end":       {Events: sequenceEvents(id, seq, statusEvent(agentsvc.Completed, agentMessage("late"))), EndState: store.Completed, SessionEntries: entries},
				"a failure":     {Events: sequenceEvents(id, seq, statusEvent(agentsvc.Failed, agentMessage("late"))), EndState: store.Failed, Error: "late"},
				"another try":   {EndState: store.Pending, RetryDelay: time.Second},
				"only the turn": {SessionEntries: entries},
			} {
				r := c.run
				if what == "another try" || what == "only the turn" {
					if c.name == "an older sequence" {
						r.Seq-- // so that it is not the step of another writer
					}
				}
				if err := s.Runs.WriteRecord(t.Context(), &r, rec); !errors.Is(err, agentsvc.ErrLeaseLost) {
					t.Errorf("%s: record %s: %v, want ErrLost", c.name, what, err)
				}
				if diff := cmp.Diff(before, dumpTables(t, d)); diff != "" {
					t.Fatalf("%s: record %s left behind:\n%s", c.name, what, diff)
				}
			}
		}
	})
}

// TestManyFacts: a record with more facts than one statement inserts.
func TestManyFacts(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		run := createTask(t, s, newRun("w1"))
		for _, n := range []int{1, 63, 64, 65, 200} {
			evs := make([]agentsvc.Event, n)
			for i := range evs {
				evs[i] = messageEvent(fmt.Sprint(i))
			}
			if err := s.Runs.WriteRecord(t.Context(), &run, store.Record{Events: sequenceEvents(run.Task, run.Seq+1, evs...)}); err != nil {
				t.Fatalf("%d facts: %v", n, err)
			}
		}
		checkGapless(t, loadLog(t, s, run.Task), 2+1+63+64+65+200)
	})
}

func checkGapless(t *testing.T, evs []agentsvc.Event, n int) {
	t.Helper()
	if len(evs) != n {
		t.Errorf("%d events, want %d", len(evs), n)
	}
	ends := 0
	for i, ev := range evs {
		if ev.Seq != int64(i)+1 {
			t.Fatalf("event %d has sequence %d", i+1, ev.Seq)
		}
		if ev.Status != nil && ev.Status.State.IsTerminal() {
			if ends++; i != len(evs)-1 {
				t.Errorf("event %d is an end and not the last", ev.Seq)
			}
		}
	}
	if ends > 1 {
		t.Errorf("%d ends", ends)
	}
}

// TestRace: a worker, a cancellation and a worker that claimed the run write to one task at the same time: the log
// has no gap and one end, and every loser got an error.
func TestRace(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() { raceWriters(t, s) })
		}
		wg.Wait()
	})
}

func raceWriters(t *testing.T, s *store.Store) {
	ctx := context.Background()
	run := newRun("w1")
	if err := s.Tasks.Create(ctx, newTurn(run)); err != nil {
		t.Error(err)
		return
	}
	work := func(run store.Run) {
		for range 3 {
			if err := s.Runs.WriteRecord(ctx, &run, store.Record{Events: sequenceEvents(run.Task, run.Seq+1, messageEvent("a"), messageEvent("b"))}); err != nil {
				checkErrorIs(t, "record", err, agentsvc.ErrLeaseLost)
				return
			}
		}
		end := store.Record{Events: sequenceEvents(run.Task, run.Seq+1, statusEvent(agentsvc.Completed, agentMessage("done"))), EndState: store.Completed, SessionEntries: []agentsvc.Entry{{Message: agentMessage("done")}}}
		if err := s.Runs.WriteRecord(ctx, &run, end); err != nil {
			checkErrorIs(t, "record the end", err, agentsvc.ErrLeaseLost)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { work(run) })
	for range 2 {
		wg.Go(func() {
			claimed := store.Run{Task: run.Task, Turn: 1}
			if _, err := s.Runs.BeginRun(ctx, &claimed); err != nil {
				checkErrorIs(t, "begin", err, agentsvc.ErrLeaseLost)
				return
			}
			work(claimed)
		})
		wg.Go(func() {
			seen, err := s.Tasks.Load(ctx, nil, run.Task, store.TaskParts{})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Tasks.Cancel(ctx, seen, sequenceEvents(run.Task, seen.Seq+1, statusEvent(agentsvc.Cancelled, nil))[0]); err != nil {
				checkErrorIs(t, "cancel", err, agentsvc.ErrTaskChanged)
			}
		})
	}
	wg.Wait()
	evs, err := s.Events.Load(ctx, nil, run.Task, 0, 1000)
	if err != nil {
		t.Error(err)
		return
	}
	seen, err := s.Tasks.Load(ctx, nil, run.Task, store.TaskParts{})
	if err != nil {
		t.Error(err)
		return
	}
	checkGapless(t, evs, int(seen.Seq))
	if last := evs[len(evs)-1]; seen.Status.State.IsTerminal() && (last.Status == nil || last.Status.State != seen.Status.State) {
		t.Errorf("the task is %s, its log ends with %+v", seen.Status.State, last)
	}
}

func checkErrorIs(t *testing.T, operation string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want none or %v", operation, err, want)
	}
}

// TestCancelAtOnce: of two concurrent cancellations one is written.
func TestCancelAtOnce(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		for _, worker := range []string{"", "w1"} {
			run := createTask(t, s, newRun(worker))
			seen := loadTask(t, s, run.Task)
			errs := make([]error, 8)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() {
					errs[i] = s.Tasks.Cancel(context.Background(), seen, sequenceEvents(run.Task, seen.Seq+1, statusEvent(agentsvc.Cancelled, nil))[0])
				})
			}
			wg.Wait()
			won := 0
			for _, err := range errs {
				if err == nil {
					won++
				} else {
					checkErrorIs(t, "cancel", err, agentsvc.ErrTaskChanged)
				}
			}
			if won != 1 {
				t.Errorf("%d cancelled it, want 1", won)
			}
			checkGapless(t, loadLog(t, s, run.Task), int(seen.Seq)+1)
			if state, _, worker := loadRunState(t, d, run); state != store.Completed || worker != "" {
				t.Errorf("its run is %s at %q, want it over", state, worker)
			}
		}
	})
}

// TestSessionAtOnce: the turns of tasks that end at the same time in one session are all stored, each completely.
func TestSessionAtOnce(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		const turns = 30
		other := store.New(d, "acme")
		var wg sync.WaitGroup
		for i := range turns {
			run := createTask(t, s, newRun("w1"))
			run.IsNewContext = i%3 == 0 // it assumes to be the first
			wg.Go(func() {
				text := fmt.Sprint("turn ", i)
				rec := store.Record{
					Events: sequenceEvents(run.Task, 3, statusEvent(agentsvc.Completed, agentMessage(text))), EndState: store.Completed,
					SessionEntries: []agentsvc.Entry{{Message: agentMessage(text)}, {Message: agentMessage(text)}},
				}
				if err := []*store.Store{s, other}[i%2].Runs.WriteRecord(context.Background(), &run, rec); err != nil {
					t.Errorf("%s: %v", text, err)
				}
			})
		}
		wg.Wait()
		sess, err := s.Sessions.Load(t.Context(), ana, "c1")
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for i := 0; i+1 < len(sess.Entries); i += 2 {
			a, b := sess.Entries[i].Message.Text(), sess.Entries[i+1].Message.Text()
			if a != b {
				t.Errorf("%q and %q are mixed", a, b)
			}
			seen[a] = true
		}
		if len(seen) != turns {
			t.Errorf("%d turns kept, want %d", len(seen), turns)
		}
		for _, owner := range []agentsvc.Owner{{Issuer: "stoa", Subject: "bob"}, {Issuer: "other", Subject: "ana"}} {
			if sess, err := s.Sessions.Load(t.Context(), owner, "c1"); err != nil || len(sess.Entries) != 0 {
				t.Errorf("%v reads %d entries of ana's session (%v)", owner, len(sess.Entries), err)
			}
		}
	})
}

// TestRecordTogether: turns that end at the same time leave the same rows as one after the other, whatever each
// writes and whichever has lost its lease. On PostgreSQL they share their statements.
func TestRecordTogether(t *testing.T) {
	t.Parallel()
	url := dbtest.NewPostgresURL(t)
	one, err := db.Open(t.Context(), url, db.Options{MaxConns: 1}) // a connection sees only its own statements
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = one.Close() })
	for _, d := range []*db.DB{dbtest.NewSQLite(t), one} {
		const many = 60
		for _, some := range []bool{false, true} { // whether some of them have lost their lease
			var left []string
			for _, together := range []bool{true, false} {
				tenant := db.ID(fmt.Sprint(together, some))
				s := store.New(d, tenant)
				var wg sync.WaitGroup
				ids := []string{string(tenant), "tenant"}
				var writes []func()
				for i := range many {
					run, rec, want := createEndingTurn(t, s, tenant, i, some)
					ids = append(ids, string(run.Task), fmt.Sprint("task", i))
					write := func() {
						err := s.Runs.WriteRecord(context.Background(), &run, rec)
						if !errors.Is(err, want) {
							t.Errorf("%s: turn %d: %v, want %v", d.Engine(), i, err, want)
						}
						if followed := i%10 == 3; run.HasQueuedRuns != followed {
							t.Errorf("%s: turn %d is followed: %v, want %v", d.Engine(), i, run.HasQueuedRuns, followed)
						}
					}
					writes = append(writes, write)
				}
				release := func() {}
				if together {
					release = occupyConnection(t, d)
				}
				for _, write := range writes {
					if together {
						wg.Go(write)
					} else {
						write()
					}
				}
				if together {
					time.Sleep(200 * time.Millisecond) // they queue behind the first
				}
				release()
				wg.Wait()
				if together && !some && d == one {
					checkSharedStatements(t, d)
				}
				var lines []string
				names := strings.NewReplacer(ids...)
				for line := range strings.Lines(dumpTables(t, d)) {
					if strings.Contains(line, string(tenant)) {
						lines = append(lines, timesAndIDs.ReplaceAllString(names.Replace(line), "then"))
					}
				}
				slices.Sort(lines)
				left = append(left, strings.Join(lines, ""))
			}
			if diff := cmp.Diff(left[1], left[0]); diff != "" {
				t.Errorf("%s: together they leave something else\n%s", d.Engine(), diff)
			}
		}
	}
}

// checkSharedStatements checks that the connection has executed shared statements for advancing tasks and ending
// runs.
func checkSharedStatements(t *testing.T, d *db.DB) {
	t.Helper()
	var shared int
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&shared) }, "SELECT COUNT(*) FROM pg_prepared_statements WHERE statement LIKE 'WITH t AS (UPDATE%v.place%'")
	if err := d.Platform().Do(t.Context(), &b); err != nil || shared != 2 {
		t.Errorf("%d statements were shared (%v), want 2", shared, err)
	}
}

// occupyConnection keeps the only connection of d busy until release is called.
func occupyConnection(t *testing.T, d *db.DB) (release func()) {
	t.Helper()
	in, out, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- d.Platform().RunTx(context.Background(), func(*db.Tx) error { close(in); <-out; return nil })
	}()
	<-in
	return func() {
		close(out)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// timesAndIDs matches a time in microseconds, or an id that begins with one.
var timesAndIDs = regexp.MustCompile(`\d{16}|[0-9a-f]{8}-[0-9a-f-]{27}`)

// createEndingTurn accepts the i-th task and returns its run and the record with which its turn ends.
func createEndingTurn(t *testing.T, s *store.Store, tenant db.ID, i int, some bool) (store.Run, store.Record, error) {
	t.Helper()
	run := newRun("w1")
	run.Tenant, run.Context = tenant, agentsvc.ContextID(agentsvc.NewID())
	createTask(t, s, run)
	rec := store.Record{Events: sequenceEvents(run.Task, 3, messageEvent("x"), statusEvent(agentsvc.Completed, agentMessage(fmt.Sprint("end ", i)))), EndState: store.Completed}
	rec.SessionEntries = []agentsvc.Entry{{Message: agentMessage(fmt.Sprint("said ", i))}}
	switch i % 10 {
	case 0:
		rec.SessionEntries = nil
	case 1:
		rec.Events, rec.EndState, rec.Error = sequenceEvents(run.Task, 3, statusEvent(agentsvc.Failed, agentMessage("no"))), store.Failed, "why"
	case 2:
		rec.Events, rec.EndState = sequenceEvents(run.Task, 3, statusEvent(agentsvc.InputRequired, agentMessage("what?"))), store.InputRequired
	case 3:
		behind := newRun("")
		behind.Tenant, behind.Context, behind.IsNewContext, behind.Owner = tenant, run.Context, false, run.Owner
		createTask(t, s, behind)
	case 4:
		rec.Events, rec.EndState, rec.RetryDelay, rec.Error, rec.SessionEntries = nil, store.Pending, time.Hour, "again", nil
	case 5:
		if newer := run; some {
			if _, err := s.Runs.BeginRun(t.Context(), &newer); err != nil {
				t.Fatal(err)
			}
			return run, rec, agentsvc.ErrLeaseLost
		}
	}
	return run, rec, nil
}
