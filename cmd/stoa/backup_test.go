package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/db/backup"
	"stoa/tenancy/db/dbtest"
)

// TestRestoreSchema restores backups whose schema is older and newer than this program's, and one of another program.
func TestRestoreSchema(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, change string
		code         int
		want         string
	}{
		{"older", "UPDATE stoa_migrations SET version = version - 1", 0, "the server brings it up to date when it starts"},
		{"cut off", "UPDATE stoa_migrations SET dirty = TRUE", 0, "was cut off; the server runs it again when it starts"},
		{"newer", "UPDATE stoa_migrations SET version = 9999", exitFailed, "its schema is at 9999, of a newer version of Stoa; this one knows"},
		{"of another program", "DROP TABLE stoa_migrations", exitFailed, "the SQLite file has no table of Stoa"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url := dbtest.NewSQLiteURL(t)
			d, err := db.Open(t.Context(), url, db.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var b db.Batch
			b.Exec(nil, tt.change)
			if err := d.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			target := filepath.Join(t.TempDir(), "stoa.db")
			var out strings.Builder
			code := runCommand(t.Context(), []string{"restore", strings.TrimPrefix(url, "sqlite://"), "--database", "sqlite://" + target}, &console{out: &out, err: &out})
			if code != tt.code || !strings.Contains(out.String(), tt.want) {
				t.Errorf("code %d, want %d with %q:\n%s", code, tt.code, tt.want, &out)
			}
			if _, err := os.Stat(target); (err == nil) != (tt.code == 0) {
				t.Errorf("the database: %v", err)
			}
		})
	}
}

// TestBackupTime checks that a backup that is complete is recorded next to the database, and one that fails is not.
func TestBackupTime(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	run := func(file string) (code int, written string) {
		var out strings.Builder
		code = runCommand(t.Context(), []string{"backup", file, "--database", d.URL()}, &console{out: &out, err: &out})
		return code, out.String()
	}
	if code, written := run(filepath.Join(t.TempDir(), "missing", "a.backup")); code == 0 {
		t.Fatalf("a backup in a folder that does not exist: %s", written)
	}
	if at, err := backup.ReadTime(t.Context(), d); err != nil || !at.IsZero() {
		t.Errorf("a backup that failed is recorded for %v (%v)", at, err)
	}
	began := time.Now().Truncate(time.Second)
	if code, written := run(filepath.Join(t.TempDir(), "a.backup")); code != 0 {
		t.Fatalf("code %d: %s", code, written)
	}
	if at, err := backup.ReadTime(t.Context(), d); err != nil || at.Before(began) || at.After(time.Now()) {
		t.Errorf("the backup is recorded for %v, want after %v (%v)", at, began, err)
	}
}

// TestBackupRecord records backups of other tools while a server has the database, with the login that serves.
func TestBackupRecord(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		record := func(args ...string) (code int, written string) {
			var out strings.Builder
			code = runCommand(t.Context(), append([]string{"backup", "record", "--database", d.URL()}, args...), &console{out: &out, err: &out})
			return code, out.String()
		}
		want := time.Date(2026, 11, 24, 3, 15, 0, 0, time.UTC)
		for _, tt := range []struct {
			args []string
			code int
			want string
		}{
			{[]string{"--begun", "2026-11-24T04:15:00+01:00"}, 0, "recorded: the last backup was begun at 2026-11-24T03:15:00Z"},
			{[]string{"--begun", "2999-01-01T00:00:00Z"}, exitUsage, "--begun 2999-01-01T00:00:00Z is in the future: it is "},
			{[]string{"--begun", "yesterday"}, exitUsage, "yesterday"},
		} {
			if code, written := record(tt.args...); code != tt.code || !strings.Contains(written, tt.want) {
				t.Errorf("%v: code %d, want %d with %q:\n%s", tt.args, code, tt.code, tt.want, written)
			}
			if at, err := backup.ReadTime(t.Context(), d); err != nil || !at.Equal(want) {
				t.Errorf("%v: the last backup is of %v, want %v (%v)", tt.args, at, want, err)
			}
		}
		began := time.Now().Truncate(time.Second)
		if code, written := record(); code != 0 {
			t.Fatalf("code %d: %s", code, written)
		}
		if at, err := backup.ReadTime(t.Context(), d); err != nil || at.Before(began) || at.After(time.Now()) {
			t.Errorf("the backup is recorded for %v, want after %v (%v)", at, began, err)
		}
	})
}
