package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlanAfterRestart checks that an app whose plan no longer has one of its models loads, serves its other agents,
// and reports the error of the agent without a model.
func TestPlanAfterRestart(t *testing.T) {
	t.Parallel()
	database := "sqlite://" + filepath.Join(t.TempDir(), "stoa.db")
	plan := func(models ...string) map[string]any {
		return map[string]any{"name": "small", "allowed_models": models}
	}
	t.Run("before", func(t *testing.T) {
		h := openTestServer(t, database)
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/plans", testSecret, plan("scripted/*"))
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "plan": "small", "config": `
llms: {big: {provider: scripted, model: big}, small: {provider: scripted, model: small}}
agents: {assistant: {llm: big}, other: {llm: small}}
`})
		h.requireStatus(t, http.StatusOK, nil, "PUT", "/admin/plans/small", testSecret, plan("scripted/small"))
	})
	t.Run("after", func(t *testing.T) {
		h := openTestServer(t, database)
		ana := h.createToken(t, "acme", "ana", nil)
		for agent, want := range map[string]string{"assistant": "the app's plan does not have the model scripted/big", "other": "You said: hi"} {
			if status, body := h.doRequest(t, "POST", "/agents/"+agent, ana, newRPCCall("message:send", newTextMessage("hi"))); status != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s: %d %s, want %q", agent, status, body, want)
			}
		}
		status, body := h.doRequest(t, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"config": "llms: {big: {provider: scripted, model: big}}\nagents: {assistant: {llm: big}}"})
		if status != http.StatusBadRequest || !strings.Contains(body, "scripted/big is not among the models of the plan small") {
			t.Errorf("the same again: %d %s", status, body)
		}
	})
}
