package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/trigger"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// newScheduledApp returns the configuration of an app with a schedule and further keys.
func newScheduledApp(cron, more string) string {
	return fmt.Sprintf(`
llms: {m: {provider: scripted}}
agents:
  daily: {llm: m, trigger: {type: schedule, cron: %q, timezone: Europe/Berlin, input: "Write the report."}}
%s`, cron, more)
}

// scheduleAnswer is a schedule in the response of GET /triggers.
type scheduleAnswer struct {
	Agent     string    `json:"agent"`
	Cron      string    `json:"cron"`
	Timezone  string    `json:"timezone"`
	NextAt    time.Time `json:"next_at"`
	LastAt    time.Time `json:"last_at"`
	LastTask  string    `json:"last_task_id"`
	LastError string    `json:"last_error"`
}

// getSchedule returns an app's only schedule as an operator sees it.
func (ts *testServer) getSchedule(t *testing.T, app string) (s scheduleAnswer) {
	t.Helper()
	var out struct {
		Triggers []scheduleAnswer `json:"triggers"`
	}
	token := ""
	if app != "default" {
		token = ts.createToken(t, app, "otto", map[string]any{"roles": []string{"operator"}})
	}
	ts.requireStatus(t, http.StatusOK, &out, "GET", "/apps/"+app+"/triggers", token, nil)
	for _, one := range out.Triggers {
		if one.Cron != "" {
			return one
		}
	}
	return scheduleAnswer{}
}

// makeOverdue makes the schedules of an app due since the last of their ticks.
func (ts *testServer) makeOverdue(t *testing.T, app string) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, `UPDATE schedule SET next_at = next_at - 86400000000 WHERE tenant = (SELECT tenant FROM app WHERE name = $1) OR tenant = $1`, app)
	if err := ts.db.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// TestSchedule follows a schedule through its app's life: it is stored, fires once for all missed ticks, is refused
// by a limit, changes with the app's revision, rests while the app is suspended, and is deleted with it.
func TestSchedule(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		daily := func(minute int) string { // hours away, so that no tick fires by itself
			return fmt.Sprint(minute, " ", time.Now().UTC().Add(12*time.Hour).Hour(), " * * *")
		}
		cron, second, third := daily(30), daily(40), daily(50)
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": newScheduledApp(cron, "")})
		dbtest.WaitUntil(t, "the schedule is known", func() bool { return !h.getSchedule(t, "acme").NextAt.IsZero() })
		k, err := trigger.ParseCron(cron, "Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		if s := h.getSchedule(t, "acme"); !s.NextAt.Equal(k.Next(time.Now())) || s.Timezone != "Europe/Berlin" || !s.LastAt.IsZero() {
			t.Errorf("a new schedule is %+v", s)
		}
		h.makeOverdue(t, "acme")
		dbtest.WaitUntil(t, "what was missed is a task", func() bool { return h.getSchedule(t, "acme").LastTask != "" })
		s := h.getSchedule(t, "acme")
		if last := k.LatestTick(time.Now().Add(-48*time.Hour), time.Now()); !s.LastAt.Equal(last) || !s.NextAt.Equal(k.Next(time.Now())) || s.LastError != "" {
			t.Errorf("the schedule is %+v, want the last tick at %v", s, last)
		}
		var tasks struct {
			Tasks []struct {
				ID     string `json:"task_id"`
				Agent  string `json:"agent"`
				Status struct {
					State   string `json:"state"`
					Message struct {
						Parts []struct{ Text string }
					}
				}
			}
		}
		operator := h.createToken(t, "acme", "otto", map[string]any{"roles": []string{"operator"}})
		dbtest.WaitUntil(t, "the task ends", func() bool {
			h.requireStatus(t, http.StatusOK, &tasks, "GET", "/apps/acme/tasks", operator, nil)
			return len(tasks.Tasks) == 1 && tasks.Tasks[0].Status.State == "completed"
		})
		if got := tasks.Tasks[0]; got.ID != s.LastTask || got.Agent != "daily" || got.Status.Message.Parts[0].Text != "You said: Write the report." {
			t.Errorf("the task is %+v", got)
		}

		// Another schedule, under a limit that the first tick has exhausted.
		limit := "rate_limiting: {enabled: true, scope: user, limits: [{type: count, window: month, limit: 1}]}\n"
		h.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"config": newScheduledApp(second, limit)})
		dbtest.WaitUntil(t, "the schedule has changed", func() bool { s := h.getSchedule(t, "acme"); return s.Cron == second && !s.NextAt.IsZero() })
		h.makeOverdue(t, "acme")
		dbtest.WaitUntil(t, "the first is started", func() bool { return h.getSchedule(t, "acme").LastTask != s.LastTask })
		h.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"config": newScheduledApp(third, limit)})
		dbtest.WaitUntil(t, "the schedule has changed again", func() bool { s := h.getSchedule(t, "acme"); return s.Cron == third && !s.NextAt.IsZero() })
		h.makeOverdue(t, "acme")
		dbtest.WaitUntil(t, "the refusal is noted", func() bool { return h.getSchedule(t, "acme").LastError != "" })
		if s := h.getSchedule(t, "acme"); s.LastTask != "" || !strings.Contains(s.LastError, "limit") || s.NextAt.Before(time.Now()) {
			t.Errorf("after a refusal the schedule is %+v", s)
		}

		h.requireStatus(t, http.StatusOK, nil, "POST", "/admin/apps/acme:suspend", testSecret, nil)
		dbtest.WaitUntil(t, "it rests", func() bool { return h.countSchedules(t, "acme") == 0 })
		h.requireStatus(t, http.StatusOK, nil, "POST", "/admin/apps/acme:resume", testSecret, nil)
		dbtest.WaitUntil(t, "it goes on", func() bool { return h.countSchedules(t, "acme") == 1 })
		h.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"config": `{llms: {m: {provider: scripted}}, agents: {daily: {llm: m}}}`})
		dbtest.WaitUntil(t, "it is taken away", func() bool { return h.countSchedules(t, "acme") == 0 })
		h.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"config": newScheduledApp(cron, "")})
		dbtest.WaitUntil(t, "it is back", func() bool { return h.countSchedules(t, "acme") == 1 })
		h.requireStatus(t, http.StatusNoContent, nil, "DELETE", "/admin/apps/acme", testSecret, nil)
		dbtest.WaitUntil(t, "no row is left", func() bool { return h.countSchedules(t, "") == 0 })
	})
}

// TestScheduleOutlivesBrokenRevision checks that a schedule and its history stay as they are while the app's
// configuration does not load, and when it loads again.
func TestScheduleOutlivesBrokenRevision(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		cron := fmt.Sprint("30 ", time.Now().UTC().Add(12*time.Hour).Hour(), " * * *")
		folder := t.TempDir()
		grants := []any{map[string]any{"filesystem": []string{folder}}}
		config := newScheduledApp(cron, "tools: {read: {type: function, handler: read_file, working_directory: "+folder+"}}\n")
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": config, "grants": grants})
		dbtest.WaitUntil(t, "the schedule is known", func() bool { return !h.getSchedule(t, "acme").NextAt.IsZero() })
		h.makeOverdue(t, "acme")
		dbtest.WaitUntil(t, "what was missed is a task", func() bool { return h.getSchedule(t, "acme").LastTask != "" })
		before := h.getSchedule(t, "acme")
		var b db.Batch
		b.Exec(nil, `UPDATE app SET grants = $1, inputs = inputs + 1, generation = generation + 1 WHERE name = 'acme'`, `["filesystem"]`)
		if err := h.db.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "zoo", "config": newScheduledApp(cron, "")})
		dbtest.WaitUntil(t, "the changes are read", func() bool { return h.countSchedules(t, "zoo") == 1 })
		if n := h.countSchedules(t, "acme"); n != 1 {
			t.Errorf("while the configuration does not load there are %d schedules", n)
		}
		h.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"grants": grants})
		if diff := cmp.Diff(before, h.getSchedule(t, "acme")); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})
}

// TestScheduleOutlivesUnbuiltRevision checks that a revision that is read but cannot be built, because the folder of
// a tool is gone, leaves the schedule of the one before and its history alone, and that it acts when the folder is
// back.
func TestScheduleOutlivesUnbuiltRevision(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		cron := fmt.Sprint("30 ", time.Now().UTC().Add(12*time.Hour).Hour(), " * * *")
		folder := filepath.Join(t.TempDir(), "files")
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		grants := []any{map[string]any{"filesystem": []string{folder}}}
		tool := "tools: {read: {type: function, handler: read_file, working_directory: " + folder + "}}\n"
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{
			"name": "acme", "config": tool + "llms: {m: {provider: scripted}}\nagents: {daily: {llm: m}}\n", "grants": grants})
		h.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"config": newScheduledApp(cron, tool)})
		dbtest.WaitUntil(t, "the schedule is known", func() bool { return !h.getSchedule(t, "acme").NextAt.IsZero() })
		h.makeOverdue(t, "acme")
		dbtest.WaitUntil(t, "what was missed is a task", func() bool { return h.getSchedule(t, "acme").LastTask != "" })
		before := h.getSchedule(t, "acme")
		// The first revision, which has no schedule, is current again.
		if err := os.Remove(folder); err != nil {
			t.Fatal(err)
		}
		var b db.Batch
		b.Exec(nil, `UPDATE app SET revision = 1, inputs = inputs + 1, generation = generation + 1 WHERE name = 'acme'`)
		if err := h.db.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "zoo", "config": newScheduledApp(cron, "")})
		dbtest.WaitUntil(t, "the changes are read", func() bool { return h.countSchedules(t, "zoo") == 1 })
		if diff := cmp.Diff(before, h.getSchedule(t, "acme")); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		h.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"display_name": "Acme"})
		dbtest.WaitUntil(t, "the revision acts", func() bool { return h.countSchedules(t, "acme") == 0 })
	})
}

// countSchedules returns the number of schedules of an app, or of all.
func (ts *testServer) countSchedules(t *testing.T, app string) (n int) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) },
		`SELECT COUNT(*) FROM schedule WHERE CAST($1 AS TEXT) = '' OR tenant = (SELECT tenant FROM app WHERE name = $1)`, app)
	if err := ts.db.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDefaultAppTriggers starts agents by triggers of the operator's file: a schedule fires once after the start for
// the time that has passed, also in an app that keeps its tasks in memory, and a webhook counts against the limits.
func TestDefaultAppTriggers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "stoa.yaml")
	hourly := fmt.Sprint(time.Now().UTC().Add(30*time.Minute).Minute(), " * * * *") // half an hour away
	config := newScheduledApp(hourly, `
  hooked: {llm: m, trigger: {type: webhook, secret: a-secret-of-all-the-hooks, response: {mode: async}}}
storage: {tasks: {backend: inmemory}, sessions: {backend: inmemory}}
rate_limiting: {enabled: true, scope: user, limits: [{type: count, window: month, limit: 2}]}
`)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	h := openServerWith(t, dbtest.NewSQLiteURL(t), slog.New(slog.DiscardHandler), file)
	dbtest.WaitUntil(t, "the schedule is known", func() bool { return !h.getSchedule(t, tenancy.DefaultName).NextAt.IsZero() })
	h.makeOverdue(t, tenancy.DefaultName)
	dbtest.WaitUntil(t, "what was missed is a task", func() bool { return h.getSchedule(t, tenancy.DefaultName).LastTask != "" })
	for i, want := range []int{http.StatusAccepted, http.StatusAccepted, http.StatusTooManyRequests, http.StatusAccepted} {
		body := fmt.Sprintf(`{"n": %d}`, i%3) // the last repeats the first, which is not a further call
		mac := hmac.New(sha256.New, []byte("a-secret-of-all-the-hooks"))
		mac.Write([]byte(body))
		req := h.newRequest(t, "POST", "/webhooks/hooked", "", body)
		req.Header.Set("X-Webhook-Signature", hex.EncodeToString(mac.Sum(nil)))
		req.Header.Set("Idempotency-Key", body)
		if status, answer := h.sendRequest(t, req); status != want {
			t.Errorf("delivery %d: %d %s, want %d", i, status, answer, want)
		}
	}
}
