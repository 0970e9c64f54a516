package admin_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"stoa/agentsvc/surface/surfacetest"
)

// TestNamesThatAreNot checks that limits, budgets and keys about things that the app does not have are refused with
// a list of what it has. A limit or budget of an agent that a later configuration removes stays.
func TestNamesThatAreNot(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	const config = "llms: {m: {provider: scripted}}\nembedders: {e: {provider: openai, model: words, api_key: x}}\nagents: {clerk: {llm: m}, cook: {llm: m}}"
	sendAdmin := func(want int, says, method, path string, body any) string {
		t.Helper()
		resp, text := h.Do(t, method, path, surfacetest.Secret, body)
		if resp.StatusCode != want || !strings.Contains(text, says) {
			t.Errorf("%s %s %v: %d, want %d with %q: %s", method, path, body, resp.StatusCode, want, says, text)
		}
		return text
	}
	type m = map[string]any
	rates := func(agents ...string) m {
		var list []m
		for _, a := range agents {
			list = append(list, m{"per": "agent", "agent": a, "type": "count", "window": "day", "limit": 9})
		}
		return m{"rate": list}
	}
	const there = "there are clerk, cook"
	sendAdmin(400, there, http.MethodPost, "/admin/apps", m{"name": "acme", "config": config, "limits": rates("cok")})
	sendAdmin(201, "", http.MethodPost, "/admin/apps", m{"name": "acme", "config": config, "limits": rates("cook")})
	sendAdmin(400, "limits.rate[1].agent: there is no agent \\\"cok\\\"", http.MethodPatch, "/admin/apps/acme", m{"limits": rates("cook", "cok")})
	sendAdmin(400, there, http.MethodPost, "/admin/apps/acme/keys", m{"name": "k", "scope": "tasks:read agents:call:cok"})
	var key struct{ ID string }
	if err := json.Unmarshal([]byte(sendAdmin(201, "", http.MethodPost, "/admin/apps/acme/keys", m{"name": "k", "scope": "agents:call:cook"})), &key); err != nil {
		t.Fatal(err)
	}

	budget := func(want int, says, app string, scope m) {
		t.Helper()
		sendAdmin(want, says, http.MethodPost, "/admin/apps/"+app+"/budgets", m{"name": "cap", "scope": scope, "unit": "calls", "amount": 5, "window": "day"})
	}
	budget(400, there, "acme", m{"agent": "cok"})
	budget(400, "scope.key", "acme", m{"key": "nosuch"})
	budget(400, "there are openai/words, scripted/scripted", "acme", m{"model": "gtp-4*"})
	budget(400, "there are openai/words, scripted/scripted", "acme", m{"model": "word"})
	budget(201, "", "acme", m{"agent": "cook", "key": key.ID, "model": "script*"})
	sendAdmin(201, "", http.MethodPost, "/admin/apps/acme/budgets", m{"name": "embeddings", "scope": m{"model": "words"}, "unit": "tokens", "amount": 5, "window": "day"})
	sendAdmin(201, "", http.MethodPost, "/admin/apps", m{"name": "globex", "config": config})
	budget(400, "scope.key", "globex", m{"key": key.ID})
	sendAdmin(400, "scope.key", http.MethodPost, "/admin/budgets", m{"name": "all", "scope": m{"key": "nosuch"}, "unit": "calls", "amount": 5, "window": "day"})

	sendAdmin(200, "", http.MethodPatch, "/admin/apps/acme", m{"config": strings.Replace(config, ", cook: {llm: m}", "", 1)})
	sendAdmin(200, `"agent":"cook"`, http.MethodPatch, "/admin/apps/acme", m{"limits": rates("clerk", "cook")})
}
