package main

import "testing"

// TestExplainKeys checks that an explanation of an API key describes what the key may do, unless the request asks
// about other rights.
func TestExplainKeys(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, newSQLiteURL(t))
	for _, app := range []string{"acme", "globex"} {
		h.createApp(t, app, `{llms: {m: {provider: scripted}}, agents: {assistant: {llm: m}}}`)
	}
	var key apiKeyRecord
	h.requireStatus(t, 201, &key, "POST", "/admin/apps/acme/keys", testSecret, map[string]any{"name": "reader", "roles": []string{"viewer"}, "scope": "usage:read"})
	path := func(app, action string) string {
		return "/admin/apps/" + app + "/authz/explain?subject=key:" + key.ID + "&action=" + action
	}
	h.checkRequests(t, []requestCase{
		{"what its role has", "GET", path("acme", "usage:read"), testSecret, nil, 200, `"allowed":true,"rule":{"role":"viewer"`},
		{"what its scope leaves out", "GET", path("acme", "tasks:read"), testSecret, nil, 200, `"allowed":false,"rule":{"role":"viewer"`},
		{"what its role has not", "GET", path("acme", "agents:call"), testSecret, nil, 200, `"allowed":false,"rule":null`},
		{"with another role", "GET", path("acme", "agents:call") + "&roles=caller", testSecret, nil, 200, `"allowed":true,"rule":{"role":"caller"`},
		{"in another app", "GET", path("globex", "usage:read"), testSecret, nil, 404, "no such key"},
	})
}
