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
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a server that starts ends
		got := runCommand(ctx, append(strings.Fields(args), "--database", url), &console{out: &out, err: &out})
		cancel()
		if got != code || !strings.Contains(out.String(), "run a version that knows migration 98") {
			t.Errorf("stoa %s: %d %s, want %d and what to do", args, got, out.String(), code)
		}
	}
}

// TestMigrateRoles checks what stoa migrate roles does with passwords, and which arguments it refuses.
func TestMigrateRoles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const password = "correct-horse-battery-staple"
	for name, tt := range map[string]struct {
		args string
		code int
		want []string
	}{
		"without passwords":  {"migrate roles", 0, []string{`CREATE ROLE "stoa_login" LOGIN NOINHERIT;`}},
		"a password":         {"migrate roles --password-file " + file("one", "# the logins\n\nstoa_login="+password+"\n"), 0, []string{`ALTER ROLE "stoa_login" PASSWORD 'SCRAM-SHA-256$4096:`}},
		"of another login":   {"migrate roles --password-file " + file("other", "login="+password), exitUsage, []string{"for login, which is none of the logins stoa_owner, stoa_login and stoa_backup"}},
		"no line":            {"migrate roles --password-file " + file("bare", "stoa_owner=a\n"+password), exitUsage, []string{"bare, line 2: want LOGIN=PASSWORD"}},
		"a line twice":       {"migrate roles --password-file " + file("twice", "stoa_owner=a\nstoa_owner=b"), exitUsage, []string{"twice, line 2: want LOGIN=PASSWORD, once"}},
		"no ASCII":           {"migrate roles --password-file " + file("umlaut", "stoa_owner=pässword"), exitUsage, []string{"the password of stoa_owner: it must be of letters"}},
		"no file":            {"migrate roles --password-file " + filepath.Join(dir, "missing"), exitUsage, []string{"no such file"}},
		"applied to SQLite":  {"migrate roles --apply --database sqlite://" + filepath.Join(dir, "stoa.db"), exitUsage, []string{"--apply needs --database with a PostgreSQL database"}},
		"applied by migrate": {"migrate up --apply", exitUsage, []string{"--apply and --password-file are for stoa migrate roles"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if code := runCommand(t.Context(), strings.Fields(tt.args), &console{out: &out, err: &out}); code != tt.code {
				t.Errorf("the exit code is %d, want %d", code, tt.code)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing in\n%s", want, out.String())
				}
			}
			if strings.Contains(out.String(), password) {
				t.Errorf("the password is shown:\n%s", out.String())
			}
		})
	}
}
