package tenantapi_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
)

// loggedConfig is an app whose model fails once for a moment before it answers, is guarded, and calls a tool.
const loggedConfig = `
llms:
  demo:
    provider: scripted
    fallbacks: [other]
    script:
      - then: [{fail: {status: 400, message: "no"}}]
  other:
    provider: scripted
    script:
      - when: {text: "^sum$"}
        then: [{call: {tool: calc, arguments: {expression: "40 + 2"}}}]
      - then: [{say: "The sum is {{result}}"}]
tools:
  calc: {type: function, handler: calculator}
guardrails:
  rules: {input: {length: {enabled: true, max_length: 2, action: warn}}}
agents:
  assistant: {llm: demo, tools: [calc], guardrails: rules}
storage:
  checkpoint: {enabled: true}
`

// logEntry has the members of an entry that the tests look at.
type logEntry struct {
	Seq       int64
	Kind      string
	ModelCall struct {
		Model    string
		Fallback bool
		Seconds  float64
		Charge   *int64
	} `json:"model_call"`
	ToolResult struct {
		CallID string `json:"call_id"`
		Text   *string
		Failed *bool
	} `json:"tool_result"`
	Message struct {
		ToolCalls []any `json:"tool_calls"`
	}
	Status  struct{ State string }
	Finding struct{ Rule, Action string }
}

// readLog reads a page of a task's log.
func readLog(t *testing.T, h *surfacetest.Fixture, token, task, query string) (entries []logEntry, next, body string) {
	t.Helper()
	resp, body := h.Do(t, http.MethodGet, "/tasks/"+task+"/log"+query, token, nil)
	var out struct {
		Entries       []logEntry
		NextPageToken string `json:"next_page_token"`
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s (%v)", resp.StatusCode, body, err)
	}
	return out.Entries, out.NextPageToken, body
}

// listKinds returns the kinds of entries, of a status its state.
func listKinds(entries []logEntry) (kinds []string) {
	for _, e := range entries {
		if e.Kind == "status" {
			e.Kind = e.Status.State
		}
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// TestLog checks what the log of a task has, and what of it its owner and an operator see.
func TestLog(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	h.CreateApp(t, "acme", loggedConfig)
	ana := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"})
	operator := h.MintToken(t, "acme", authz.TokenSpec{Subject: "op", Roles: []string{"operator"}})
	task, _ := sendMessage(t, h, "assistant", ana, "sum")
	want := []string{"submitted", "working", "checkpoint", "finding", "model_call", "message", "tool_result", "model_call", "completed"}
	for _, reader := range []struct {
		name, token string
		readsAll    bool
	}{{"the owner", ana, false}, {"an operator", operator, true}} {
		entries, next, body := readLog(t, h, reader.token, task, "")
		if diff := cmp.Diff(want, listKinds(entries)); diff != "" || next != "" {
			t.Errorf("%s: next %q (-want +got)\n%s\n%s", reader.name, next, diff, body)
			continue
		}
		call, result := entries[4].ModelCall, entries[6].ToolResult
		if call.Model != "scripted" || !call.Fallback || call.Seconds <= 0 || len(entries[5].Message.ToolCalls) != 1 {
			t.Errorf("%s: %s", reader.name, body)
		}
		if found := entries[3].Finding; found.Rule != "length" || found.Action != "warn" {
			t.Errorf("%s: %s", reader.name, body)
		}
		if seen := result.Text != nil && *result.Text == "42" && result.Failed != nil; seen != reader.readsAll || !reader.readsAll && (result.Text != nil || result.Failed != nil) {
			t.Errorf("%s sees the result: %v: %s", reader.name, seen, body)
		}
	}
	// Page by page it is the same log.
	var kinds []string
	for next := "0"; next != ""; {
		var page []logEntry
		page, next, _ = readLog(t, h, operator, task, "?page_size=3&page_token="+next)
		if len(page) > 3 {
			t.Errorf("a page has %d entries", len(page))
		}
		kinds = append(kinds, listKinds(page)...)
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("page by page (-want +got)\n%s", diff)
	}
	for query, field := range map[string]string{"?after=x": "after", "?after=-1": "after", "?page_size=1001": "page_size", "?page_size=0": "page_size", "?page_token=x": "page_token"} {
		if resp, body := h.Do(t, http.MethodGet, "/tasks/"+task+"/log"+query, operator, nil); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, field) {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
	}
	if entries, _, body := readLog(t, h, operator, task, "?after=5"); len(entries) == 0 || entries[0].Seq != 6 {
		t.Errorf("after 5: %s", body)
	}
	bob := h.MintToken(t, "acme", authz.TokenSpec{Subject: "bob"})
	if resp, body := h.Do(t, http.MethodGet, "/tasks/"+task+"/log", bob, nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("another user: %d %s", resp.StatusCode, body)
	}
}

// TestLogCharges checks that the charge of a model call is shown to callers with usage:read alone.
func TestLogCharges(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	h.CreateApp(t, "acme", loggedConfig)
	resp, body := h.Do(t, http.MethodPost, "/admin/prices", surfacetest.Secret,
		`{"version": "v1", "currency": "USD", "effective_from": "2026-01-01", "items": [{"kind": "charge", "meter": "model_calls", "provider": "scripted", "model": "*", "per": 1, "amount": 2000000000},
			{"kind": "cost", "meter": "model_calls", "provider": "scripted", "model": "*", "per": 1, "amount": 1000000000}]}`)
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	ana := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"})
	operator := h.MintToken(t, "acme", authz.TokenSpec{Subject: "op", Roles: []string{"operator"}})
	task, _ := sendMessage(t, h, "assistant", ana, "sum")
	for token, charged := range map[string]bool{ana: false, operator: true} {
		entries, _, body := readLog(t, h, token, task, "")
		at := slices.IndexFunc(entries, func(e logEntry) bool { return e.Kind == "model_call" })
		if charge := entries[at].ModelCall.Charge; (charge != nil && *charge == 2_000_000_000) != charged || strings.Contains(body, "cost") {
			t.Errorf("charge %v, want one: %v: %s", charge, charged, body)
		}
	}
}
