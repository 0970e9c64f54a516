package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// orderedApp is a configuration whose first agent is not the first by name: its card is the app's.
const orderedApp = `# Two agents.
llms: {m: {provider: scripted}}
agents:
  zoe: {llm: m} # the default
  ada: {llm: m}
`

// TestConfigComesBack reads a configuration in each form and sends it back: it stays what it was, and so does the agent
// that stands for the app.
func TestConfigComesBack(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		h.createApp(t, "acme", orderedApp)
		dev := h.createToken(t, "acme", "dev", map[string]any{"roles": []string{"developer"}})
		requireDefault := func(after string) {
			t.Helper()
			if status, body := h.doRequest(t, "GET", "/.well-known/agent-card.json", dev, nil); status != http.StatusOK || !strings.Contains(body, "zoe") {
				t.Errorf("the app's card after %s: %d %s", after, status, body)
			}
		}
		requireDefault("its creation")
		var app struct {
			Config   json.RawMessage
			Revision int
		}
		h.requireStatus(t, http.StatusOK, &app, "GET", "/admin/apps/acme", testSecret, nil)
		h.requireStatus(t, http.StatusOK, nil, "PUT", "/admin/apps/acme", testSecret, map[string]any{"config": app.Config})
		requireDefault("a change by the operator")
		_, shown := h.doRequest(t, "GET", "/config", dev, nil)
		h.requireStatus(t, http.StatusOK, nil, "PUT", "/config", dev, shown)
		requireDefault("a change by the developer")
	})
}

// TestDeveloperSetsNoLimits checks that a developer, who may change the configuration, changes neither grants nor plan nor
// limits, whether they stand in the configuration, next to it or in the operator's own request.
func TestDeveloperSetsNoLimits(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, "sqlite://:memory:")
	h.createApp(t, "acme", orderedApp)
	h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/plans", testSecret, map[string]any{"name": "large", "weight": 9})
	dev := h.createToken(t, "acme", "dev", map[string]any{"roles": []string{"developer"}})
	_, before := h.doRequest(t, "GET", "/admin/apps/acme", testSecret, nil)
	for key, value := range map[string]string{"grants": "[private_network]", "plan": "large", "limits": "{max_parallel_runs: 100}"} {
		line := key + ": " + value + "\n"
		for _, r := range []struct {
			method, path, body string
			status             int
			want               string
		}{
			{"PUT", "/config", orderedApp + line, http.StatusBadRequest, key},
			{"PUT", "/config", `{"config": {}, "` + key + `": {}}`, http.StatusBadRequest, key},
			{"PUT", "/config?" + key + "=large", orderedApp, http.StatusBadRequest, key},
			{"PATCH", "/admin/apps/acme", line, http.StatusForbidden, ""},
			{"PUT", "/admin/apps/acme", line, http.StatusForbidden, ""},
		} {
			if status, answer := h.doRequest(t, r.method, r.path, dev, r.body); status != r.status || !strings.Contains(answer, r.want) {
				t.Errorf("%s %s with %s: %d %s, want %d and %s", r.method, r.path, r.body, status, answer, r.status, r.want)
			}
		}
	}
	for path, body := range map[string]any{
		"/admin/plans":             map[string]any{"name": "own"},
		"/admin/apps/acme/budgets": map[string]any{"name": "own", "unit": "calls", "amount": 1, "window": "total"},
	} {
		h.requireStatus(t, http.StatusForbidden, nil, "POST", path, dev, body)
	}
	if _, after := h.doRequest(t, "GET", "/admin/apps/acme", testSecret, nil); after != before {
		t.Errorf("the app was %s\nand is %s", before, after)
	}
}

// TestDryRunWarns checks that dry runs of the operator and of a developer return the warnings of stoa validate.
func TestDryRunWarns(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, "sqlite://:memory:")
	h.createApp(t, "acme", orderedApp)
	dev := h.createToken(t, "acme", "dev", map[string]any{"roles": []string{"developer"}})
	const warm = "llms:\n  m: {provider: anthropic, model: claude, api_key: sk-1, temperature: 1.5}\nagents: {a: {llm: m}}\n"
	const want = `"warnings":[{"path":"llms.m.temperature","line":2,"column":71,"message":"is more than 1, the most that anthropic takes: 1 is used"}]`
	for _, r := range []struct {
		method, path, bearer string
		body                 any
	}{
		{"POST", "/admin/apps?dry_run=true", testSecret, map[string]any{"name": "globex", "config": warm}},
		{"PATCH", "/admin/apps/acme?dry_run=true", testSecret, map[string]any{"config": warm}},
		{"PUT", "/admin/apps/acme?dry_run=true", testSecret, map[string]any{"config": warm}},
		{"PUT", "/config?dry_run=true", dev, warm},
	} {
		if status, body := h.doRequest(t, r.method, r.path, r.bearer, r.body); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s %s: %d %s", r.method, r.path, status, body)
		}
	}
}

// TestDroppedDocumentStoreWarns checks that dry runs of the operator and of a developer warn of the documents of a store that leaves the
// configuration, on each engine.
func TestDroppedDocumentStoreWarns(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		h.createApp(t, "acme", "llms: {m: {provider: scripted}}\nagents: {a: {llm: m}}\ndocument_stores: {manual: {source: {type: upload}}}\n")
		dev := h.createToken(t, "acme", "dev", map[string]any{"roles": []string{"developer"}})
		for _, id := range []string{"a.txt", "b.txt"} {
			h.requireStatus(t, http.StatusAccepted, nil, "PUT", "/v1/document-stores/manual/documents/"+id, dev, "The text of "+id)
		}
		const without = "llms: {m: {provider: scripted}}\nagents: {a: {llm: m}}\n"
		const want = `"warnings":[{"path":"document_stores.manual","line":0,"column":0,"message":"the store leaves the configuration: its 2 documents are deleted"}]`
		for _, r := range []struct {
			method, path, bearer string
			body                 any
		}{
			{"PATCH", "/admin/apps/acme?dry_run=true", testSecret, map[string]any{"config": without}},
			{"PUT", "/admin/apps/acme?dry_run=true", testSecret, map[string]any{"config": without}},
			{"PUT", "/config?dry_run=true", dev, without},
		} {
			if status, body := h.doRequest(t, r.method, r.path, r.bearer, r.body); status != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s %s: %d %s", r.method, r.path, status, body)
			}
		}
	})
}
