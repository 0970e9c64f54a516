package main

import (
	"net/http"
	"testing"

	"stoa/tenancy/db/dbtest"
)

// TestRolesEverywhere changes roles at one process: within two seconds tokens with these roles have the new rights at
// another.
func TestRolesEverywhere(t *testing.T) {
	t.Parallel()
	database := dbtest.NewPostgresURL(t)
	one, two := startProcess(t, t.TempDir(), "--database", database), startProcess(t, t.TempDir(), "--database", database)
	one.createApp(t, "acme", `
llms: {m: {provider: scripted}}
agents: {assistant: {llm: m}, helper: {llm: m}}
`)
	role := func(method, path string, status int, scopes ...string) {
		t.Helper()
		body := map[string]any{"scopes": scopes}
		if method == "POST" {
			body["name"] = "desk"
		}
		one.requireStatus(t, status, nil, method, "/admin/apps/acme/roles"+path, testSecret, body)
	}
	role("POST", "", http.StatusCreated, "agents:call:helper")
	token := one.createToken(t, "acme", "ana", map[string]any{"roles": []string{"desk"}})
	callStatus := func(p *process, agent string) int {
		status, _ := p.doRequest(t, "POST", "/agents/"+agent, token, newRPCCall("message:send", newTextMessage("hi")))
		return status
	}
	becomes := func(what, agent string, status int) {
		t.Helper()
		if got := callStatus(one, agent); got != status { // the process that changed it applies it at once
			t.Errorf("%s: %d where it was changed, want %d", what, got, status)
		}
		dbtest.WaitUntil(t, what+" at the other process", func() bool { return callStatus(two, agent) == status })
	}
	becomes("the role may call the helper", "helper", http.StatusOK)
	becomes("the role may not call the assistant", "assistant", http.StatusForbidden)
	role("PUT", "/desk", http.StatusOK, "agents:call:assistant")
	becomes("the role may call the assistant", "assistant", http.StatusOK)
	becomes("the role may no longer call the helper", "helper", http.StatusForbidden)
	role("DELETE", "/desk", http.StatusNoContent)
	becomes("the role is gone", "assistant", http.StatusForbidden)
}
