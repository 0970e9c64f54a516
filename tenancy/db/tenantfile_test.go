package db_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// plainTable creates the only table that tenants' files may contain here.
const plainTable = "CREATE TABLE x (n TEXT)"

// newTenantFile returns a SQLite file below root as an app would configure it.
func newTenantFile(t *testing.T, root, name string) (db.ExternalDB, db.Dialer) {
	t.Helper()
	guard, err := grant.NewGuard()
	if err != nil {
		t.Fatal(err)
	}
	at, err := guard.ResolvePath([]string{root}, name)
	if err != nil {
		t.Fatal(err)
	}
	return db.ExternalDB{Driver: db.SQLite, Database: at.FullPath(), MaxConns: 3, MaxIdle: 1}, db.Dialer{TenantFile: &db.TenantFileRules{
		OpenFolder: func() (*os.File, error) { return guard.OpenDatabaseFolder(at) },
		AllowObject: func(o db.SchemaObject) error {
			if o.Type == "table" && o.Name == "x" && (o.SQL == plainTable || o.SQL == "CREATE TABLE x (n)") {
				return nil
			}
			return errors.New("a foreign " + o.Type)
		},
	}}
}

// TestExchangedFolder replaces the folder of a tenant's file by a link that leads out, repeatedly: nothing is created
// or changed where the link leads.
func TestExchangedFolder(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, outside := filepath.Join(dir, "acme"), filepath.Join(dir, "outside")
	for _, folder := range []string{filepath.Join(root, "sub"), outside} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var exchanges atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() && exchanges.Load() < 5_000_000 {
			if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(root, "sub"), unix.AT_FDCWD, filepath.Join(root, "link"), unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
			exchanges.Add(1)
		}
	})
	opened := 0
	for i := range 600 {
		g, dialer := newTenantFile(t, root, filepath.Join(root, "sub", fmt.Sprintf("%d.db", i)))
		d, err := db.OpenExternal(t.Context(), g, dialer)
		if err != nil {
			continue
		}
		opened++
		_ = runSQL(t, d, "CREATE TABLE x (n)")
		_ = d.Close()
	}
	stop.Store(true)
	wg.Wait()
	left, err := os.ReadDir(outside)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d files opened during %d exchanges, %d files outside", opened, exchanges.Load(), len(left))
	if len(left) > 0 {
		t.Errorf("%d files were made outside of the folder, %s first", len(left), left[0].Name())
	}
	if opened == 0 {
		t.Error("no file was ever opened")
	}
}

// execInFile executes statements in the file at path as another process would.
func execInFile(t *testing.T, path string, statements ...string) {
	t.Helper()
	d, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	for _, s := range statements {
		if _, err := d.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// newTenantRoot returns a new root folder of a tenant.
func newTenantRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// endlessSQL is an expression whose evaluation does not end.
const endlessSQL = "(SELECT count(*) FROM (WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c))"

// TestPreparedFile checks that schema objects which a tenant put into its file are never executed, whether they are
// present when the file is opened or added later.
func TestPreparedFile(t *testing.T) {
	t.Parallel()
	const table = plainTable
	for _, c := range []struct {
		name     string
		prepared []string
		does     string
	}{
		{"trigger", []string{table, "CREATE TRIGGER boom AFTER INSERT ON x BEGIN SELECT " + endlessSQL + "; END"}, "INSERT INTO x VALUES ('1')"},
		{"trigger on each row", []string{table, "INSERT INTO x VALUES ('1')", "CREATE TRIGGER boom BEFORE UPDATE ON x WHEN " + endlessSQL + " > 0 BEGIN SELECT 1; END"}, "UPDATE x SET n = '2'"},
		{"trigger named as ours", []string{table, "CREATE TRIGGER change AFTER INSERT ON x BEGIN SELECT " + endlessSQL + "; END"}, "INSERT INTO x VALUES ('1')"},
		{"view", []string{"CREATE VIEW x AS SELECT " + endlessSQL + " AS n"}, "SELECT n FROM x"},
		{"view in its place", []string{"CREATE VIEW x AS SELECT 1 AS n"}, "SELECT n FROM x"},
		{"check", []string{"CREATE TABLE x (n TEXT CHECK (length(hex(zeroblob(300000000))) > 0))"}, "INSERT INTO x VALUES ('1')"},
		{"check with a pattern", []string{"CREATE TABLE x (n TEXT CHECK (hex(zeroblob(100000)) NOT LIKE '" + strings.Repeat("%0", 30) + "1'))"}, "INSERT INTO x VALUES ('1')"},
		{"default", []string{"CREATE TABLE x (n TEXT DEFAULT (hex(zeroblob(300000000))), m TEXT)"}, "INSERT INTO x (m) VALUES ('1')"},
		{"generated column", []string{"CREATE TABLE x (n TEXT, m AS (hex(zeroblob(300000000))) STORED)"}, "INSERT INTO x (n) VALUES ('1')"},
		{"index", []string{table, "CREATE INDEX i ON x (hex(zeroblob(300000000)))"}, "INSERT INTO x VALUES ('1')"},
		{"virtual table", []string{"CREATE VIRTUAL TABLE x USING fts5 (n)"}, "INSERT INTO x (n) VALUES ('1')"},
		{"a value that is too large", []string{table, "INSERT INTO x VALUES (zeroblob(200000000))"}, "SELECT n FROM x"},
	} {
		for _, when := range []string{"before", "after"} {
			t.Run(c.name+" "+when, func(t *testing.T) {
				t.Parallel()
				root := newTenantRoot(t)
				path := filepath.Join(root, "own.db")
				g, dialer := newTenantFile(t, root, path)
				if when == "before" {
					execInFile(t, path, c.prepared...)
				}
				d, err := db.OpenExternal(t.Context(), g, dialer)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = d.Close() }()
				if when == "after" {
					if err := runSQL(t, d, "SELECT name FROM sqlite_schema"); err != nil {
						t.Fatal(err)
					}
					execInFile(t, path, c.prepared...)
				}
				if err := runSQL(t, d, c.does); err == nil || db.PublicMessage(err) == "" || db.PublicMessage(err) == "no answer in time" {
					t.Errorf("%s: %v, %q", c.does, err, db.PublicMessage(err))
				}
			})
		}
	}
}

// TestTenantStatementsEnd checks that a statement on an app's own file ends with its caller, for writes, reads and
// closing.
func TestTenantStatementsEnd(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"write": "INSERT INTO x SELECT a.n FROM x a, x b, x c, x d WHERE a.n || b.n || c.n || d.n = ''", "read": "SELECT count(*) FROM x a, x b, x c, x d WHERE a.n || b.n || c.n || d.n = ''",
	} {
		for _, grouped := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " grouped ", grouped), func(t *testing.T) {
				t.Parallel()
				root := newTenantRoot(t)
				path := filepath.Join(root, "own.db")
				execInFile(t, path, "CREATE TABLE x (n TEXT)", "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3000) INSERT INTO x SELECT CAST(n AS TEXT) FROM c")
				g, dialer := newTenantFile(t, root, path)
				d, err := db.OpenExternal(t.Context(), g, dialer)
				if err != nil {
					t.Fatal(err)
				}
				var b db.Batch
				if name == "write" {
					b.Exec(nil, statement)
				} else {
					b.Query(func(db.Row) error { return nil }, statement)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				do := d.Tenant("acme").Do
				if grouped {
					do = d.Tenant("acme").Write
				}
				if err := do(ctx, &b); err == nil {
					t.Error("a statement of 8e13 steps has ended")
				}
				closed := make(chan error, 1)
				go func() { closed <- d.Close() }()
				select {
				case err := <-closed:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(5 * time.Second): // only a hanging statement takes this long
					t.Error("the statement goes on")
				}
			})
		}
	}
}
