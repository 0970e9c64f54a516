package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store/leader"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestSweep checks that expired data is deleted, in the platform's database and in one of the app's own, by one
// process at a time; its ids then behave like ids that never existed.
func TestSweep(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		specific := filepath.Join(t.TempDir(), "own.db")
		config := `{llms: {m: {provider: scripted}}, agents: {a: {llm: m}}, storage: {%s}%s}`
		sessions := "sessions: {database: own}, retention: {tasks: 1h, sessions: 1h}"
		for name, c := range map[string]string{
			"short": fmt.Sprintf(config, "retention: {tasks: 1h, sessions: 1h}", ""),
			"long":  fmt.Sprintf(config, "retention: {tasks: 30d}", ""),
			"ever":  fmt.Sprintf(config, "", ""),
			"apart": fmt.Sprintf(config, sessions, fmt.Sprintf(", databases: {own: {driver: sqlite, database: %q}}", specific)),
		} {
			h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret,
				map[string]any{"name": name, "config": c, "grants": []any{"sqlite", map[string]any{"filesystem": []string{filepath.Dir(specific)}}}})
		}
		asked := map[string]string{}
		for _, name := range []string{"short", "long", "ever", "apart"} {
			var out struct {
				Result struct {
					ID string `json:"task_id"`
				} `json:"result"`
			}
			h.requireStatus(t, http.StatusOK, &out, "POST", "/apps/"+name+"/agents/a", h.createToken(t, name, "ana", nil),
				newRPCCall("message/send", newTextMessage("hello", "context_id", "c1")))
			asked[name] = out.Result.ID
		}
		prefix := ageRows(t, h.db, 2*time.Hour)
		countExternalRows := func() (n int) {
			d, err := db.OpenExternal(t.Context(), db.ExternalDB{Driver: db.SQLite, Database: specific, MaxConns: 1}, db.Dialer{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.Close() }()
			var b db.Batch
			b.Exec(nil, "UPDATE session_turn SET at = 1")
			b.Query(func(r db.Row) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM session_turn")
			if err := d.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if countExternalRows() != 1 {
			t.Fatal("the app's own database has no conversation")
		}

		other := leader.New(h.db, "sweep", "another process")
		if mine, err := other.Acquire(t.Context(), time.Hour); err != nil || !mine {
			t.Fatal(mine, err)
		}
		var written bytes.Buffer
		s := h.NewSweeper(slog.New(slog.NewTextHandler(&written, nil)))
		if err := s.SweepDueApps(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := countExternalRows(); n != 1 {
			t.Errorf("a process without the duty has swept")
		}
		if err := other.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.SweepDueApps(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := countExternalRows(); n != 0 {
			t.Errorf("%d turns in the app's own database", n)
		}
		for _, line := range []string{
			`msg="deleted expired data of an app" app=short tasks=1 events=0 sessions=1`,
			`msg="deleted expired data of an app" app=apart tasks=1 events=0 sessions=1`,
		} {
			if !strings.Contains(written.String(), line) {
				t.Errorf("the log has no %s:\n%s", line, &written)
			}
		}
		metrics := httptest.NewRecorder()
		h.NewMetricsHandler().ServeHTTP(metrics, httptest.NewRequest(http.MethodGet, "/", nil))
		for _, line := range []string{`stoa_retention_deleted_total{kind="tasks"} 2`, `stoa_retention_deleted_total{kind="sessions"} 2`, `stoa_retention_deleted_total{kind="events"} 0`} {
			if !strings.Contains(metrics.Body.String(), line) {
				t.Errorf("the metrics have no %s", line)
			}
		}
		for name, c := range map[string]struct{ gone, silent bool }{"short": {true, true}, "long": {}, "ever": {}, "apart": {true, true}} {
			id := prefix + asked[name][13:]
			get := func(id string) string {
				_, text := h.doRequest(t, "POST", "/apps/"+name+"/agents/a", h.createToken(t, name, "ana", nil), newRPCCall("tasks/get", map[string]any{"id": id}))
				return regexp.MustCompile(`"request_id":"[^"]*"`).ReplaceAllString(text, "")
			}
			if same := get(id) == get(agentsvc.NewID()); same != c.gone {
				t.Errorf("%s: %s, want it gone: %v", name, get(id), c.gone)
			}
			app, err := h.apps.LoadApp(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if n := countRows(t, h.db, app.ID, "task"); (n == 0) != c.gone {
				t.Errorf("%s: %d tasks left", name, n)
			}
			if n := countRows(t, h.db, app.ID, "session_turn"); (n == 0) != c.silent {
				t.Errorf("%s: %d turns left", name, n)
			}
		}
	})
}

// ageRows makes all tasks and sessions older. It returns the new prefix of their ids.
func ageRows(t *testing.T, d *db.DB, by time.Duration) string {
	t.Helper()
	at := time.Now().Add(-by)
	ms := at.UnixMilli()
	prefix := fmt.Sprintf("%08x-%04x", ms>>16, ms&0xffff)
	var b db.Batch
	for _, c := range []string{"task.id", "event.task", "run.task", "sent.task", "session_turn.task"} {
		table, column, _ := strings.Cut(c, ".")
		b.Exec(nil, "UPDATE "+table+" SET "+column+" = CAST($1 AS TEXT) || substr("+column+", 14)", prefix)
	}
	b.Exec(nil, "UPDATE task SET updated_at = $1", at.UnixMicro())
	b.Exec(nil, "UPDATE session_turn SET at = $1", at.UnixMicro())
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return prefix
}

func countRows(t *testing.T, d *db.DB, id db.ID, table string) (n int) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, "SELECT COUNT(*) FROM "+table+" WHERE tenant = $1", string(id))
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSweepDefaultApp checks that the retention of the operator's own file acts, too.
func TestSweepDefaultApp(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "stoa.yaml")
	if err := os.WriteFile(file, []byte("llms: {m: {provider: scripted}}\nagents: {a: {llm: m}}\nstorage: {retention: {tasks: 1h}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := openServerWith(t, dbtest.NewSQLiteURL(t), newTestLog(t), file)
	h.requireStatus(t, http.StatusOK, nil, "POST", "/agents/a", "", newRPCCall("message/send", newTextMessage("hello")))
	ageRows(t, h.db, 2*time.Hour)
	if err := h.NewSweeper(h.Log).SweepDueApps(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countRows(t, h.db, tenancy.DefaultID, "task"); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
}

// TestSpelledOtherwise checks that schedules and retention of an app's configuration act however they are written: from
// secrets, or with escaped characters, also after a secret has changed.
func TestSpelledOtherwise(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		hour := time.Now().UTC().Add(12 * time.Hour).Hour() // no tick fires by itself
		config := fmt.Sprintf(`{"llms": {"m": {"provider": "scripted"}}, "agents": {"a": {"llm": "m", "trigger": {"type": "${KIND}", "cron": "30 %d * * *", "input": "Go."}}},
			"storage": {"\u0072etention": {"tasks": "${KEPT}"}}}`, hour)
		secrets := map[string]string{"KIND": "schedule", "KEPT": "30d"}
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": config, "secrets": secrets})
		a, err := h.apps.LoadApp(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		dbtest.WaitUntil(t, "the schedule is known", func() bool { return !h.getSchedule(t, "acme").NextAt.IsZero() })
		h.makeOverdue(t, "acme")
		dbtest.WaitUntil(t, "the tick is a task that ends", func() bool {
			return h.getSchedule(t, "acme").LastTask != "" && h.queryNumber(t, "SELECT COUNT(*) FROM run WHERE tenant = $1 AND state IN ('pending', 'running')", string(a.ID)) == 0
		})
		ageRows(t, h.db, 2*time.Hour)
		s := h.NewSweeper(h.Log)
		sweep := func(want int) {
			t.Helper()
			if err := s.SweepDueApps(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := countRows(t, h.db, a.ID, "task"); n != want {
				t.Errorf("%d tasks are left, want %d", n, want)
			}
		}
		sweep(1)
		h.requireStatus(t, http.StatusNoContent, nil, "PUT", "/admin/apps/acme/secrets/KEPT", testSecret, map[string]string{"value": "1h"})
		sweep(0)
	})
}
