package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// TestContractedSchema checks that no command uses a schema from which a newer version has removed what this one needs.
func TestContractedSchema(t *testing.T) {
	t.Parallel()
	url := "sqlite://" + filepath.Join(t.TempDir(), "stoa.db")
	d, err := db.Open(t.Context(), url, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(server.MigrateSchema(t.Context(), d, ""), d.ChangeSchema(t.Context(), "", func(s *sql.DB) error {
		_, err := s.ExecContext(t.Context(), "UPDATE stoa_migrations SET version = 99; CREATE VIEW stoa_oldest AS SELECT 98 AS migration")
		return err
	}), d.Close())
	if err != nil {
		t.Fatal(err)
	}
	for args, code := range map[string]int{"migrate status": 0, "migrate up": exitFailed, "serve --port 0": exitFailed, "serve --port 0 --no-migrate": exitFailed} {
		var out bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // a server that starts ends
		got := runCommand(ctx, append(strings.Fields(args), "--database", url), &console{out: &out, err: &out})
		cancel()
		if got != code || !strings.Contains(out.String(), "run a version that knows migration 98") {
			t.Errorf("stoa %s: %d %s, want %d and what to do", args, got, out.String(), code)
		}
	}
}
