package db_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestDeadlock locks two rows in opposite order from two processes: the one that PostgreSQL aborts tries again, and
// both succeed.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	url := dbtest.NewPostgresURL(t) + "&options=-c%20deadlock_timeout%3D20ms"
	one, other := openDB(t, url), openDB(t, url)
	defer func() { _, _ = one.Close(), other.Close() }()
	var b db.Batch
	insertTask(&b, "alice", "1")
	insertTask(&b, "alice", "2")
	if err := one.Tenant("alice").Write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i, d := range []*db.DB{one, other} {
		wg.Go(func() {
			var b db.Batch
			for j := range 2 {
				b.Exec(nil, `UPDATE task SET seq = seq + 1 WHERE tenant = $1 AND id = $2`, "alice", fmt.Sprint((i+j)%2+1))
				b.Query(func(db.Row) error { return nil }, "SELECT pg_sleep(0.1)")
			}
			if err := d.Tenant("alice").Do(context.Background(), &b); err != nil {
				t.Errorf("process %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	var sum int
	b = db.Batch{}
	b.Query(func(r db.Row) error { return r.Scan(&sum) }, "SELECT CAST(SUM(seq) AS BIGINT) FROM task")
	if err := one.Tenant("alice").Do(t.Context(), &b); err != nil || sum != 6 {
		t.Errorf("sum %d (%v), want 6: each process changed both rows once", sum, err)
	}
}

// TestKilled ends the sessions of writers at work: every reported outcome is true.
func TestKilled(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	killer, err := pgx.Connect(t.Context(), d.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = killer.Close(context.Background()) }()
	const writers, each = 16, 60
	reported := make([]error, writers*each)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for j := range each {
				var b db.Batch
				n := i*each + j
				insertTask(&b, "alice", fmt.Sprint(n))
				if n%3 == 0 {
					reported[n] = d.Tenant("alice").Do(context.Background(), &b)
				} else {
					reported[n] = d.Tenant("alice").Write(context.Background(), &b)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	kills := 0
	for over := false; !over; {
		var n int
		err := killer.QueryRow(t.Context(), `SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		kills += n
		select {
		case <-done:
			over = true
		case <-time.After(30 * time.Millisecond):
		}
	}
	if kills == 0 {
		t.Fatal("nothing proved: no session was ended")
	}
	there := map[string]bool{}
	rows, err := killer.Query(t.Context(), "SELECT id FROM task")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		there[id] = true
	}
	lost, unknown := 0, 0
	for n, err := range reported {
		switch row := there[fmt.Sprint(n)]; {
		case errors.Is(err, db.ErrUnknownOutcome):
			unknown++
		case err == nil && !row:
			t.Errorf("write %d was reported as stored, and is not", n)
		case err != nil && row:
			t.Errorf("write %d was reported as %v, and is stored", n, err)
		case err != nil:
			lost++
		}
	}
	if lost > len(reported)/4 {
		t.Errorf("%d of %d writes failed where trying again would have helped", lost, len(reported))
	}
	t.Logf("%d sessions ended; %d writes failed, %d of unknown outcome, of %d", kills, lost, unknown, len(reported))
}

// TestResponseTimeout checks that a missing answer is waited for as long as the caller's deadline says, and never
// forever.
func TestResponseTimeout(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), dbtest.NewPostgresURL(t), db.Options{ResponseTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	sleep := func(seconds string, also ...string) *db.Batch {
		b := &db.Batch{}
		for _, id := range also {
			insertTask(b, "alice", id)
		}
		b.Query(func(db.Row) error { return nil }, "SELECT pg_sleep("+seconds+")")
		return b
	}
	long, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	alice := d.Tenant("alice")
	inTx := func(seconds string) func(context.Context) error {
		return func(ctx context.Context) error {
			return alice.RunTx(ctx, func(tx *db.Tx) error {
				return tx.Query(ctx, func(db.Row) error { return nil }, "SELECT pg_sleep("+seconds+")")
			})
		}
	}
	for _, c := range []struct {
		name string
		ctx  context.Context
		do   func(context.Context) error
		want error
	}{
		{"read", t.Context(), func(ctx context.Context) error { return alice.Do(ctx, sleep("60")) }, context.DeadlineExceeded},
		{"write", t.Context(), func(ctx context.Context) error { return alice.Do(ctx, sleep("60", "1")) }, db.ErrUnknownOutcome},
		{"transaction", t.Context(), inTx("60"), context.DeadlineExceeded},
		{"read with time", long, func(ctx context.Context) error { return alice.Do(ctx, sleep("0.6")) }, nil},
		{"transaction with time", long, inTx("0.6"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			if err := c.do(c.ctx); !errors.Is(err, c.want) || time.Since(began) > 30*time.Second {
				t.Errorf("after %v: %v, want %v", time.Since(began), err, c.want)
			}
		})
	}
}

// TestReads checks that tenants' reads, however many and long, leave connections to the platform and to writers.
func TestReads(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	conn, err := pgx.Connect(t.Context(), d.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock(1)"); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for range 50 {
		readers.Go(func() {
			var b db.Batch
			b.Query(func(db.Row) error { return nil }, "SELECT 1 FROM (SELECT pg_advisory_xact_lock_shared(1)) AS waits")
			if err := d.Tenant("alice").Do(context.Background(), &b); err != nil {
				t.Errorf("a reader: %v", err)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	most := int(d.Stats().Max)
	for n := 0; n < most-most/4; { // until the readers use all connections that they may
		if err := conn.QueryRow(ctx, `SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	if got := countTasks(t, d.Platform()); got != 0 {
		t.Errorf("%d rows", got)
	}
	var b db.Batch
	insertTask(&b, "bob", "1")
	if err := d.Tenant("bob").Write(ctx, &b); err != nil {
		t.Errorf("a write with many readers: %v", err)
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_unlock(1)"); err != nil {
		t.Error(err)
	}
	readers.Wait()
}

// TestTx checks that a transaction takes effect completely or not at all, and that one that panics leaves the database
// usable.
func TestTx(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		alice := d.Tenant("alice")
		put := func(tx *db.Tx, id string) error {
			_, err := tx.Exec(t.Context(), `INSERT INTO task (tenant, id, agent, context_id, owner_iss, owner_sub, state, epoch, seq, status_seq, turn, created_at, updated_at)
				VALUES ($1, $2, 'a', 'c', 'i', 's', 'working', 1, 1, 1, 1, stoa_now(), stoa_now())`, "alice", id)
			return err
		}
		no := errors.New("no")
		if err := alice.RunTx(t.Context(), func(tx *db.Tx) error { return errors.Join(put(tx, "1"), no) }); !errors.Is(err, no) {
			t.Errorf("the function's error came back as %v", err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = alice.RunTx(t.Context(), func(tx *db.Tx) error { _ = put(tx, "2"); panic("bug") })
		}()
		stopped, cancel := context.WithCancel(t.Context())
		err := alice.RunTx(stopped, func(*db.Tx) error { cancel(); return stopped.Err() })
		if !errors.Is(err, context.Canceled) || errors.Is(err, db.ErrUnknownOutcome) {
			t.Errorf("a function that stopped: %v, want its error and nothing unknown", err)
		}
		if got := countTasks(t, alice); got != 0 {
			t.Fatalf("%d rows of transactions that failed", got)
		}
		var seen int64
		err = alice.RunTx(t.Context(), func(tx *db.Tx) error {
			if err := put(tx, "3"); err != nil {
				return err
			}
			return tx.Query(t.Context(), func(r db.Row) error { return r.Scan(&seen) }, `SELECT COUNT(*) FROM task WHERE tenant = $1`, "alice")
		})
		if got := countTasks(t, alice); err != nil || seen != 1 || got != 1 {
			t.Errorf("saw %d inside and %d outside (%v), want 1 and 1", seen, got, err)
		}
	})
}

// TestUnwritable checks that a SQLite file that cannot be written is reported by Open and not by the first call.
func TestUnwritable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("this is no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly := filepath.Join(dir, "readonly.db")
	d := openDB(t, "sqlite://"+readOnly)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(readOnly, 0o400); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, path, want string }{
		{"below a file", filepath.Join(file, "stoa.db"), "not a directory"},
		{"a folder", dir, dir},
		{"no database", file, "not a database"},
		{"read-only", readOnly, "cannot be written"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.path == readOnly && os.Geteuid() == 0 {
				t.Skip("NOT TESTED: root may write to any file")
			}
			d, err := db.Open(t.Context(), "sqlite://"+c.path, db.Options{})
			if err == nil {
				_ = d.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
				t.Errorf("open: %v, want %q and the path", err, c.want)
			}
		})
	}
}
