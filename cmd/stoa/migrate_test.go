package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stoa/cmd/stoa/server"
	"stoa/tenancy/db"
)

// TestMigrateStatus checks that stoa migrate status reads a SQLite file that another process has locked, or that nothing
// uses, and creates none.
func TestMigrateStatus(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stoa.db")
	status := func(code int, want string) {
		t.Helper()
		var out bytes.Buffer
		if got := runCommand(t.Context(), []string{"migrate", "status", "--database", "sqlite://" + path}, &console{out: &out, err: &out}); got != code || !strings.Contains(out.String(), want) {
			t.Errorf("%d %s, want %d %s", got, out.String(), code, want)
		}
	}
	status(exitFailed, "does not exist: stoa migrate up creates it")
	if _, err := os.Stat(path); err == nil {
		t.Error("the file was created")
	}
	d, err := db.Open(t.Context(), "sqlite://"+path, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	status(0, "stoa migrate up brings it up to date")
	if err := server.MigrateSchema(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	status(0, "up to date")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	status(0, "up to date")
}
