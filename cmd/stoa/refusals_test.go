package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"stoa/agentsvc/store"
)

// TestRefusalsCounted: the metrics tell which rule refuses whose calls, and whose runs were given up.
func TestRefusalsCounted(t *testing.T) {
	h := openTestHouse(t, "sqlite://"+filepath.Join(t.TempDir(), "stoa.db"))
	h.create(t, "acme", paidApp)
	h.want(t, http.StatusOK, nil, "PUT", "/admin/apps/acme", testSecret, map[string]any{"limits": map[string]any{"rate": []any{
		map[string]any{"per": "agent", "agent": "assistant", "type": "count", "window": "month", "limit": 1},
	}}})
	ana := h.token(t, "acme", "ana", nil)
	h.want(t, http.StatusOK, nil, "POST", "/agents/assistant", ana, rpc("message:send", words("hi")))
	h.want(t, http.StatusTooManyRequests, nil, "POST", "/agents/assistant", ana, rpc("message:send", words("hi")))
	h.want(t, http.StatusCreated, nil, "POST", "/admin/apps/acme/budgets", testSecret, map[string]any{"name": "none", "unit": "calls", "amount": 0, "window": "total", "hard": true})
	for range 2 {
		h.want(t, http.StatusTooManyRequests, nil, "POST", "/agents/assistant", ana, rpc("message:send", words("hi")))
	}
	h.want(t, http.StatusOK, nil, "PUT", "/admin/apps/acme", testSecret, map[string]any{"limits": map[string]any{"rate": []any{}}})
	h.want(t, http.StatusOK, nil, "PUT", "/admin/apps/acme/budgets/none", testSecret, map[string]any{"amount": 2})
	if status, text := h.say(t, ana, "sum"); status != http.StatusOK || !strings.Contains(text, "the budget none (app) is used up") {
		t.Errorf("in the middle of a task: %d %s", status, text)
	}
	app, err := h.apps.Get(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	if got := h.named(t.Context(), app.ID); got != "acme" {
		t.Errorf("the app of a dead run is called %q", got)
	}
	if got := h.named(t.Context(), "gone"); got != "" {
		t.Errorf("an app that is gone is called %q", got)
	}
	h.meters.end(t.Context(), h.named(t.Context(), app.ID), store.Run{}, "dead", 0)
	metrics := httptest.NewRecorder()
	h.guardedMetrics().ServeHTTP(metrics, httptest.NewRequest(http.MethodGet, "/", nil))
	for _, line := range []string{
		`stoa_limit_refusals_total{app="acme",rule="agent-count-month"} 1`, `stoa_limit_refusals_total{app="acme",rule="budget"} 3`,
		`stoa_runs_total{app="acme",state="dead"} 1`,
	} {
		if !strings.Contains(metrics.Body.String(), line) {
			t.Errorf("the metrics have no %s", line)
		}
	}
}
