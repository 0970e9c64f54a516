package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stoa/tenancy/db"
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
