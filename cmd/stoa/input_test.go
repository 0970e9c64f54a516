package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// dialectRequests has a request that sends a message over HTTP for each protocol and binding. Only the JSON-RPC ones
// answer with status 200 to a call that they cannot accept.
var dialectRequests = []struct {
	name, path string
	rpc        bool
	body       func(text string) any
}{
	{"extension", "/agents/assistant", true, func(s string) any {
		return newRPCCall("message/send", newTextMessage(s))
	}},
	{"versioned", "/v1/agents/assistant/message:send", false, func(s string) any { return newA2AParams(unknownIDs, map[string]any{"text": s}) }},
	{"A2A 1.0, JSON-RPC", "/a2a/assistant", true, func(s string) any {
		return newRPCCall("SendMessage", newA2AParams(unknownIDs, map[string]any{"text": s}))
	}},
	{"A2A 1.0, REST", "/a2a/assistant/message:send", false, func(s string) any { return newA2AParams(unknownIDs, map[string]any{"text": s}) }},
	{"A2A 0.3, JSON-RPC", "/a2a/assistant", true, func(s string) any {
		return newRPCCall("message/send", newA2AParams(unknownIDs, map[string]any{"text": s}))
	}},
	{"A2A 0.3, REST", "/a2a/assistant/v0.3/v1/message:send", false, func(s string) any { return newA2AProtoParams(unknownIDs, map[string]any{"text": s}) }},
	{"root", "/?agent=assistant", true, func(s string) any {
		return newRPCCall("SendMessage", newA2AParams(unknownIDs, map[string]any{"text": s}))
	}},
	{"OpenAI", "/openai/v1/chat/completions", false, func(s string) any {
		return map[string]any{"model": "assistant", "messages": []any{map[string]any{"role": "user", "content": s}}}
	}},
	{"OpenAI responses", "/openai/v1/responses", false, func(s string) any { return map[string]any{"model": "assistant", "input": s} }},
	{"MCP", "/mcp/assistant", true, func(s string) any {
		return newRPCCall("tools/call", map[string]any{"name": "assistant", "arguments": map[string]any{"message": s}})
	}},
}

// postBody sends a body with a content type, "" = none.
func (ts *testServer) postBody(t *testing.T, path, kind string, body io.Reader) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, ts.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	return ts.sendRequest(t, req)
}

// TestContentTypes sends one message to every protocol with different content types: all accept the same ones.
func TestContentTypes(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, dbtest.NewSQLiteURL(t))
	for _, d := range dialectRequests {
		for kind, taken := range map[string]bool{
			"": true, "application/json": true, "application/json; charset=utf-8": true, "application/a2a+json": true,
			"text/plain": false, "application/x-www-form-urlencoded": false, "application/jsonp": false, "json": false,
		} {
			body, _ := json.Marshal(d.body("hello"))
			status, answer := h.postBody(t, d.path, kind, strings.NewReader(string(body)))
			want := "200 "
			if !taken && d.rpc {
				want = `200 -32600 Content-Type: must be application/json`
			} else if !taken {
				want = "400 Content-Type: must be application/json"
			}
			got := fmt.Sprint(status, " ")
			for _, sign := range []string{"-32600", "Content-Type: must be application/json"} {
				if strings.Contains(answer, sign) {
					got += sign + " "
				}
			}
			if strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Errorf("%s, %q: %s, want %s: %.300s", d.name, kind, got, want, answer)
			}
		}
	}
}

// TestTooLarge sends 64 MiB to every protocol, and 10,000 parts to those whose own tests do not.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, dbtest.NewSQLiteURL(t))
	huge := strings.Repeat(" ", 64<<20)
	for _, d := range dialectRequests {
		status, answer := h.postBody(t, d.path, "application/json", strings.NewReader(huge))
		if status != http.StatusRequestEntityTooLarge || !strings.Contains(answer, "28 MiB are allowed") {
			t.Errorf("%s: %d %.300s", d.name, status, answer)
		}
	}
	parts := slices.Repeat([]any{map[string]any{"type": "text", "text": "a"}}, 10_000)
	for path, body := range map[string]any{
		"/agents/assistant":           newRPCCall("message/send", map[string]any{"message": map[string]any{"role": "user", "parts": parts}}),
		"/openai/v1/chat/completions": map[string]any{"model": "assistant", "messages": []any{map[string]any{"role": "user", "content": parts}}},
		"/openai/v1/responses":        map[string]any{"model": "assistant", "input": []any{map[string]any{"role": "user", "content": slices.Repeat([]any{map[string]any{"type": "input_text", "text": "a"}}, 10_000)}}},
	} {
		if status, answer := h.doRequest(t, http.MethodPost, path, "", body); !strings.Contains(answer, "at most 1000 parts") {
			t.Errorf("%s: %d %.300s", path, status, answer)
		}
	}
}

// TestInternal drops a table of a serving server: every protocol reports an internal error and no detail of it.
func TestInternal(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, dbtest.NewSQLiteURL(t))
	var b db.Batch
	b.Exec(nil, `ALTER TABLE event RENAME TO elsewhere`)
	if err := h.db.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	for _, d := range dialectRequests {
		body, _ := json.Marshal(d.body("hello"))
		status, answer := h.postBody(t, d.path, "application/json", strings.NewReader(string(body)))
		want := http.StatusInternalServerError
		if d.rpc {
			want = http.StatusOK
		}
		if status != want || d.rpc && !strings.Contains(answer, `"code":-32603`) || !strings.Contains(answer, "internal error") || strings.Contains(answer, "table") {
			t.Errorf("%s: %d %.300s", d.name, status, answer)
		}
	}
	conn := h.dialGRPC(t)
	for method, message := range map[string]string{
		service10 + "SendMessage": `{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}`,
		service03 + "SendMessage": `{"request": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}`,
	} {
		if _, err := callGRPC(t, conn, "", method, message, "assistant"); err == nil || !strings.Contains(err.Error(), "code = Internal") || strings.Contains(err.Error(), "table") {
			t.Errorf("%s: %v", method, err)
		}
	}
}
