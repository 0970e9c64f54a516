package runtime_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/llm/llmtest"
	"stoa/agentsvc/runtime"
	"stoa/tenancy/db/dbtest"
)

// startSlowProxy starts a proxy that delays each response of a server, or returns when the caller does.
func startSlowProxy(t *testing.T, server string, after time.Duration) string {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	next := httputil.NewSingleHostReverseProxy(to)
	next.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	next.FlushInterval = -1
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(after):
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}

const callOnce = `
llms:
  default:
    provider: scripted
    script:
      - when: {tool_result: TOOL}
        then: [{say: "{{result}}"}]
      - then: [{call: {tool: TOOL, arguments: {ARGUMENTS}}}]
tools:
  t: {SETTINGS}
agents:
  helper: {tools: [t]}
`

// TestMaxExecutionTime checks that max_execution_time has the same meaning for every type of tool.
func TestMaxExecutionTime(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Fatal(err)
	}
	server, _ := startMCPServer(t, "hang")
	for name, c := range map[string]struct{ tool, arguments, settings, want string }{
		"mcp":      {"hang", "", "url: URL", "hang did not end within 300ms and was stopped"},
		"function": {"t", "url: URL", "type: function, handler: web_fetch", "t did not end within 300ms and was stopped"},
		"command": {"t", "command: sleep 60", "type: command, working_directory: " + t.TempDir() + ", allowed_commands: [sleep], require_approval: false",
			"t: stopped after 300ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := server
			if c.tool == "t" {
				url = startSlowProxy(t, server, time.Minute)
			}
			source := strings.NewReplacer("TOOL", c.tool, "ARGUMENTS", c.arguments, "SETTINGS", c.settings+", max_execution_time: 300ms").Replace(callOnce)
			a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, strings.ReplaceAll(source, "URL", url), config.Options{}),
				runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, DefaultApp: true, PrivateNetwork: true}, slog.New(slog.DiscardHandler), withSandbox(t))
			began := time.Now()
			outcome, _ := runTurn(t, a, newSubmission("go"))
			if text := outcome.Status.Message.Text(); outcome.Status.State != agentsvc.Completed || !strings.HasPrefix(text, c.want) {
				t.Errorf("%s %q, want %q", outcome.Status.State, text, c.want)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// TestSlowServers checks that slow models, tools and agents get more time than the usual wait for a response's header,
// and that other requests do not.
func TestSlowServers(t *testing.T) {
	t.Parallel()
	const usual, late = 100 * time.Millisecond, 400 * time.Millisecond
	model := startSlowProxy(t, llmtest.NewServer(t, []llmtest.Reply{{UserText: "go", Pieces: []string{"Hello."}}}).URL, late)
	tools, _ := startMCPServer(t, "look")
	tools = startSlowProxy(t, tools, late)
	translator := startSlowProxy(t, startTranslator(t), late)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a page")) }))
	t.Cleanup(page.Close)
	fetch := startSlowProxy(t, page.URL, late)
	simple := func(settings string) string {
		return "llms: {default: {" + settings + ", base_url: " + model + "}}\nagents: {helper: {}}\n"
	}
	tool := func(name, arguments, settings string) string {
		return strings.NewReplacer("TOOL", name, "ARGUMENTS", arguments, "SETTINGS", settings).Replace(callOnce)
	}
	for name, c := range map[string]struct {
		source string
		says   string
	}{
		"ollama":    {simple("provider: ollama"), "Hello."},
		"anthropic": {simple("provider: anthropic, api_key: " + llmtest.Key), "Hello."},
		"openai":    {strings.ReplaceAll(simple("provider: openai, api_key: "+llmtest.Key), model, model+"/v1"), "Hello."},
		"gemini":    {simple("provider: gemini, api_key: " + llmtest.Key), "Hello."},
		"mcp":       {tool("look", "", "url: "+tools+", max_execution_time: 1m"), "look {} by "},
		"function":  {tool("t", "url: "+fetch, "type: function, handler: web_fetch, max_execution_time: 1m"), "a page"},
		"hurried":   {tool("t", "url: "+fetch, "type: function, handler: web_fetch, max_execution_time: 50ms"), "t did not end within 50ms"},
		"remote":    {"agents: {helper: {type: remote, url: " + translator + ", timeout: 1m}}\n", " : go"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, c.source, config.Options{}), runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, PrivateNetwork: true},
				slog.New(slog.DiscardHandler), func(h *runtime.Dependencies) {
					h.PrivateEgress = egress.New(egress.Options{PrivateNetwork: true, HeaderTimeout: usual})
				})
			outcome, _ := runTurn(t, a, newSubmission("go"))
			if text := outcome.Status.Message.Text(); outcome.Status.State != agentsvc.Completed || !strings.HasPrefix(text, c.says) {
				t.Errorf("%s %q, want %q", outcome.Status.State, text, c.says)
			}
		})
	}
}
