package db_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestGroupOddities puts batches that fail in every way into one group with others that do not: each gets its own
// outcome.
func TestGroupOddities(t *testing.T) {
	t.Parallel()
	errRead := errors.New("the reader has had enough")
	odd := []struct {
		name string
		sql  string
		arg  any
		only db.Engine
		read error
		want string
	}{
		{name: "statement", sql: "INSERT INTO nowhere VALUES ($1)", arg: "x", want: "nowhere"},
		{name: "argument", sql: "UPDATE task SET agent = $1", arg: make(chan int), want: "chan int"},
		{name: "text", sql: "UPDATE task SET agent = $1", arg: "\xff", only: db.Postgres, want: "22021"},
		{name: "reader", sql: "SELECT $1", arg: "x", read: errRead, want: errRead.Error()},
	}
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		const good = 100
		var wg sync.WaitGroup
		for i := range good {
			wg.Go(func() {
				var b db.Batch
				insertTask(&b, "alice", fmt.Sprint(i))
				if err := d.Tenant("alice").Write(context.Background(), &b); err != nil {
					t.Errorf("good write %d: %v", i, err)
				}
			})
		}
		for _, o := range odd {
			if o.only != "" && o.only != d.Engine() {
				continue
			}
			wg.Go(func() {
				var b db.Batch
				insertTask(&b, "bob", o.name)
				if o.read != nil {
					b.Query(func(db.Row) error { return o.read }, o.sql, o.arg)
				} else {
					b.Exec(nil, o.sql, o.arg)
				}
				if err := d.Tenant("bob").Write(context.Background(), &b); err == nil || !strings.Contains(err.Error(), o.want) {
					t.Errorf("%s: %v, want %q", o.name, err, o.want)
				}
			})
		}
		wg.Wait()
		if got := countTasks(t, d.Platform()); got != good+1 {
			t.Errorf("%d rows, want %d: the good ones, and that of the reader, whose error undoes nothing", got, good+1)
		}
	})
}

// TestGroupSizes checks when a second group is committed in parallel: if it is as large as the first, or the first is
// slow.
func TestGroupSizes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &db.BlockedEngine{Proceed: make(chan struct{})}
		write, end := h.NewWriter(db.Postgres)
		var all sync.WaitGroup
		writes := func(n int, want ...int) {
			t.Helper()
			for range n {
				all.Go(func() { _ = write(&db.Batch{}) })
			}
			synctest.Wait()
			if got := h.GroupSizes(); !slices.Equal(got, want) {
				t.Errorf("groups of %v, want %v", got, want)
			}
		}
		done := func(want ...int) {
			t.Helper()
			h.Proceed <- struct{}{}
			writes(0, want...)
		}
		writes(1, 1)
		writes(1, 1, 1)
		writes(6, 1, 1)
		done(1, 1, 6)
		done(1, 1, 6)
		writes(5, 1, 1, 6)
		writes(1, 1, 1, 6, 6)
		writes(3, 1, 1, 6, 6)
		done(1, 1, 6, 6) // the three wait until six are committed
		done(1, 1, 6, 6, 3)
		writes(1, 1, 1, 6, 6, 3)
		time.Sleep(time.Second)
		writes(0, 1, 1, 6, 6, 3, 1)
		close(h.Proceed)
		all.Wait()
		end()
	})
}

// TestLargeBatches checks that each large batch is committed alone, and that small ones wait for one of them at most.
func TestLargeBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &db.BlockedEngine{Proceed: make(chan struct{})}
		write, end := h.NewWriter(db.SQLite)
		var all sync.WaitGroup
		writes := func(n, bytes int) {
			for range n {
				all.Go(func() {
					var b db.Batch
					b.Exec(nil, "UPDATE task SET error = $1", strings.Repeat("x", bytes))
					_ = write(&b)
				})
			}
			synctest.Wait()
		}
		writes(1, 1)
		writes(2, 1<<20)
		writes(3, 1)
		h.Proceed <- struct{}{} // the single batch
		writes(2, 1)
		writes(2, 1<<20)
		for range 3 {
			h.Proceed <- struct{}{}
			writes(0, 0)
		}
		writes(4, 1)
		close(h.Proceed)
		all.Wait()
		end()
		if got, want := h.GroupSizes(), []int{1, 1, 5, 1, 1, 4, 1}; !slices.Equal(got, want) {
			t.Errorf("groups of %v, want %v", got, want)
		}
	})
}

// TestLockedRow checks that only the batch which writes to a locked row waits for it.
func TestLockedRow(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	alice := d.Tenant("alice")
	var b db.Batch
	for i := range 3 {
		insertTask(&b, "alice", fmt.Sprint("locked", i))
	}
	if err := alice.Write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	unlock := lockRows(t, d)
	var wg sync.WaitGroup
	stuck := make(chan error, 3)
	for i := range 3 {
		wg.Go(func() {
			var b db.Batch
			b.Exec(nil, `UPDATE task SET agent = 'late' WHERE tenant = $1 AND id = $2`, "alice", fmt.Sprint("locked", i))
			stuck <- alice.Write(context.Background(), &b)
		})
	}
	began := time.Now()
	var others sync.WaitGroup
	for i := range 50 {
		others.Go(func() {
			for j := range 10 {
				var b db.Batch
				insertTask(&b, "alice", fmt.Sprint(i, "/", j))
				if err := alice.Write(context.Background(), &b); err != nil {
					t.Errorf("write %d/%d: %v", i, j, err)
				}
			}
		})
	}
	others.Wait()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the others waited %v for rows that are none of theirs", took)
	}
	select {
	case err := <-stuck:
		t.Errorf("a write to a locked row ended: %v", err)
	default:
	}
	unlock()
	wg.Wait()
	close(stuck)
	for err := range stuck {
		if err != nil {
			t.Errorf("a write to a row that was locked for a while: %v", err)
		}
	}
}

// lockRows locks all existing rows until unlock is called.
func lockRows(t *testing.T, d *db.DB) (unlock func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.URL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "BEGIN; SELECT 1 FROM task FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	return func() { _ = conn.Close(context.Background()) }
}

// TestFairQueue queues thousands of writes of one tenant: they delay another tenant's single write by a few groups at
// most.
func TestFairQueue(t *testing.T) {
	t.Parallel()
	const flood, groups = 6000, 8
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		var wg sync.WaitGroup
		for i := range flood {
			wg.Go(func() {
				var b db.Batch
				insertTask(&b, "flood", fmt.Sprint(i))
				if err := d.Tenant("flood").Write(context.Background(), &b); err != nil {
					t.Errorf("write %d: %v", i, err)
				}
			})
		}
		before := countTasks(t, d.Platform())
		var b db.Batch
		var ahead int
		b.Query(func(r db.Row) error { return r.Scan(&ahead) }, "SELECT COUNT(*) FROM task")
		insertTask(&b, "quiet", "1")
		if err := d.Platform().Write(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if ahead == flood {
			t.Error("nothing proved: the flood was over before the quiet write came")
		}
		if ahead-before > groups*128 {
			t.Errorf("%d writes of the flood came first, want at most %d groups of 128", ahead-before, groups)
		}
		wg.Wait()
	})
}

// TestGiveUp cancels waiting callers: the outcome is certain while the batch is queued, and unknown once it was
// started.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		alice := d.Tenant("alice")
		release := blockWrites(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		write := func(id string, queued, writers int) <-chan error {
			done := make(chan error, 1)
			go func() {
				var b db.Batch
				insertTask(&b, "alice", id)
				done <- alice.Write(ctx, &b)
			}()
			waitForWrites(t, d, queued, writers)
			return done
		}
		var sent []<-chan error
		want := "later"
		for i := range map[db.Engine]int{db.Postgres: 2, db.SQLite: 1}[d.Engine()] { // one for each writer
			id := fmt.Sprint("sent", i)
			sent, want = append(sent, write(id, 0, i+1)), want+" "+id
		}
		queued := write("queued", 1, len(sent))
		cancel()
		for _, done := range sent {
			if err := <-done; !errors.Is(err, db.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
				t.Errorf("given up while on its way: %v, want an unknown outcome", err)
			}
		}
		if err := <-queued; errors.Is(err, db.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
			t.Errorf("given up in the queue: %v, want a certain end", err)
		}
		release()
		var b db.Batch
		var ids []string
		insertTask(&b, "alice", "later")
		if err := alice.Write(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		waitForWrites(t, d, 0, 0) // the started batches have ended too
		b = db.Batch{}
		b.Query(func(r db.Row) error {
			ids = append(ids, "")
			return r.Scan(&ids[len(ids)-1])
		}, "SELECT id FROM task ORDER BY id")
		if err := alice.Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("rows %q, want %q", got, want)
		}
	})
}

// TestGiveUpWritesNoResults cancels a caller whose batch was started: its variables are not written afterwards.
func TestGiveUpWritesNoResults(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		alice := d.Tenant("alice")
		release := blockWrites(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		var on sync.WaitGroup
		defer on.Wait()
		on.Go(func() {
			defer cancel()
			waitForWrites(t, d, 0, 1)
		})
		var b db.Batch
		var touched, read int64
		insertTask(&b, "alice", "1")
		b.Exec(&touched, `UPDATE task SET agent = 'x' WHERE tenant = 'alice'`)
		b.Query(func(r db.Row) error { return r.Scan(&read) }, `SELECT COUNT(*) FROM task`)
		if err := alice.Write(ctx, &b); !errors.Is(err, db.ErrUnknownOutcome) {
			t.Fatalf("given up while on its way: %v", err)
		}
		touched, read = -1, -1
		release()
		for began := time.Now(); countTasks(t, d.Platform()) == 0; time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > 30*time.Second {
				t.Fatal("nothing proved: the batch took no effect")
			}
		}
		if touched != -1 || read != -1 {
			t.Errorf("reported %d rows touched and %d read after it gave up", touched, read)
		}
	})
}

// waitForWrites waits until the given numbers of writes are queued and of groups are being committed.
func waitForWrites(t *testing.T, d *db.DB, queued, writers int) {
	t.Helper()
	dbtest.WaitUntil(t, fmt.Sprintf("%d writes queued and %d groups on their way", queued, writers), func() bool {
		n, at := d.WriteCounts()
		return n == queued && at == writers
	})
}

// blockWrites keeps every commit from completing until release is called.
func blockWrites(t *testing.T, d *db.DB) (release func()) {
	t.Helper()
	if d.Engine() == db.Postgres {
		conn, err := pgx.Connect(t.Context(), d.URL())
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []string{
			"SELECT pg_advisory_lock(7)",
			`CREATE OR REPLACE FUNCTION hold() RETURNS TRIGGER LANGUAGE plpgsql AS
				$$ BEGIN WHILE NOT pg_try_advisory_xact_lock_shared(7) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN NULL; END $$`,
			"CREATE OR REPLACE TRIGGER hold BEFORE INSERT ON task EXECUTE FUNCTION hold()",
		} {
			if _, err := conn.Exec(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		return func() { _ = conn.Close(context.Background()) }
	}
	in, out := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
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

// TestClose checks that writes queued before Close are committed and later ones are refused, each with the matching
// error.
func TestClose(t *testing.T) {
	t.Parallel()
	for _, engine := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			var url string
			if engine == db.Postgres {
				url = dbtest.NewPostgresURL(t)
			} else {
				url = "sqlite://" + filepath.Join(t.TempDir(), "stoa.db")
			}
			d := openDB(t, url)
			if engine == db.SQLite {
				migrateDB(t, d)
			}
			var wg sync.WaitGroup
			errs := make([]error, 2000)
			some := make(chan struct{}, len(errs))
			for i := range errs {
				wg.Go(func() {
					var b db.Batch
					insertTask(&b, "alice", fmt.Sprint(i))
					errs[i] = d.Tenant("alice").Write(context.Background(), &b)
					some <- struct{}{}
				})
			}
			<-some
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			written := 0
			for i, err := range errs {
				switch {
				case err == nil:
					written++
				case !errors.Is(err, db.ErrClosed):
					t.Errorf("write %d: %v, want none or ErrClosed", i, err)
				}
			}
			again := openDB(t, url)
			defer func() { _ = again.Close() }()
			if got := countTasks(t, again.Platform()); got != written {
				t.Errorf("%d rows, %d writes were reported as stored", got, written)
			}
		})
	}
}

func openDB(t *testing.T, url string) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), url, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}
