package webhook_test

import (
	"net/http"
	"strings"
	"testing"

	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
)

// TestRunRefused: a start by hand counts against the limits of the app, and its refusal is listed with the reason.
func TestRunRefused(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	h.CreateApp(t, "acme", `{llms: {m: {provider: scripted}}, agents: {reporter: {llm: m, trigger: {type: schedule, cron: "0 0 1 1 *"}}},
		rate_limiting: {enabled: true, scope: user, limits: [{type: count, window: day, limit: 1}]}}`)
	token := h.MintToken(t, "acme", authz.TokenSpec{Subject: "otto", Roles: []string{"operator"}})
	for _, want := range []int{http.StatusAccepted, http.StatusTooManyRequests} {
		if resp, body := h.Do(t, http.MethodPost, "/apps/acme/triggers/reporter:run", token, nil); resp.StatusCode != want {
			t.Errorf("%d, want %d: %s", resp.StatusCode, want, body)
		}
	}
	_, body := h.Do(t, http.MethodGet, "/apps/acme/triggers/reporter/starts", token, nil)
	if refused := strings.Index(body, `"kind":"manual","outcome":"refused","error":"limit reached: 1 call a day per user`); refused < 0 || refused > strings.Index(body, `"outcome":"started","task_id"`) {
		t.Error(body)
	}
	if _, body := h.Do(t, http.MethodGet, "/admin/audit?action=trigger.run", surfacetest.Secret, nil); strings.Count(body, `"action":"trigger.run"`) != 1 {
		t.Errorf("the audit trail has %s", body)
	}
}
