package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"stoa/agentsvc/store"
)

// TestRefusalsCounted checks that metrics count refused calls by rule and app, and dead runs.
func TestRefusalsCounted(t *testing.T) {
	h := openTestServer(t, "sqlite://"+filepath.Join(t.TempDir(), "stoa.db"))
	h.createApp(t, "acme", paidApp)
	h.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"limits": map[string]any{"rate": []any{
		map[string]any{"per": "agent", "agent": "assistant", "type": "count", "window": "month", "limit": 1},
	}}})
	ana := h.createToken(t, "acme", "ana", nil)
	h.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("hi")))
	h.requireStatus(t, http.StatusTooManyRequests, nil, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("hi")))
	h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps/acme/budgets", testSecret, map[string]any{"name": "none", "unit": "calls", "amount": 0, "window": "total", "hard": true})
	for range 2 {
		h.requireStatus(t, http.StatusTooManyRequests, nil, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("hi")))
	}
	h.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"limits": map[string]any{"rate": []any{}}})
	h.requireStatus(t, http.StatusOK, nil, "PUT", "/admin/apps/acme/budgets/none", testSecret, map[string]any{"amount": 2})
	if status, text := h.sendText(t, ana, "sum"); status != http.StatusOK || !strings.Contains(text, "the budget none (app) is used up") {
		t.Errorf("in the middle of a task: %d %s", status, text)
	}
	app, err := h.apps.LoadApp(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Execution.AppName(t.Context(), app.ID); got != "acme" {
		t.Errorf("the app of a dead run is called %q", got)
	}
	if got := h.Execution.AppName(t.Context(), "gone"); got != "" {
		t.Errorf("an app that is gone is called %q", got)
	}
	h.Metrics().RecordRunEnd(t.Context(), h.Execution.AppName(t.Context(), app.ID), store.Run{}, "dead", 0)
	metrics := httptest.NewRecorder()
	h.NewMetricsHandler().ServeHTTP(metrics, httptest.NewRequest(http.MethodGet, "/", nil))
	for _, line := range []string{
		`stoa_limit_refusals_total{app="acme",rule="agent-count-month"} 1`, `stoa_limit_refusals_total{app="acme",rule="budget"} 3`,
		`stoa_runs_total{app="acme",state="dead"} 1`,
	} {
		if !strings.Contains(metrics.Body.String(), line) {
			t.Errorf("the metrics have no %s", line)
		}
	}
}
