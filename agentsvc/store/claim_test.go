package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/deadletter"
	"stoa/agentsvc/store/queuestats"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// insertApp writes the tenant's row, as far as the queue reads it.
func insertApp(t *testing.T, d *db.DB, id db.ID, status string, weight, concurrent int64) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, `INSERT INTO app (tenant, name, display_name, status, revision, inputs, generation, grants, plan, labels, data_key, master_key, created_at, updated_at, weight, max_concurrent_tasks)
		VALUES ($1, $2, '', $3, 9, 1, 1, '[]', '', '{}', $4, '', 0, 0, $5, $6)`, string(id), "app-"+string(id), status, []byte{}, weight, concurrent)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// createPendingRuns writes n pending runs of a tenant.
func createPendingRuns(t *testing.T, d *db.DB, id db.ID, n int) (runs []store.Run) {
	t.Helper()
	for range n {
		run := newRun("")
		run.Tenant = id
		turn := newTurn(run)
		turn.Priority = store.PriorityNormal
		runs = append(runs, createTurn(t, store.New(d, id), turn))
	}
	return runs
}

// TestTurns: the ring of tenants from any position, and the share of each.
func TestTurns(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, _ *store.Store) {
		q := store.NewRunQueue(d)
		insertApp(t, d, "b", "active", 5, 3)
		insertApp(t, d, "c", "suspended", 0, 0)
		for id, n := range map[db.ID]int{"a": 20, "b": 1, "c": 2, "d": 1} {
			createPendingRuns(t, d, id, n)
		}
		run := newRun("w1")
		run.Tenant = "b"
		createTask(t, store.New(d, "b"), run)
		a, b := store.Share{Tenant: "a", Weight: 1}, store.Share{Tenant: "b", Weight: 5, MaxRunning: 3, Running: 1}
		c, dd := store.Share{Tenant: "c", Weight: 1, Closed: true}, store.Share{Tenant: "d", Weight: 1}
		for _, tt := range []struct {
			from db.ID
			n    int
			want []store.Share
		}{
			{"", 10, []store.Share{a, b, c, dd}}, {"b", 10, []store.Share{b, c, dd, a}}, {"bb", 2, []store.Share{c, dd}}, {"zz", 3, []store.Share{a, b, c}},
		} {
			got, err := q.ListShares(t.Context(), tt.from, tt.n, true)
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("from %q (%v):\n%s", tt.from, err, diff)
			}
		}
	})
}

// TestPriority: of a tenant's runs, awaited ones come first and background ones last, whatever their order of
// arrival.
func TestPriority(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		var want []agentsvc.TaskID
		for _, p := range []store.Priority{store.PriorityBackground, store.PriorityNormal, store.PriorityAwaited, store.PriorityNormal} {
			turn := newTurn(newRun(""))
			turn.Priority = p
			want = append(want, createTurn(t, s, turn).Task)
			time.Sleep(time.Millisecond)
		}
		want = []agentsvc.TaskID{want[2], want[1], want[3], want[0]}
		q := store.NewRunQueue(d)
		still, err := q.FindAwaitedApps(t.Context(), map[db.ID]int64{"acme": 0, "globex": 0})
		if err != nil || !slices.Equal(still, []db.ID{"acme"}) {
			t.Errorf("waited for in %v (%v)", still, err)
		}
		var got []agentsvc.TaskID
		for _, share := range []store.Share{{Tenant: "acme", ClaimCount: 5, AwaitedOnly: true}, {Tenant: "acme", ClaimCount: 1}, {Tenant: "acme", ClaimCount: 1}, {Tenant: "acme", ClaimCount: 1}} {
			runs, err := q.ClaimRuns(t.Context(), "w", []store.Share{share})
			if err != nil || len(runs) != 1 {
				t.Fatalf("claimed %d (%v)", len(runs), err)
			}
			got = append(got, runs[0].Task)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestClaimNotCommitted: a claim whose commit failed has leased nothing, although the database had returned its runs.
func TestClaimNotCommitted(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		q, run := store.NewRunQueue(d), createTask(t, s, newRun(""))
		commit := dbtest.FailCommits(t, d, "run", "NEW.state = 'running'")
		if runs, err := claimRuns(t.Context(), q, "w", 1); err == nil || len(runs) != 0 {
			t.Errorf("claimed %d runs (%v), want none and an error", len(runs), err)
		}
		commit()
		if runs, err := claimRuns(t.Context(), q, "w", 1); err != nil || len(runs) != 1 || runs[0].Task != run.Task || runs[0].Attempts != 1 {
			t.Errorf("afterwards claimed %+v (%v), want the run in its first attempt", runs, err)
		}
	})
}

// TestLimit: a tenant never has more executing runs than its limit, however many processes claim and accept at the
// same time.
func TestLimit(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		const limit = 3
		insertApp(t, d, "acme", "active", 1, limit)
		createPendingRuns(t, d, "acme", 40)
		q := store.NewRunQueue(d)
		var wg sync.WaitGroup
		claimed := make(chan store.Run, 100)
		for i := range 4 {
			wg.Go(func() {
				for range 10 {
					runs, err := q.ClaimRuns(context.Background(), fmt.Sprint("w", i), []store.Share{{Tenant: "acme", MaxRunning: limit, ClaimCount: 2}})
					if err != nil {
						t.Error(err)
					}
					for _, run := range runs {
						claimed <- run
					}
				}
			})
		}
		wg.Wait()
		close(claimed)
		if n := len(claimed); n != limit {
			t.Errorf("%d are at work, %d may be", n, limit)
		}
		for run := range claimed {
			if err := q.ReturnRun(t.Context(), run, store.ReturnOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestSuspect: a run with which two workers died is claimed alone, and only by a claim that asks for suspects; the
// other runs of its workers are claimed as before.
func TestSuspect(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		q := store.NewRunQueue(d)
		poison := createTask(t, s, newRun("w1"))
		for i, worker := range []string{"w1", "w2"} {
			if n, _, err := q.RescueRuns(t.Context(), time.Hour); err != nil || n != 1 {
				t.Fatalf("rescued %d (%v)", n, err)
			}
			if i == 1 {
				break
			}
			if runs, err := claimRuns(t.Context(), q, "w2", 1); err != nil || len(runs) != 1 || runs[0].IsSuspect() {
				t.Fatalf("after the death of %s claimed %+v (%v)", worker, runs, err)
			}
		}
		neighbour := createPendingRuns(t, d, "acme", 1)[0]
		if shares, err := q.ListShares(t.Context(), "", 9, false); err != nil || len(shares) != 1 || shares[0].SuspectOnly {
			t.Errorf("without suspects: %+v (%v)", shares, err)
		}
		runs, err := q.ClaimRuns(t.Context(), "w3", []store.Share{{Tenant: "acme", ClaimCount: 9}})
		if err != nil || len(runs) != 1 || runs[0].Task != neighbour.Task {
			t.Errorf("claimed %+v (%v), want the neighbour alone", runs, err)
		}
		shares, err := q.ListShares(t.Context(), "", 9, true)
		if err != nil || len(shares) != 1 || !shares[0].SuspectOnly {
			t.Fatalf("with suspects: %+v (%v)", shares, err)
		}
		runs, err = q.ClaimRuns(t.Context(), "w3", shares)
		if err != nil || len(runs) != 1 || runs[0].Task != poison.Task || !runs[0].IsSuspect() || runs[0].Attempts != 3 {
			t.Errorf("claimed %+v (%v), want the suspect in its third attempt", runs, err)
		}
	})
}

// TestTurnsPlan: with a long queue of one tenant and short ones of a thousand, with statistics or without, neither
// listing the ring nor a claim reads more rows of the queue than it returns.
func TestTurnsPlan(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	exec := func(sqls ...string) {
		t.Helper()
		err := d.ChangeSchema(t.Context(), "", func(conn *sql.DB) error {
			for _, s := range sqls {
				if _, err := conn.ExecContext(t.Context(), s); err != nil {
					return fmt.Errorf("%s: %w", s, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO run (tenant, task, turn, state, attempts, revision, first_seq, worker, available_at, last_error, created_at)
		SELECT CASE WHEN n <= 10000 THEN 'flood' ELSE 'app' || n % 1000 END, 'task' || n, 1, 'pending', 0, 1, 1, '', n, '', n FROM generate_series(1, 12000) n`,
		`INSERT INTO run (tenant, task, turn, state, attempts, revision, first_seq, worker, available_at, last_error, created_at)
		SELECT 'old' || n % 100, 'task' || n, 1, 'completed', 1, 1, 1, '', n, '', n FROM generate_series(20001, 40000) n`)
	one, err := db.Open(t.Context(), d.URL(), db.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = one.Close() }()
	q := store.NewRunQueue(one)
	for _, when := range []string{"without statistics", "with statistics"} {
		for i := range 8 { // PostgreSQL chooses between custom and generic plan after five executions
			from := db.ID("app5")
			if i%2 == 0 {
				from = "flood"
			}
			before := waitForRowsRead(t, one)
			shares, err := q.ListShares(t.Context(), from, 9, true)
			if err != nil || len(shares) != 9 {
				t.Fatalf("%s: %d shares (%v)", when, len(shares), err)
			}
			for i := range 4 {
				shares[i].ClaimCount = 1
			}
			runs, err := q.ClaimRuns(t.Context(), "w", shares)
			if err != nil || len(runs) != 4 {
				t.Fatalf("%s: claimed %d (%v)", when, len(runs), err)
			}
			if n := waitForRowsRead(t, one) - before; n > 200 {
				t.Errorf("%s: a look and a claim read %d rows of the queue", when, n)
			}
		}
		exec("ANALYZE run")
	}
}

// waitForRowsRead returns how many rows and index entries of the queue have been read so far, by d's only connection
// and by closed ones.
func waitForRowsRead(t *testing.T, d *db.DB) (n int64) {
	t.Helper()
	for before := int64(-1); n != before; time.Sleep(10 * time.Millisecond) {
		before, n = n, countRowsRead(t, d)
	}
	return n
}

func countRowsRead(t *testing.T, d *db.DB) (n int64) {
	t.Helper()
	var flush, b db.Batch
	flush.Exec(nil, "SELECT pg_stat_force_next_flush()")
	if err := d.Platform().Do(t.Context(), &flush); err != nil {
		t.Fatal(err)
	}
	b.Query(func(r db.Row) error { return r.Scan(&n) },
		`SELECT CAST(COALESCE(pg_stat_get_tuples_returned(c.oid), 0) + (SELECT SUM(pg_stat_get_tuples_returned(i.indexrelid)) FROM pg_index i WHERE i.indrelid = c.oid) AS BIGINT)
		FROM pg_class c WHERE c.oid = CAST('run' AS regclass)`)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDead: dead letters are listed with their error, page by page, and are requeued once, as a new task with the
// recorded facts.
func TestDead(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, _ *store.Store) {
		q, ctx := store.NewRunQueue(d), t.Context()
		insertApp(t, d, "acme", "active", 0, 0)
		var ids []string
		for i, tenant := range []db.ID{"acme", "acme", "default"} {
			s := store.New(d, tenant)
			run := newRun("w1")
			run.Tenant = tenant
			createTask(t, s, run)
			rec := store.Record{Events: sequenceEvents(run.Task, 3, statusEvent(agentsvc.Failed, agentMessage("no"))), EndState: store.Failed, Error: fmt.Sprintf("reason 100%%_%d", i)}
			if err := s.Runs.WriteRecord(ctx, &run, rec); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, deadletter.ID{Task: run.Task, Turn: 1}.String())
		}
		id := func(i int) deadletter.ID {
			id, ok := deadletter.ParseID(ids[i])
			if !ok {
				t.Fatal(ids[i])
			}
			return id
		}
		for _, tt := range []struct {
			f     deadletter.Filter
			want  []string
			total int
		}{
			{deadletter.Filter{Limit: 10}, []string{ids[2], ids[1], ids[0]}, 3},
			{deadletter.Filter{Limit: 2}, []string{ids[2], ids[1]}, 3},
			{deadletter.Filter{Limit: 2, Before: id(1)}, []string{ids[0]}, 3},
			{deadletter.Filter{Limit: 9, App: "app-acme"}, []string{ids[1], ids[0]}, 2},
			{deadletter.Filter{Limit: 9, App: "default"}, []string{ids[2]}, 1},
			{deadletter.Filter{Limit: 9, Agent: "assistant", Error: "100%_1"}, []string{ids[1]}, 1},
			{deadletter.Filter{Limit: 9, Agent: "other"}, nil, 0},
			{deadletter.Filter{Limit: 9, ID: id(0)}, []string{ids[0]}, 1},
		} {
			dead, total, err := deadletter.List(ctx, d, tt.f)
			var got []string
			for _, l := range dead {
				got = append(got, l.ID.String())
				if l.Attempts != 1 || !strings.HasPrefix(l.Error, "reason") || time.Since(l.FailedAt) > time.Minute {
					t.Errorf("%+v", l)
				}
			}
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" || total != tt.total {
				t.Errorf("%+v: %d in all (%v)\n%s", tt.f, total, err, diff)
			}
		}
		next := newTurn(newRun(""))
		next.Priority, next.MayWait = store.PriorityNormal, true
		next.Events = append(next.Events, sequenceEvents(next.Task, 2, messageEvent("kept"))...)
		next.Seq, next.AuditEntries = 2, []audit.Entry{{Actor: audit.Actor{Name: "op"}}}
		s := store.New(d, "acme")
		if err := s.DeadLetters.Requeue(ctx, id(0), next); err != nil {
			t.Fatal(err)
		}
		if err := s.DeadLetters.Requeue(ctx, id(0), newTurn(newRun(""))); err == nil {
			t.Error("a letter was requeued twice")
		}
		if err := store.New(d, "globex").DeadLetters.Requeue(ctx, id(1), newTurn(newRun(""))); err == nil {
			t.Error("a stranger's letter was requeued")
		}
		if got := loadTask(t, s, next.Task); got.Status.State != agentsvc.Submitted || len(got.History) != 2 {
			t.Errorf("the new task is %+v", got)
		}
		runs, err := claimRuns(ctx, q, "w2", 9)
		if err != nil || len(runs) != 1 || runs[0].Task != next.Task || runs[0].Revision != 9 {
			t.Errorf("claimed %+v (%v), want the new task at the revision in force", runs, err)
		}
		st, err := queuestats.Count(ctx, d)
		want := queuestats.Stats{Running: 1, Completed: 1, Failed: 2, Apps: []queuestats.AppCounts{{App: "app-acme", Running: 1}}}
		if diff := cmp.Diff(want, st); err != nil || diff != "" {
			t.Errorf("stats (%v)\n%s", err, diff)
		}
	})
}
