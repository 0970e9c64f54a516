package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/queuestats"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestClaim: which runs a claim leases, to which worker and in which order.
func TestClaim(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		q := store.NewRunQueue(d)
		var want []store.Run
		for i := range 5 {
			run := newRun("")
			run.Tenant = db.ID(fmt.Sprint("t", i))
			createTask(t, store.New(d, run.Tenant), run)
			want = append(want, store.Run{Tenant: run.Tenant, Task: run.Task, Turn: 1, Revision: 7, Attempts: 1, FirstSeq: 1, Lease: store.Lease{Worker: "w2"}})
		}
		createTask(t, s, newRun("w1"))
		var got []store.Run
		for _, n := range []int{2, 1, 10, 10} {
			runs, err := claimRuns(t.Context(), q, "w2", n)
			if err != nil || len(runs) > n {
				t.Fatalf("claimed %d of %d (%v)", len(runs), n, err)
			}
			got = append(got, runs...)
			if len(got) == 2 && (got[0].Tenant > "t1" || got[1].Tenant > "t1") {
				t.Errorf("first claimed %v, want those that wait the longest", got)
			}
		}
		byTenant := cmp.Transformer("byTenant", func(runs []store.Run) map[db.ID]store.Run {
			m := map[db.ID]store.Run{}
			for _, r := range runs {
				m[r.Tenant] = r
			}
			return m
		})
		if diff := cmp.Diff(want, got, byTenant); diff != "" || len(got) != len(want) {
			t.Errorf("claimed %d:\n%s", len(got), diff)
		}
		for _, run := range got {
			if state, attempts, worker := loadRunState(t, d, run); state != store.Running || attempts != 1 || worker != "w2" {
				t.Errorf("a claimed run is %s at %q, attempt %d", state, worker, attempts)
			}
		}
		held, err := q.ListLeasedRuns(t.Context(), "w2")
		if err != nil || len(held) != len(want) {
			t.Errorf("w2 holds %d runs (%v), want %d", len(held), err, len(want))
		}
		if st, err := queuestats.Count(t.Context(), d); err != nil || st.Running != 6 || st.Pending != 0 {
			t.Errorf("stats %+v (%v), want 6 running", st, err)
		}
	})
}

// TestClaimAtOnce: of many concurrent claims, each run is leased by one, and no claim gets more than it asked for.
func TestClaimAtOnce(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		runs, claimers := 1000, 8
		if d.Engine() == db.SQLite {
			runs = 200
		}
		var wg sync.WaitGroup
		for range runs {
			wg.Go(func() {
				run := newRun("")
				if err := s.Tasks.Create(context.Background(), newTurn(run)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		q := store.NewRunQueue(d)
		var mu sync.Mutex
		claimed := map[agentsvc.TaskID]int{}
		for i := range claimers {
			wg.Go(func() {
				for {
					n := i%3 + 1
					got, err := claimRuns(context.Background(), q, fmt.Sprint("w", i), n)
					if err != nil {
						t.Error(err)
						return
					}
					if len(got) > n {
						t.Errorf("asked for %d, got %d", n, len(got))
					}
					mu.Lock()
					for _, run := range got {
						claimed[run.Task]++
					}
					left := len(claimed) < runs
					mu.Unlock()
					if len(got) == 0 && !left {
						return
					}
				}
			})
		}
		wg.Wait()
		for id, n := range claimed {
			if n != 1 {
				t.Errorf("task %s was claimed %d times", id, n)
			}
		}
	})
}

// claimRuns leases up to n runs to a worker, those of the first apps first.
func claimRuns(ctx context.Context, q *store.RunQueue, worker string, n int) (runs []store.Run, err error) {
	shares, err := q.ListShares(ctx, "", n, true)
	for _, s := range shares {
		if err != nil || len(runs) == n {
			break
		}
		s.ClaimCount = min(s.AvailableRuns(), int64(n-len(runs)))
		var got []store.Run
		got, err = q.ClaimRuns(ctx, worker, []store.Share{s})
		runs = append(runs, got...)
	}
	return runs, err
}

// nextPendingDelay returns the time until the next pending run may be claimed, and whether there is one.
func nextPendingDelay(t *testing.T, d *db.DB) (in time.Duration, ok bool, err error) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error {
		var us *int64
		err := r.Scan(&us)
		if us != nil {
			in, ok = max(0, time.Duration(*us)*time.Microsecond), true
		}
		return err
	}, `SELECT MIN(available_at) - stoa_now() FROM run WHERE state = 'pending'`)
	return in, ok, d.Platform().Do(t.Context(), &b)
}

// ageHeartbeat sets a worker's last heartbeat back.
func ageHeartbeat(t *testing.T, d *db.DB, worker string, by time.Duration) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, "UPDATE worker SET heartbeat_at = heartbeat_at - CAST($2 AS BIGINT) WHERE id = $1", worker, by.Microseconds())
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// TestRescue: only runs of dead workers are rescued.
func TestRescue(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		q := store.NewRunQueue(d)
		for _, w := range []string{"alive", "late", "dead"} {
			if _, _, err := q.WriteHeartbeat(t.Context(), w, ""); err != nil {
				t.Fatal(err)
			}
		}
		ageHeartbeat(t, d, "late", time.Minute)
		ageHeartbeat(t, d, "dead", 10*time.Minute)
		runs := map[string]store.Run{}
		for _, w := range []string{"alive", "late", "dead", "never beat", ""} {
			runs[w] = createTask(t, s, newRun(w))
		}
		n, workers, err := q.RescueRuns(t.Context(), 5*time.Minute)
		if err != nil || n != 2 {
			t.Errorf("rescued %d (%v), want 2", n, err)
		}
		if diff := cmp.Diff([]string{"dead", "never beat"}, workers); diff != "" {
			t.Errorf("the workers that had them (-want +got):\n%s", diff)
		}
		for w, want := range map[string]store.RunState{"alive": store.Running, "late": store.Running, "dead": store.Pending, "never beat": store.Pending, "": store.Pending} {
			attempts := int64(1)
			if w == "" {
				attempts = 0
			}
			if state, n, _ := loadRunState(t, d, runs[w]); state != want || n != attempts {
				t.Errorf("the run of %q is %s after %d attempts, want %s after %d", w, state, n, want, attempts)
			}
		}
		if _, _, err := q.WriteHeartbeat(t.Context(), "late", ""); err != nil {
			t.Fatal(err)
		}
		if n, _, err := q.RescueRuns(t.Context(), 30*time.Second); err != nil || n != 0 {
			t.Errorf("rescued %d (%v) of workers that beat, want none", n, err)
		}
		time.Sleep(time.Millisecond)
		if n, _, err := q.RescueRuns(t.Context(), 0); err != nil || n != 2 {
			t.Errorf("without other apps: rescued %d (%v), want all 2", n, err)
		}
	})
}

// TestReturnRun: each way in which a lease ends, for its current worker and for an earlier one.
func TestReturnRun(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		q := store.NewRunQueue(d)
		ctx := t.Context()
		for _, c := range []struct {
			name     string
			do       func(run store.Run) error
			state    store.RunState
			attempts int64
			worker   string
			due      bool
		}{
			{"give back", func(r store.Run) error { return q.ReturnRun(ctx, r, store.ReturnOptions{}) }, store.Pending, 1, "", true},
			{"give back later", func(r store.Run) error { return q.ReturnRun(ctx, r, store.ReturnOptions{Delay: time.Hour}) }, store.Pending, 1, "", false},
			{"postpone", func(r store.Run) error {
				return q.ReturnRun(ctx, r, store.ReturnOptions{Delay: time.Hour, Uncounted: true})
			}, store.Pending, 0, "", false},
			{"give back another's", func(r store.Run) error { r.Worker = "w2"; return q.ReturnRun(ctx, r, store.ReturnOptions{}) }, store.Running, 1, "w1", false},
			{"give back an older attempt", func(r store.Run) error { r.Attempts = 0; return q.ReturnRun(ctx, r, store.ReturnOptions{}) }, store.Running, 1, "w1", false},
			{"drop of an ended task", func(r store.Run) error { setTask(t, d, r, "state = 'cancelled'"); return q.DropRun(ctx, r) }, store.Completed, 1, "", false},
			{"drop of an earlier turn", func(r store.Run) error { setTask(t, d, r, "turn = 2"); return q.DropRun(ctx, r) }, store.Completed, 1, "", false},
			{"drop of a task at work", func(r store.Run) error { return q.DropRun(ctx, r) }, store.Running, 1, "w1", false},
			{"drop of a task that waits for a human", func(r store.Run) error {
				setTask(t, d, r, "state = 'input_required'")
				return q.DropRun(ctx, r)
			}, store.Running, 1, "w1", false},
			{"drop another's", func(r store.Run) error {
				setTask(t, d, r, "state = 'cancelled'")
				r.Worker = "w2"
				return q.DropRun(ctx, r)
			}, store.Running, 1, "w1", false},
			{"drop an older attempt", func(r store.Run) error {
				setTask(t, d, r, "state = 'cancelled'")
				r.Attempts = 0
				return q.DropRun(ctx, r)
			}, store.Running, 1, "w1", false},
			{"release", func(store.Run) error { _, err := q.ReleaseRuns(ctx, "w1"); return err }, store.Pending, 0, "", true},
			{"release another's", func(store.Run) error { _, err := q.ReleaseRuns(ctx, "w2"); return err }, store.Running, 1, "w1", false},
		} {
			run := createTask(t, s, newRun("w1"))
			if err := c.do(run); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if state, attempts, worker := loadRunState(t, d, run); state != c.state || attempts != c.attempts || worker != c.worker {
				t.Errorf("%s: %s at %q after %d attempts, want %s at %q after %d", c.name, state, worker, attempts, c.state, c.worker, c.attempts)
			}
			got, err := claimRuns(ctx, q, "w3", 10)
			if due := len(got) == 1 && got[0].Task == run.Task; err != nil || due != c.due {
				t.Errorf("%s: claimable %v (%v), want %v", c.name, due, err, c.due)
			}
			setTask(t, d, run, "state = 'cancelled'")
			if err := q.DropRun(ctx, store.Run{Tenant: "acme", Task: run.Task, Turn: 1, Attempts: 1, Lease: store.Lease{Worker: "w1"}}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// setTask changes the row of a run's task and nothing else.
func setTask(t *testing.T, d *db.DB, run store.Run, set string) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, "UPDATE task SET "+set+" WHERE tenant = $1 AND id = $2", string(run.Tenant), string(run.Task))
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// databaseName returns the name of d's database.
func databaseName(d *db.DB) string {
	u, err := url.Parse(d.URL())
	if err != nil {
		panic(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

// TestClaimPlan: whichever plan PostgreSQL chooses for a claim, it reads the queue once and locks no more runs than
// it claims.
func TestClaimPlan(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	s := store.New(d, "acme")
	for range 30 {
		createTask(t, s, newRun(""))
	}
	err := d.ChangeSchema(t.Context(), "", func(conn *sql.DB) error {
		for _, q := range []string{"enable_hashagg", "enable_hashjoin", "enable_mergejoin", "enable_sort", "enable_material", "enable_bitmapscan"} {
			if _, err := conn.ExecContext(t.Context(), fmt.Sprintf("ALTER ROLE postgres IN DATABASE %s SET %s = off", databaseName(d), q)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	again, err := db.Open(t.Context(), d.URL(), db.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	for range 5 {
		if runs, err := claimRuns(t.Context(), store.NewRunQueue(again), "w", 3); err != nil || len(runs) != 3 {
			t.Errorf("asked for 3 of 30, got %d (%v)", len(runs), err)
		}
	}
}

// TestAdvance: postponed runs are claimable at once when their tenant is active again, also after a failed attempt;
// one that waits for a retry keeps its delay.
func TestAdvance(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		q, ctx := store.NewRunQueue(d), t.Context()
		acquire := func() store.Run {
			t.Helper()
			got, err := claimRuns(ctx, q, "w1", 10)
			if err != nil || len(got) != 1 {
				t.Fatalf("claimed %v (%v)", got, err)
			}
			return got[0]
		}
		postpone, again := store.ReturnOptions{Delay: time.Hour, Uncounted: true}, store.ReturnOptions{Delay: time.Hour, Error: "the model is unavailable"}
		for _, c := range []struct {
			name  string
			backs []store.ReturnOptions
			due   bool
		}{
			{"postponed", []store.ReturnOptions{postpone}, true},
			{"postponed after an error", []store.ReturnOptions{{Error: "the model is unavailable"}, postpone}, true},
			{"an error", []store.ReturnOptions{again}, false},
			{"an error after it was postponed", []store.ReturnOptions{{Uncounted: true}, again}, false},
		} {
			run := createTask(t, s, newRun(""))
			for _, back := range c.backs {
				if err := q.ReturnRun(ctx, acquire(), back); err != nil {
					t.Fatal(err)
				}
			}
			if err := q.ExpediteRuns(ctx, "acme"); err != nil {
				t.Fatal(err)
			}
			got, err := claimRuns(ctx, q, "w2", 10)
			if due := len(got) == 1 && got[0].Task == run.Task; err != nil || due != c.due {
				t.Errorf("%s: goes on at the resume %v (%v), want %v", c.name, due, err, c.due)
			}
			if seen := loadTask(t, s, run.Task); seen.Status.State != agentsvc.Submitted {
				t.Fatal(seen.Status)
			} else if err := s.Tasks.Cancel(ctx, seen, sequenceEvents(run.Task, seen.Seq+1, statusEvent(agentsvc.Cancelled, nil))[0]); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestAdvanceRecorded: as TestAdvance, where the attempt's own record returned the run: it waits for its retry,
// unless it was postponed in that one.
func TestAdvanceRecorded(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		q, ctx := store.NewRunQueue(d), t.Context()
		run := createTask(t, s, newRun("w1"))
		for _, delay := range []time.Duration{0, time.Hour} {
			if err := s.Runs.WriteRecord(ctx, &run, store.Record{EndState: store.Pending, RetryDelay: delay, Error: "the model is away"}); err != nil {
				t.Fatal(err)
			}
			if err := q.ExpediteRuns(ctx, "acme"); err != nil {
				t.Fatal(err)
			}
			got, err := claimRuns(ctx, q, "w2", 10)
			if due := len(got) == 1; err != nil || due != (delay == 0) {
				t.Fatalf("back for %v: claimable %v (%v)", delay, due, err)
			}
			if delay > 0 {
				break
			}
			if err := q.ReturnRun(ctx, got[0], store.ReturnOptions{Delay: time.Hour, Uncounted: true}); err != nil {
				t.Fatal(err)
			}
			if err := q.ExpediteRuns(ctx, "acme"); err != nil {
				t.Fatal(err)
			}
			if got, err = claimRuns(ctx, q, "w2", 10); err != nil || len(got) != 1 {
				t.Fatalf("postponed after an error, then resumed: claimed %v (%v)", got, err)
			}
			run = got[0]
			if _, err := s.Runs.BeginRun(ctx, &run); err != nil {
				t.Fatal(err)
			}
		}
	})
}
