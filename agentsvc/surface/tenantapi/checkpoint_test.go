package tenantapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
	"stoa/tenancy/audit"
	"stoa/tenancy/db/dbtest"
)

// breakingConfig is an app whose agents call a calculator, report usage, and fail.
const breakingConfig = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^sum$"}
        then: [{call: {tool: calc, arguments: {expression: "40 + 2"}}}]
        usage: {input_tokens: 30, output_tokens: 12}
      - then: [{fail: {status: 400, message: "no"}}]
tools:
  calc: {type: function, handler: calculator}
agents:
  assistant: {llm: demo, tools: [calc]}
  guarded: {llm: demo, tools: [calc], security: {schemes: {key: {type: apiKey, name: X-Key, in: header}}, require: [key]}}
storage:
  checkpoint: {enabled: true, after_tools: true}
rate_limiting: {enabled: true, scope: user, limits: [{type: %s, window: month, limit: %d}]}
`

// newBreakingFixture serves breakingConfig with a limit per user.
func newBreakingFixture(t *testing.T, unit string, limit int) *surfacetest.Fixture {
	t.Helper()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	h.CreateApp(t, "acme", fmt.Sprintf(breakingConfig, unit, limit))
	return h
}

// sendMessage sends a message to an agent of acme and returns the ID of the task, if one was started.
func sendMessage(t *testing.T, h *surfacetest.Fixture, agent, token, text string, headers ...string) (task string, resp *http.Response) {
	t.Helper()
	resp, body := h.Do(t, http.MethodPost, "/agents/"+agent, token,
		`{"jsonrpc": "2.0", "id": 1, "method": "message:send", "params": {"message": {"role": "user", "parts": [{"type": "text", "text": "`+text+`"}]}}}`, headers...)
	var out struct {
		Result struct {
			TaskID string `json:"task_id"`
		}
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil || resp.StatusCode == http.StatusOK && out.Result.TaskID == "" {
		t.Fatalf("%s (%v)", body, err)
	}
	return out.Result.TaskID, resp
}

// restoreCheckpoint restores a task from a checkpoint.
func restoreCheckpoint(t *testing.T, h *surfacetest.Fixture, task, checkpoint, token string, headers ...string) (resp *http.Response, body string) {
	t.Helper()
	return h.Do(t, http.MethodPost, "/tasks/"+task+"/checkpoints/"+checkpoint+":restore", token, nil, headers...)
}

// TestRestoreIsACall checks that a restore counts against the limits of the task's owner, also if another caller
// requests it, and is refused like a message.
func TestRestoreIsACall(t *testing.T) {
	t.Parallel()
	h := newBreakingFixture(t, "count", 3)
	ana, bob := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"}), h.MintToken(t, "acme", authz.TokenSpec{Subject: "bob"})
	op := h.MintToken(t, "acme", authz.TokenSpec{Subject: "op", Roles: []string{"operator"}})
	task, _ := sendMessage(t, h, "assistant", ana, "sum")
	for i, step := range []struct {
		task, token string
		status      int
		remaining   string
	}{
		{task, ana, http.StatusCreated, "1"},
		{task, bob, http.StatusNotFound, ""}, // the task belongs to another user
		{"nosuch", ana, http.StatusNotFound, ""},
		{task, op, http.StatusCreated, "0"},
		{task, ana, http.StatusTooManyRequests, "0"},
		{task, op, http.StatusTooManyRequests, "0"},
	} {
		resp, body := restoreCheckpoint(t, h, step.task, "7", step.token)
		if remaining := resp.Header.Get("X-RateLimit-Remaining"); resp.StatusCode != step.status || remaining != step.remaining {
			t.Errorf("step %d: %d with %q left, want %d with %q: %s", i, resp.StatusCode, remaining, step.status, step.remaining, body)
		}
		if limited := step.status == http.StatusTooManyRequests; limited != strings.Contains(body, `"rule":"user-count-month"`) {
			t.Errorf("step %d: %s", i, body)
		}
	}
	if _, resp := sendMessage(t, h, "assistant", ana, "sum"); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a message is answered %d", resp.StatusCode)
	}
}

// TestRestoreReserves checks that a restore reserves tokens, which are returned if it fails and otherwise settled
// when its run ends.
func TestRestoreReserves(t *testing.T) {
	t.Parallel()
	h := newBreakingFixture(t, "token", 1000)
	ana := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"})
	task, _ := sendMessage(t, h, "assistant", ana, "sum")
	waitReleased := func(what string) { // a message that exceeds the limit reports what is left
		t.Helper()
		dbtest.WaitUntil(t, what, func() bool {
			_, resp := sendMessage(t, h, "assistant", ana, strings.Repeat("much ", 800))
			return resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("X-RateLimit-Remaining") == "958"
		})
	}
	waitReleased("what a message has used is counted")
	for _, step := range []struct {
		checkpoint string
		status     int
	}{{"7", http.StatusCreated}, {"6", http.StatusNotFound}, {"7", http.StatusCreated}} {
		resp, body := restoreCheckpoint(t, h, task, step.checkpoint, ana)
		if remaining := resp.Header.Get("X-RateLimit-Remaining"); resp.StatusCode != step.status || remaining != "916" {
			t.Errorf("from %s: %d with %q left, want %d with 916: %s", step.checkpoint, resp.StatusCode, remaining, step.status, body)
		}
		var restored struct {
			TaskID string `json:"task_id"`
		}
		if err := json.Unmarshal([]byte(body), &restored); err != nil {
			t.Fatal(err)
		}
		dbtest.WaitUntil(t, "the restored task fails", func() bool {
			_, failed := h.Do(t, http.MethodGet, "/tasks?status=failed", ana, nil)
			return strings.Contains(failed, restored.TaskID)
		})
		waitReleased("what a restore from " + step.checkpoint + " holds is given back")
	}
}

// TestRestoreNeedsTheAgentsKey checks that a caller without the agent's own credential cannot restore a task of it.
func TestRestoreNeedsTheAgentsKey(t *testing.T) {
	t.Parallel()
	h := newBreakingFixture(t, "count", 100)
	app, err := h.Apps.LoadApp(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	key, _, _, err := h.Keys.CreateKey(t.Context(), audit.Actor{Name: "test"}, &app, authz.APIKeySpec{Name: "k"})
	if err != nil {
		t.Fatal(err)
	}
	ana, bob := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"}), h.MintToken(t, "acme", authz.TokenSpec{Subject: "bob"})
	op := h.MintToken(t, "acme", authz.TokenSpec{Subject: "op", Roles: []string{"operator"}})
	task, resp := sendMessage(t, h, "guarded", ana, "sum", "X-Key", key)
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	for i, step := range []struct {
		token   string
		headers []string
		status  int
	}{
		{ana, nil, http.StatusUnauthorized},
		{ana, []string{"X-Key", "wrong"}, http.StatusUnauthorized},
		{op, nil, http.StatusUnauthorized},
		{bob, nil, http.StatusNotFound}, // the task belongs to another user
		{ana, []string{"X-Key", key}, http.StatusCreated},
	} {
		if resp, body := restoreCheckpoint(t, h, task, "7", step.token, step.headers...); resp.StatusCode != step.status {
			t.Errorf("step %d: %d, want %d: %s", i, resp.StatusCode, step.status, body)
		}
	}
}
