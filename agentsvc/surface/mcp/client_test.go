package mcp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"stoa/agentsvc/config"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
	"stoa/tenancy/db/dbtest"
)

// connectClient returns a session of the official Go client with an agent's server, as a user of an app.
func connectClient(t *testing.T, h *surfacetest.Fixture, app, sub, agent string, o *sdk.ClientOptions) (*sdk.ClientSession, error) {
	t.Helper()
	return connectRevision(t, h, app, sub, agent, "", o)
}

// connectRevision is connectClient for a protocol revision, "" = the newest.
func connectRevision(t *testing.T, h *surfacetest.Fixture, app, sub, agent, revision string, o *sdk.ClientOptions) (*sdk.ClientSession, error) {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o)
	at := &sdk.StreamableClientTransport{
		Endpoint: h.URL + "/mcp/" + agent, HTTPClient: &http.Client{Transport: surfacetest.BearerTransport(h.MintToken(t, app, authz.TokenSpec{Subject: sub}))}, MaxRetries: -1,
	}
	s, err := c.Connect(t.Context(), at, &sdk.ClientSessionOptions{ProtocolVersion: revision})
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
	}
	return s, err
}

type taskOutcome struct {
	TaskID    string `json:"task_id"`
	ContextID string `json:"context_id"`
	State     string `json:"state"`
	Text      string `json:"text"`
}

// callTool calls an agent's tool and returns the result with its decoded structured content.
func callTool(t *testing.T, s *sdk.ClientSession, agent string, args map[string]any) (*sdk.CallToolResult, taskOutcome) {
	t.Helper()
	res, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: agent, Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	var out taskOutcome
	raw, _ := json.Marshal(res.StructuredContent)
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return res, out
}

func resultText(res *sdk.CallToolResult) string {
	var texts []string
	for _, c := range res.Content {
		if text, ok := c.(*sdk.TextContent); ok {
			texts = append(texts, text.Text)
		}
	}
	return strings.Join(texts, "|")
}

// TestVersions checks that client and server agree on the newest revision that both support.
func TestVersions(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for wanted, want := range map[string]string{"": "2026-07-28", "2026-07-28": "2026-07-28", "2025-11-25": "2025-11-25", "2025-06-18": "2025-06-18", "2024-11-05": "2025-11-25"} {
		s, err := connectRevision(t, h, "acme", "ana", "assistant", wanted, nil)
		if err != nil {
			t.Errorf("a client of %q: %v", wanted, err)
			continue
		}
		if got := s.InitializeResult().ProtocolVersion; got != want {
			t.Errorf("a client of %q agrees on %s, want %s", wanted, got, want)
		}
		if res, _ := callTool(t, s, "assistant", map[string]any{"message": "hello"}); resultText(res) != "You said: hello" {
			t.Errorf("a client of %q is answered %q", wanted, resultText(res))
		}
	}
}

// TestClient lists the tool, calls it and continues the conversation with the official client, with and without a
// handshake.
func TestClient(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			checkRevision(t, h, revision)
		})
	}
}

func checkRevision(t *testing.T, h *surfacetest.Fixture, revision string) {
	s, err := connectRevision(t, h, "acme", "ana", "assistant", revision, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context(), nil); (err == nil) != (revision < "2026-07-28") { // the newest revision has no ping
		t.Error(err)
	}
	if at := s.InitializeResult(); at.ServerInfo == nil || at.ServerInfo.Name != "assistant" || at.Instructions != "Answers questions." {
		t.Errorf("the server says that it is %+v", at)
	}
	tools, err := s.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "assistant" || tools.Tools[0].Description != "Answers questions." {
		t.Fatalf("%v: %v", tools, err)
	}
	tests := []struct {
		message, text, state string
		isError              bool
	}{
		{"hello", "You said: hello", "completed", false},
		{"weather Rome", "It is 21 degrees.", "completed", false},
		{"ask", "Which city?", "input_required", false},
		{"file", "Here it is.|hello", "completed", false},
		{"refuse", "I may not do that.", "rejected", true},
	}
	for _, tt := range tests {
		res, out := callTool(t, s, "assistant", map[string]any{"message": tt.message})
		if resultText(res) != tt.text || out.State != tt.state || res.IsError != tt.isError || out.TaskID == "" {
			t.Errorf("%s: %q %+v, error %v", tt.message, resultText(res), out, res.IsError)
		}
		if tt.state != "input_required" {
			continue
		}
		if repeated, next := callTool(t, s, "assistant", map[string]any{"message": "Rome", "task_id": out.TaskID}); next.TaskID != out.TaskID || resultText(repeated) != "You said: Rome" {
			t.Errorf("the answer to the question: %q %+v", resultText(repeated), next)
		}
		if _, next := callTool(t, s, "assistant", map[string]any{"message": "hello", "context_id": out.ContextID}); next.ContextID != out.ContextID || next.TaskID == out.TaskID {
			t.Errorf("the next message of the conversation: %+v", next)
		}
	}
	for name, args := range map[string]map[string]any{
		"no message": {}, "unknown task": {"message": "hello", "task_id": "01a00000-0000-7000-8000-000000000000"}, "unknown argument": {"message": "hello", "more": 1},
	} {
		if res, _ := callTool(t, s, "assistant", args); !res.IsError || resultText(res) == "" {
			t.Errorf("%s: %q, error %v", name, resultText(res), res.IsError)
		}
	}
	if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "clerk", Arguments: map[string]any{"message": "hello"}}); err == nil {
		t.Error("an agent's server has another's tool")
	}
}

// TestClientElsewhere checks that another user and a user of another app cannot continue a task, and that private
// and unknown agents have no server.
func TestClientElsewhere(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	s, err := connectClient(t, h, "acme", "ana", "assistant", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, out := callTool(t, s, "assistant", map[string]any{"message": "ask"})
	for _, who := range [][2]string{{"acme", "eve"}, {"globex", "ana"}} {
		other, err := connectClient(t, h, who[0], who[1], "assistant", nil)
		if err != nil {
			t.Fatal(err)
		}
		if res, _ := callTool(t, other, "assistant", map[string]any{"message": "mine now", "task_id": out.TaskID}); !res.IsError || resultText(res) != "not found" {
			t.Errorf("%s continues the task of ana: %q", who, resultText(res))
		}
	}
	for _, agent := range []string{"hidden", "nobody"} {
		if _, err := connectClient(t, h, "acme", "ana", agent, nil); err == nil {
			t.Errorf("there is a server of %s", agent)
		}
	}
}

// TestClientProgress checks that progress notifications carry the agent's messages.
func TestClientProgress(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	var mu sync.Mutex
	var received []string
	last := 0.0
	s, err := connectClient(t, h, "acme", "ana", "assistant", &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			mu.Lock()
			defer mu.Unlock()
			if received = append(received, r.Params.Message); r.Params.Progress <= last {
				t.Errorf("progress went from %v to %v", last, r.Params.Progress)
			}
			last = r.Params.Progress
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &sdk.CallToolParams{Name: "assistant", Arguments: map[string]any{"message": "weather Rome"}}
	p.SetProgressToken("mine")
	if _, err := s.CallTool(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	dbtest.WaitUntil(t, "all progress was told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(received) == 3
	})
	if diff := cmp.Diff([]string{"submitted", "working", "Let me see."}, received); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestClientCancels checks that a cancelled call cancels its task: by a notification, or in the newest revision by
// closing the connection.
func TestClientCancels(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		s, err := connectRevision(t, h, "acme", "ana", "assistant", revision, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		clientDone := make(chan error)
		go func() {
			_, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "assistant", Arguments: map[string]any{"message": "never"}})
			clientDone <- err
		}()
		dbtest.WaitUntil(t, "the task has begun", func() bool { return h.Workers.Inflight() == 1 })
		giveUp()
		if err := <-clientDone; err == nil {
			t.Errorf("%s: a call that was given up has a result", revision)
		}
		dbtest.WaitUntil(t, "the task has ended", func() bool { return h.Workers.Inflight() == 0 })
	}
}

// TestJavaScript runs the official client for JavaScript.
func TestJavaScript(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("STOA_TEST_CLIENT_SDKS")
	if folder == "" {
		dbtest.SkipMissing(t, "without STOA_TEST_CLIENT_SDKS (the folder that .ci/client-sdks prints) the official client for JavaScript is not tested")
	}
	h := newFixture(t)
	cmd := exec.CommandContext(t.Context(), "node", "testdata/client.mjs", folder, h.URL+"/mcp/assistant",
		h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"}), h.MintToken(t, "acme", authz.TokenSpec{Subject: "eve"}))
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	want := map[string]any{
		"server": "assistant", "tools": []any{"assistant"},
		"answer":   []any{"It is 21 degrees.", "completed", false},
		"progress": []any{"submitted", "working", "Let me see."},
		"ask":      []any{"Which city?", "input_required", false},
		"goesOn":   []any{"You said: Rome", "completed", false},
		"stranger": []any{"not found", nil, true},
		"gone":     "AbortError", "denied": true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the client saw (-want +got):\n%s", diff)
	}
	dbtest.WaitUntil(t, "the task has ended", func() bool { return h.Workers.Inflight() == 0 })
}

// TestCancelIsTheOwners checks that another user cannot cancel a call with the session ID and the request ID.
func TestCancelIsTheOwners(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	post := func(app, sub string, body string) *http.Response {
		return h.OpenResponse(t, http.MethodPost, "/mcp/assistant", h.MintToken(t, app, authz.TokenSpec{Subject: sub}), body,
			"MCP-Session-Id", "known", "Accept", "application/json, text/event-stream")
	}
	call := post("acme", "ana", `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "assistant", "arguments": {"message": "never"}}}`)
	defer call.Body.Close()
	dbtest.WaitUntil(t, "the task has begun", func() bool { return h.Workers.Inflight() == 1 })
	for _, who := range [][2]string{{"acme", "eve"}, {"globex", "ana"}, {"acme", "ana"}} {
		if h.Workers.Inflight() != 1 {
			t.Fatal("another caller has cancelled the call")
		}
		resp := post(who[0], who[1], `{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}`)
		if resp.Body.Close(); resp.StatusCode != http.StatusAccepted {
			t.Errorf("%s: %d", who, resp.StatusCode)
		}
	}
	next := surfacetest.ReadEvents(t, call)
	if ev, ok := next(); !ok || !strings.Contains(ev.Text, `"state":"cancelled"`) {
		t.Errorf("the call ends with %s", ev.Text)
	}
}

// TestOrigins checks that requests from pages of origins that are not allowed are refused, also without a preflight
// request.
func TestOrigins(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{
		Default: surfacetest.Script, Surface: surface.Options{Browsers: surface.Browsers{CORS: config.CORS{AllowedOrigins: []string{"https://good.test"}}}},
	}, newRoutes)
	for origin, want := range map[string]int{"": 200, "https://good.test": 200, "https://evil.test": 403, "null": 403} {
		resp, body := h.Do(t, http.MethodPost, "/mcp/assistant", "", `{"jsonrpc": "2.0", "id": 1, "method": "ping"}`, "Origin", origin)
		if resp.StatusCode != want {
			t.Errorf("a page of %q: %d %s", origin, resp.StatusCode, body)
		}
	}
}
