package runtime_test

import (
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/runtime"
	"stoa/tenancy/db/dbtest"
	grants "stoa/tenancy/grant"
)

// TestForeignSchema checks that a tenant's file may have only objects that this or an earlier version creates. The
// error names the object, when the file is opened and while it is in use.
func TestForeignSchema(t *testing.T) {
	t.Parallel()
	first, err := os.ReadFile("../../migrations/session/0001_baseline.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name             string
		before, meantime string
		refused          string
	}{
		{name: "nothing"},
		{name: "an earlier version's", before: "CREATE TABLE session_version (version BIGINT NOT NULL); INSERT INTO session_version VALUES (1);" + strings.ReplaceAll(string(first), "-- ", "-- once said ")},
		{name: "a table of others", before: "CREATE TABLE note (text TEXT)", refused: `it holds the table "note"`},
		{name: "a trigger", meantime: "CREATE TRIGGER boom AFTER INSERT ON session_turn BEGIN SELECT 1; END", refused: `it holds the trigger "boom"`},
		{name: "a view in a table's place", before: "CREATE VIEW session_turn AS SELECT 1 AS tenant", refused: `it holds the view "session_turn"`},
		{name: "a check", before: strings.Replace(string(first), "body       TEXT   NOT NULL", "body TEXT NOT NULL CHECK (body NOT LIKE '%a%a%a%a%b')", 1), refused: `it holds the table "session_turn"`},
		{name: "an index", meantime: "CREATE INDEX i ON session_turn (hex(body))", refused: `it holds the index "i"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(root, "own.db")
			change := func(text string) {
				if text == "" {
					return
				}
				d, err := sql.Open("sqlite", path)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = d.Close() }()
				if _, err := d.ExecContext(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			change(c.before)
			granted := grants.ParseList([]string{"sqlite", "filesystem=" + root})
			tenant := runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, Grants: granted}
			cfg := mustParse(t, fmt.Sprintf(externalDatabaseSource, fmt.Sprintf("{driver: sqlite, database: %q}", path)), config.Options{Tenant: true, Grants: granted})
			var log logBuffer
			a := newAppWith(t, dbtest.NewSQLite(t), cfg, tenant, slog.New(slog.NewTextHandler(&log, nil)), func(h *runtime.Dependencies) {
				h.Retry = queue.Retry{MaxRetries: 1, InitialDelay: time.Millisecond, MaxDelay: time.Millisecond}
			})
			if c.meantime != "" {
				if outcome, _ := runTurn(t, a, newSubmission("one")); outcome.Status.State != agentsvc.Completed {
					t.Fatalf("%s %q\n%s", outcome.Status.State, outcome.Status.Message.Text(), log.String())
				}
				change(c.meantime)
			}
			outcome, _ := runTurn(t, a, newSubmission("two"))
			if got := strings.ReplaceAll(log.String(), `\"`, `"`); (outcome.Status.State == agentsvc.Completed) != (c.refused == "") || !strings.Contains(got, c.refused) {
				t.Errorf("%s, want %q in\n%s", outcome.Status.State, c.refused, got)
			}
		})
	}
}
