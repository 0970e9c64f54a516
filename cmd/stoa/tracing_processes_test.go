package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	mcp "github.com/modelcontextprotocol/go-sdk/mcp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"stoa/cmd/stoa/stoatest"
	"stoa/tenancy/db/dbtest"
)

// newTracedShop starts an MCP server that records the trace header of each call of its tool.
func newTracedShop(t *testing.T) (url string, parents func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	s := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "search", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, req.Extra.Header.Get("Traceparent"))
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "found"}}}, nil
	})
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

// TestTraceAcrossProcesses checks that a call that one process accepts and another executes is one trace, from the
// caller's span to the model, SQL and the tool's server.
func TestTraceAcrossProcesses(t *testing.T) {
	t.Parallel()
	c := &collector{}
	receiver := httptest.NewServer(c)
	t.Cleanup(receiver.Close)
	tools, parents := newTracedShop(t)
	config := filepath.Join(t.TempDir(), "stoa.yaml")
	err := os.WriteFile(config, fmt.Appendf(nil, `
llms: {m: {provider: scripted, model: demo-1, script: [{when: {tool_result: search}, then: [{say: "{{result}}"}]}, {then: [{call: {tool: search}}]}]}}
tools: {shop: {url: %q}}
agents: {assistant: {llm: m, tools: [shop]}}
`, tools), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	database := dbtest.NewPostgresURL(t)
	start := func(role string) *testServer {
		t.Helper()
		p, err := stoatest.LaunchProcess("stoa", t.TempDir(), []string{
			"OTEL_EXPORTER_OTLP_ENDPOINT=" + receiver.URL, "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_RESOURCE_ATTRIBUTES=role=" + role,
		}, "serve", "--host", "127.0.0.1", "--port", "0", "--database", database, "--config", config, "--role", role)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.SignalAndWait(syscall.SIGKILL) })
		if err := p.AwaitServing(t.Context()); err != nil {
			t.Fatal(err)
		}
		return &testServer{url: p.URL}
	}
	web := start("web")
	start("worker")
	trace := strings.Repeat("7c", 16)
	if got := web.sendTraced(t, trace, "assistant"); !strings.Contains(got, "found") {
		t.Fatalf("the answer is %s", got)
	}
	above := map[string]string{
		"enter": "POST /agents/{agent}", "admit": "POST /agents/{agent}", "submit": "POST /agents/{agent}", "run": "submit",
		"invoke_agent assistant": "run", "chat demo-1": "invoke_agent assistant", "execute_tool search": "invoke_agent assistant",
	}
	names := []string{"POST /agents/{agent}", "commit"}
	for name := range above {
		names = append(names, name)
	}
	spans := c.awaitSpans(t, trace, names...)
	byID := map[string]*tracepb.Span{}
	for _, s := range spans {
		byID[hex.EncodeToString(s.SpanId)] = s
	}
	commits := map[string]bool{} // by the name of the parent span
	for _, s := range spans {
		parent := byID[hex.EncodeToString(s.ParentSpanId)]
		switch want := above[s.Name]; {
		case s.Name == "POST /agents/{agent}":
			if got := hex.EncodeToString(s.ParentSpanId); got != "00000000000000aa" {
				t.Errorf("the request stands below %s, not the caller's span", got)
			}
		case parent == nil:
			t.Errorf("%s stands below nothing", s.Name)
		case want != "" && parent.Name != want:
			t.Errorf("%s stands below %s, not %s", s.Name, parent.Name, want)
		case s.Name == "commit":
			commits[parent.Name] = true
		}
	}
	if len(commits) < 2 {
		t.Errorf("commits stand below %v, want some of either process", commits)
	}
	if run := findSpan(spans, "run"); run.Kind != tracepb.Span_SPAN_KIND_CONSUMER {
		t.Errorf("the run's span is of the kind %v: it was worked where it came in", run.Kind)
	}
	calls := parents()
	if len(calls) != 1 {
		t.Fatalf("the tool was called with the headers %q", calls)
	}
	parts := strings.Split(calls[0], "-")
	if len(parts) != 4 || parts[1] != trace || byID[parts[2]] == nil || byID[parts[2]].Name != "execute_tool search" {
		t.Errorf("the tool's server got the trace %q, want %s below the tool's span", calls[0], trace)
	}
}
