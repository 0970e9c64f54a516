package db_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestOpenReadOnlyPlatform checks that a database opened with [db.Options].ReadOnly is read, by the platform and by tenants,
// while a server uses it, and that nothing is written to it.
func TestOpenReadOnlyPlatform(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, served *db.DB) {
		var b db.Batch
		dbtest.InsertTask(&b, "acme", "one")
		if err := served.Tenant("acme").Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		d, err := db.Open(t.Context(), served.URL(), db.Options{MaxConns: 2, ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}()
		for _, handle := range []*db.Handle{d.Platform(), d.Tenant("acme")} {
			n := 0
			var count db.Batch
			count.Query(func(r db.Row) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM task")
			count.Query(func(r db.Row) error { return r.Scan(new(int64)) }, "SELECT stoa_now()")
			if err := handle.Do(t.Context(), &count); err != nil || n != 1 {
				t.Errorf("%q reads %d tasks, %v", handle.Tenant(), n, err)
			}
			var write db.Batch
			write.Exec(nil, "DELETE FROM task")
			if err := handle.Do(t.Context(), &write); err == nil || !strings.Contains(err.Error(), "read") {
				t.Errorf("%q deletes: %v", handle.Tenant(), err)
			}
			if err := handle.Write(t.Context(), &write); err == nil {
				t.Errorf("%q deletes in a group", handle.Tenant())
			}
		}
	})
}

// TestReadOnlyFile checks that reading a SQLite file changes nothing in its folder, whether or not a process serves it, and
// that a missing one is not created.
func TestReadOnlyFile(t *testing.T) {
	t.Parallel()
	url := dbtest.NewSQLiteURL(t)
	folder := filepath.Dir(strings.TrimPrefix(url, "sqlite://"))
	read := func() {
		t.Helper()
		before := dbtest.HashFolder(t, folder)
		d, err := db.Open(t.Context(), url, db.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		var b db.Batch
		b.Query(func(db.Row) error { return nil }, "SELECT id FROM task")
		if err := d.Platform().Do(t.Context(), &b); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := db.ReadSchema(url, func(_ db.Engine, s *sql.DB) error { return s.PingContext(t.Context()) }); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(before, dbtest.HashFolder(t, folder)); diff != "" {
			t.Errorf("the folder has changed (-before +after):\n%s", diff)
		}
	}
	read()
	served, err := db.Open(t.Context(), url, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	read()
	if err := served.Close(); err != nil {
		t.Fatal(err)
	}
	read()

	missing := filepath.Join(t.TempDir(), "stoa.db")
	if _, err := db.Open(t.Context(), "sqlite://"+missing, db.Options{ReadOnly: true}); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("the missing file was created")
	}
}
