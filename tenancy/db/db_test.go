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

// insertTask inserts a bare task row, the simplest row of a tenant.
func insertTask(b *db.Batch, tenant db.ID, id string) {
	b.Exec(nil, `INSERT INTO task (tenant, id, agent, context_id, owner_iss, owner_sub, state, epoch, seq, status_seq, turn, created_at, updated_at)
		VALUES ($1, $2, 'a', 'c', 'i', 's', 'working', 1, 1, 1, 1, stoa_now(), stoa_now())`, string(tenant), id)
}

func countTasks(t *testing.T, h *db.Handle) (n int) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, `SELECT COUNT(*) FROM task`)
	if err := h.Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestBatch(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		alice := d.Tenant("alice")
		var b db.Batch
		var n int64
		var seq int64
		insertTask(&b, "alice", "1")
		b.Exec(&n, `UPDATE task SET seq = seq + $2 WHERE tenant = $1 AND id = $3`, "alice", 4, "1")
		b.Query(func(r db.Row) error { return r.Scan(&seq) }, `SELECT seq FROM task WHERE tenant = $1 AND id = $2`, "alice", "1")
		if err := alice.Write(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if n != 1 || seq != 5 {
			t.Errorf("updated %d rows to seq %d, want 1 row to 5", n, seq)
		}
		var bad db.Batch
		insertTask(&bad, "alice", "2")
		insertTask(&bad, "alice", "1")
		if err := alice.Write(t.Context(), &bad); !db.IsDuplicate(err) {
			t.Errorf("second insert of a key: %v, want a duplicate", err)
		}
		if got := countTasks(t, alice); got != 1 {
			t.Errorf("after a batch that failed: %d rows, want 1: a batch is whole or absent", got)
		}
	})
}

// TestGroup sends many writes at once, some of which fail: each gets its own outcome and results.
func TestGroup(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		const writers = 200
		var wg sync.WaitGroup
		errs := make([]error, writers)
		for i := range writers {
			wg.Go(func() {
				tenant := db.ID(fmt.Sprintf("t%d", i%7))
				var b db.Batch
				insertTask(&b, tenant, fmt.Sprint(i))
				if i%10 == 0 {
					insertTask(&b, tenant, fmt.Sprint(i))
				}
				errs[i] = d.Tenant(tenant).Write(context.Background(), &b)
			})
		}
		wg.Wait()
		for i, err := range errs {
			if failed := err != nil; failed != (i%10 == 0) || failed && !db.IsDuplicate(err) {
				t.Errorf("write %d: %v", i, err)
			}
		}
		if got, want := countTasks(t, d.Platform()), writers-writers/10; got != want {
			t.Errorf("%d rows, want %d", got, want)
		}
	})
}

// TestGroupIsolation groups the writes of many tenants: each reaches only its tenant's rows, the platform's reach all.
func TestGroupIsolation(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	const tenants, writers = 5, 100
	all := int64(0)
	for i := range tenants {
		var b db.Batch
		for row := range i + 1 {
			insertTask(&b, db.ID(fmt.Sprint("t", i)), fmt.Sprint(row))
			all++
		}
		if err := d.Platform().Write(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			of := i % (tenants + 1)
			h, want := d.Tenant(db.ID(fmt.Sprint("t", of))), int64(of+1)
			if of == tenants {
				h, want = d.Platform(), all
			}
			var b db.Batch
			var n int64
			b.Exec(&n, "UPDATE task SET agent = 'x'")
			if err := h.Write(t.Context(), &b); err != nil || n != want {
				t.Errorf("writer %d reaches %d rows (%v), want %d", i, n, err, want)
			}
		})
	}
	wg.Wait()
}

// TestIsolation checks that on PostgreSQL a tenant's handle sees no other tenant's rows, even with SQL that does not
// name the tenant.
func TestIsolation(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	for _, tenant := range []db.ID{"alice", "bob"} {
		var b db.Batch
		insertTask(&b, tenant, "1")
		if err := d.Tenant(tenant).Write(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	if got := countTasks(t, d.Tenant("bob")); got != 1 {
		t.Errorf("bob sees %d rows, want his own", got)
	}
	if got := countTasks(t, d.Tenant("")); got != 0 {
		t.Errorf("no tenant sees %d rows, want none", got)
	}
	if got := countTasks(t, d.Platform()); got != 2 {
		t.Errorf("the platform sees %d rows, want 2", got)
	}
	var b db.Batch
	var n int64
	b.Exec(&n, `UPDATE task SET agent = 'stolen'`)
	if err := d.Tenant("bob").Write(t.Context(), &b); err != nil || n != 1 {
		t.Errorf("bob changed %d rows (%v), want his own", n, err)
	}
	var forged db.Batch
	insertTask(&forged, "alice", "2")
	if err := d.Tenant("bob").Write(t.Context(), &forged); err == nil {
		t.Error("bob wrote a row of alice")
	}
}

// TestNoSetting connects under a tenant's role but without a tenant: there are no rows, on a new connection (setting
// absent) and on a used one (setting empty).
func TestNoSetting(t *testing.T) {
	t.Parallel()
	url := dbtest.NewPostgresURL(t)
	d, err := db.Open(t.Context(), url, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	var b db.Batch
	insertTask(&b, "alice", "1")
	if err := d.Tenant("alice").Write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, q := range []string{"SET ROLE stoa_tenant", "SELECT set_config('stoa.tenant', '', false)"} {
		if _, err := conn.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		for _, table := range listTenantTables(t, conn) {
			var n int
			if err := conn.QueryRow(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil || n != 0 {
				t.Errorf("%s: %d rows (%v), want none", table, n, err)
			}
		}
	}
}

// TestForced checks in the catalogue that every table with a tenant has forced row-level security and its two policies.
func TestForced(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), dbtest.NewPostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, table := range listTenantTables(t, conn) {
		var forced bool
		var policies int
		err := conn.QueryRow(t.Context(), `SELECT c.relrowsecurity AND c.relforcerowsecurity,
			(SELECT COUNT(*) FROM pg_policy p WHERE p.polrelid = c.oid) FROM pg_class c WHERE c.oid = CAST($1 AS REGCLASS)`, table).Scan(&forced, &policies)
		if err != nil || !forced || policies != 2 {
			t.Errorf("%s: forced %v, %d policies (%v), want true and 2", table, forced, policies, err)
		}
	}
}

func listTenantTables(t *testing.T, conn *pgx.Conn) (names []string) {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relkind IN ('r', 'p') AND a.attname = 'tenant' AND c.relnamespace = CAST('public' AS REGNAMESPACE)`)
	if err != nil {
		t.Fatal(err)
	}
	names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) < 4 {
		t.Fatalf("tables %v: %v", names, err)
	}
	return names
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	existing, err := db.Open(t.Context(), "sqlite://"+filepath.Join(dir, "held.db"), db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = existing.Close() }()
	for _, c := range []struct{ url, want string }{
		{"mysql://x", "sqlite:// or postgres://"},
		{"stoa.db", "sqlite:// or postgres://"},
		{"sqlite://" + filepath.Join(dir, "held.db"), "in use by another process"},
		{"sqlite://" + filepath.Join(dir, "no", "such.db"), "no such file"},
		{"postgres://127.0.0.1:1/x?connect_timeout=1", "connect to PostgreSQL at 127.0.0.1:1"},
	} {
		if _, err := db.Open(t.Context(), c.url, db.Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("open %s: %v, want %q", c.url, err, c.want)
		}
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), "sqlite://:memory:", db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	migrateDB(t, d)
	var b db.Batch
	insertTask(&b, "alice", "1")
	if err := d.Tenant("alice").Write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if got := countTasks(t, d.Tenant("alice")); got != 1 {
		t.Errorf("%d rows, want 1", got)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Tenant("alice").Write(t.Context(), &b); !errors.Is(err, db.ErrClosed) {
		t.Errorf("write after close: %v, want ErrClosed", err)
	}
}

// TestReadersDoNotWait reads several statements at once, not yet prepared on any connection, from more goroutines than
// there are connections.
func TestReadersDoNotWait(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				var b db.Batch
				for j := range 3 {
					var n int
					b.Query(func(r db.Row) error { return r.Scan(&n) }, fmt.Sprintf("SELECT COUNT(*) + %d FROM task", 3*i+j))
				}
				if err := d.Tenant("alice").Do(ctx, &b); err != nil {
					t.Errorf("reader %d: %v", i, err)
				}
			})
		}
		wg.Wait()
	})
}

// TestCloseLeavesOneFile copies the file of a closed database: it contains everything, and other users cannot read it.
func TestCloseLeavesOneFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stoa.db")
	d, err := db.Open(t.Context(), "sqlite://"+path, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	migrateDB(t, d)
	var b db.Batch
	insertTask(&b, "alice", "1")
	if err := d.Tenant("alice").Write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if got := countTasks(t, d.Platform()); got != 1 {
		t.Fatalf("%d rows, want 1", got)
	}
	for _, name := range []string{path, path + "-wal"} {
		if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v (%v), want 0600", name, st.Mode(), err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); err == nil {
		t.Error("the journal is still there after close")
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(copied, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := db.Open(t.Context(), "sqlite://"+copied, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if got := countTasks(t, again.Platform()); got != 1 {
		t.Errorf("the copy has %d rows, want 1", got)
	}
}
