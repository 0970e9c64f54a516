package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/runtime"
	"stoa/tenancy/db/dbtest"
	grants "stoa/tenancy/grant"
)

// startMCPServer starts an MCP server whose tools echo their arguments, except one called hang. seen returns the
// headers of each request.
func startMCPServer(t *testing.T, tools ...string) (url string, seen func() []http.Header) {
	t.Helper()
	s := sdk.NewServer(&sdk.Implementation{Name: "remote", Version: "1"}, nil)
	for _, name := range tools {
		s.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				if name == "hang" {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				key, _ := req.Params.Meta["idempotencyKey"].(string)
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("%s %s by %s", name, req.Params.Arguments, key)}}}, nil
			})
	}
	headers := make(chan http.Header, 100)
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header.Clone()
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL, func() (all []http.Header) {
		for len(headers) > 0 {
			all = append(all, <-headers)
		}
		return all
	}
}

const mcpSource = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^search$"}
        then: [{call: {tool: search, arguments: {a: "1"}}}]
      - when: {tool_result: search}
        then: [{say: "{{result}}"}]
      - then: [{say: "none"}]
`

func TestMCP(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	url, seen := startMCPServer(t, "search", "fetch")
	other, _ := startMCPServer(t, "search")
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	src := mcpSource + `
tools:
  web: {url: ` + url + `, headers: {X-Key: "${KEY}"}, filter: [search]}
  same: {url: ` + other + `}
  gone: {url: ` + closed.URL + `}
  maybe: {url: ` + closed.URL + `, optional: true}
agents:
  helper: {llm: demo, tools: [web]}
  torn: {llm: demo, tools: [web, same]}
  lost: {llm: demo, tools: [web, gone]}
  calm: {llm: demo, tools: [web, maybe]}
`
	cfg := mustParse(t, src, config.Options{Lookup: func(string) (string, bool) { return "secret", true }})
	a := newAppWith(t, d, cfg, runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, DefaultApp: true, PrivateNetwork: true}, slog.New(slog.DiscardHandler))
	if got := seen(); len(got) != 0 {
		t.Errorf("building the app called the server %d times", len(got))
	}
	for _, tt := range []struct {
		agent string
		state agentsvc.State
		says  string
	}{
		{"helper", agentsvc.Completed, `search {"a":"1"} by `},
		{"calm", agentsvc.Completed, `search {"a":"1"} by `},
		{"torn", agentsvc.Failed, "search: is the name of two tools, one of tools.web and one of tools.same"},
		{"lost", agentsvc.Failed, "the tools of tools.gone are not available: the connection was refused"},
	} {
		sub := newSubmission("search")
		sub.Agent = tt.agent
		outcome, _ := runTurn(t, a, sub)
		if outcome.Status.State != tt.state || !strings.HasPrefix(outcome.Status.Message.Text(), tt.says) {
			t.Errorf("%s: %s %q, want %s %q", tt.agent, outcome.Status.State, outcome.Status.Message.Text(), tt.state, tt.says)
		}
		if tt.state == agentsvc.Completed && !strings.Contains(outcome.Status.Message.Text(), string(outcome.ID)) {
			t.Errorf("%s: the call's key %q does not name the task", tt.agent, outcome.Status.Message.Text())
		}
	}
	all := seen()
	starts := slices.DeleteFunc(slices.Clone(all), func(h http.Header) bool { return h.Get("Mcp-Session-Id") != "" })
	if len(starts) > 2 { // one request for the protocol's version, one that starts the session
		t.Errorf("%d requests stand outside the one session", len(starts))
	}
	for _, h := range all {
		if h.Get("X-Key") != "secret" || h.Get("Authorization") != "" {
			t.Errorf("the server was sent %v", h)
		}
	}
}

// TestMCPOfTenant checks that a tenant cannot use the settings that only the operator may.
func TestMCPOfTenant(t *testing.T) {
	t.Parallel()
	const agents = "\nagents: {helper: {llm: demo, tools: [x]}}\n"
	url, seen := startMCPServer(t, "search")
	cfg := mustParse(t, mcpSource+"tools: {x: {url: "+url+"}}"+agents, config.Options{Tenant: true})
	a := newAppWith(t, dbtest.NewSQLite(t), cfg, runtime.Tenant{ID: "acme", Name: "acme", Revision: 1}, slog.New(slog.DiscardHandler))
	outcome, _ := runTurn(t, a, newSubmission("hello"))
	if outcome.Status.State != agentsvc.Failed || !strings.Contains(outcome.Status.Message.Text(), "only public addresses may be called") || len(seen()) != 0 {
		t.Errorf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
	}
	cfg = mustParse(t, mcpSource+"tools: {x: {command: sh}}"+agents, config.Options{Tenant: true, Grants: grants.ParseList([]string{"stdio"})})
	_, err := runtime.Build(cfg, runtime.Tenant{ID: "acme", Name: "acme"}, runtime.Dependencies{
		DB: dbtest.NewSQLite(t), Host: runtime.Host{PublicEgress: egress.New(egress.Options{})}, Log: slog.New(slog.DiscardHandler),
	})
	if err == nil || !strings.Contains(err.Error(), "tools.x: programs run only in a sandbox") {
		t.Errorf("without a sandbox: %v", err)
	}
}

// TestMCPTransport checks that only the configured transport is used.
func TestMCPTransport(t *testing.T) {
	t.Parallel()
	newer, _ := startMCPServer(t, "search")
	s := sdk.NewServer(&sdk.Implementation{Name: "older", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "search", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "search by SSE"}}}, nil
		})
	older := httptest.NewServer(sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return s }, nil))
	t.Cleanup(func() {
		older.CloseClientConnections()
		older.Close()
	})
	for _, c := range []struct {
		tool  string
		state agentsvc.State
	}{
		{"{url: " + newer + ", transport: streamable-http}", agentsvc.Completed},
		{"{url: " + newer + ", transport: sse}", agentsvc.Failed},
		{"{url: " + older.URL + ", transport: sse}", agentsvc.Completed},
		{"{url: " + older.URL + ", transport: streamable-http}", agentsvc.Failed},
		{"{url: " + older.URL + "}", agentsvc.Completed},
	} {
		cfg := mustParse(t, mcpSource+"tools: {web: "+c.tool+"}\nagents: {helper: {llm: demo, tools: [web]}}\n", config.Options{})
		a := newAppWith(t, dbtest.NewSQLite(t), cfg, runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, PrivateNetwork: true}, slog.New(slog.DiscardHandler))
		if outcome, _ := runTurn(t, a, newSubmission("search")); outcome.Status.State != c.state || c.state == agentsvc.Completed && !strings.HasPrefix(outcome.Status.Message.Text(), "search ") {
			t.Errorf("%s: %s %q", c.tool, outcome.Status.State, outcome.Status.Message.Text())
		}
	}
}

// TestMCPEnv checks that a server's program has the configured environment and nothing of this process's own.
func TestMCPEnv(t *testing.T) {
	t.Setenv("STOA_CANARY", "not for servers")
	folder := mcpServersFolder(t)
	src := `
llms: {demo: {provider: scripted, script: [{when: {tool_result: get-env}, then: [{say: "{{result}}"}]}, {then: [{call: {tool: get-env}}]}]}}
tools: {everything: {command: "` + filepath.Join(folder, "mcp-server-everything") + `", args: [stdio], transport: stdio, env: {GREETING: hello, PATH: "` + os.Getenv("PATH") + `"}}}
agents: {helper: {llm: demo, tools: [everything]}}
`
	a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, src, config.Options{}), runtime.Tenant{ID: "default", Name: "default", Revision: 1, DefaultApp: true}, slog.New(slog.DiscardHandler))
	outcome, _ := runTurn(t, a, newSubmission("go"))
	if got := outcome.Status.Message.Text(); !strings.Contains(got, `"GREETING": "hello"`) || strings.Contains(got, "STOA_CANARY") {
		t.Errorf("%s %q", outcome.Status.State, got)
	}
}

// mcpServersFolder returns the folder of the reference servers.
func mcpServersFolder(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("STOA_TEST_MCP_SERVERS")
	if folder == "" {
		dbtest.SkipMissing(t, "without STOA_TEST_MCP_SERVERS (the folder that .ci/mcp-servers prints) the reference servers are not tested")
	}
	return folder
}

// TestExampleMCP runs the example against the reference servers.
func TestExampleMCP(t *testing.T) {
	t.Parallel()
	folder := mcpServersFolder(t)
	src, err := os.ReadFile("../../examples/mcp.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg := mustParse(t, string(src), config.Options{})
	for _, tl := range cfg.Tools { // npx would download what is installed here
		name, _, _ := strings.Cut(filepath.Base(tl.Args[1]), "@")
		tl.Command, tl.Args = filepath.Join(folder, "mcp-"+name), tl.Args[2:]
	}
	a := newAppWith(t, dbtest.NewSQLite(t), cfg, runtime.Tenant{ID: "default", Name: "default", Revision: 1, DefaultApp: true, PrivateNetwork: true}, slog.New(slog.DiscardHandler))
	for text, want := range map[string]string{
		"echo good morning":  "The server says: Echo: good morning",
		"what may you read?": "Allowed directories:",
	} {
		sub := newSubmission(text)
		sub.Agent = "assistant"
		if outcome, _ := runTurn(t, a, sub); outcome.Status.State != agentsvc.Completed || !strings.HasPrefix(outcome.Status.Message.Text(), want) {
			t.Errorf("%q: %s %q", text, outcome.Status.State, outcome.Status.Message.Text())
		}
	}
}
