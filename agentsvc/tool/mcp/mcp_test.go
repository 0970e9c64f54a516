package mcp_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/sandbox"
	"stoa/agentsvc/tool"
	"stoa/agentsvc/tool/mcp"
)

// TestMain becomes a server's program if a test started this binary as one.
func TestMain(m *testing.M) {
	sandbox.RunHelper(os.Getenv(sandbox.HelperVariable))
	if act := os.Getenv("MCP_TEST_PROGRAM"); act != "" {
		runTestProgram(act)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// newShopServer returns a server with a few tools.
func newShopServer() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "shop", Version: "1"}, nil)
	addTool(s, "echo", "Says it again.", func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return textResult(string(req.Params.Arguments)), nil
	})
	addTool(s, "meta", "Tells what came with the call.", func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		key, _ := req.Params.Meta["idempotencyKey"].(string)
		return textResult(key), nil
	})
	return s
}

func textResult(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

func addTool(s *sdk.Server, name, description string, h sdk.ToolHandler) {
	s.AddTool(&sdk.Tool{Name: name, Description: description, InputSchema: json.RawMessage(`{"type":"object"}`)}, h)
}

// newLocalClient returns a client that may call this machine.
func newLocalClient(t *testing.T) *http.Client {
	t.Helper()
	c := egress.New(egress.Options{PrivateNetwork: true})
	t.Cleanup(c.Close)
	return c.HTTP()
}

// startServer serves h until the test ends, and then closes all connections.
func startServer(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv
}

// newStreamableHandler serves s over streamable HTTP. All sessions of s end with the test, so parallel tests share none.
func newStreamableHandler(t *testing.T, s *sdk.Server, opts ...*sdk.StreamableHTTPOptions) http.Handler {
	t.Helper()
	t.Cleanup(func() {
		for session := range s.Sessions() {
			_ = session.Close()
		}
	})
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, append(opts, nil)[0])
}

// newSource returns a server that is closed when the test ends.
func newSource(t *testing.T, o mcp.Options) *mcp.Server {
	t.Helper()
	if o.Name == "" {
		o.Name = "shop"
	}
	if o.HTTP == nil && o.URL != "" {
		o.HTTP = newLocalClient(t)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := mcp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// toolsByName returns the server's tools by name.
func toolsByName(t *testing.T, s *mcp.Server) map[string]tool.Tool {
	t.Helper()
	list, err := s.ListTools(t.Context(), agentsvc.SessionKey{})
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]tool.Tool{}
	for _, tl := range list {
		named[tl.Spec().Name] = tl
	}
	return named
}

// callTool calls a tool and returns the text that the model would read.
func callTool(t *testing.T, tl tool.Tool, arguments string) string {
	t.Helper()
	if tl == nil {
		t.Fatal("there is no such tool")
	}
	text, err := tl.Call(t.Context(), tool.Call{Step: "task/call", Arguments: json.RawMessage(arguments)})
	if err != nil {
		return "error: " + err.Error()
	}
	return text
}

// programOptions returns options that start this test binary as a server's program.
func programOptions(t *testing.T, act string) mcp.Options {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return mcp.Options{Command: exe, Env: map[string]string{"MCP_TEST_PROGRAM": act, "MCP_TEST_FOLDER": t.TempDir()}}
}

// logBuffer collects log records.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestTransports(t *testing.T) {
	t.Parallel()
	s := newShopServer()
	start := func(h http.Handler) *httptest.Server {
		return startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.UserAgent() != egress.UserAgent {
				t.Errorf("%s with the User-Agent %q", r.Method, r.UserAgent())
			}
			h.ServeHTTP(w, r)
		}))
	}
	modern := start(newStreamableHandler(t, s))
	old := start(sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return s }, nil))
	at := func(transport mcp.Transport, url string) mcp.Options {
		return mcp.Options{Transport: transport, URL: url}
	}
	for name, o := range map[string]mcp.Options{
		"streamable HTTP":           at(mcp.StreamableHTTP, modern.URL),
		"streamable HTTP, detected": at("", modern.URL),
		"SSE":                       at(mcp.SSE, old.URL),
		"SSE, detected":             at("", old.URL),
		"SSE, detected by its path": at("", old.URL+"/sse"),
		"stdio":                     programOptions(t, "shop"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := newSource(t, o)
			have := toolsByName(t, src)
			if got := callTool(t, have["echo"], `{"a":1}`); got != `{"a":1}` {
				t.Errorf("echo answered %q", got)
			}
			if got := callTool(t, have["meta"], `{}`); got != "task/call" {
				t.Errorf("the call's key was %q", got)
			}
			again := toolsByName(t, src)
			if have["echo"] != again["echo"] {
				t.Error("a tool that did not change is another value")
			}
		})
	}
}

// TestShared lets many callers connect at once: they share one connection.
func TestShared(t *testing.T) {
	t.Parallel()
	o := programOptions(t, "shop")
	src := newSource(t, o)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got := callTool(t, toolsByName(t, src)["echo"], `{}`); got != `{}` {
				t.Errorf("echo answered %q", got)
			}
		})
	}
	wg.Wait()
	starts, err := filepath.Glob(filepath.Join(o.Env["MCP_TEST_FOLDER"], "started-*"))
	if err != nil || len(starts) != 1 {
		t.Errorf("the program was started %d times, %v", len(starts), err)
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	var out logBuffer
	srv := startServer(t, newStreamableHandler(t, newShopServer()))
	src := newSource(t, mcp.Options{URL: srv.URL, Filter: []string{"echo", "ehco"}, Description: "From the shop.", Logger: slog.New(slog.NewTextHandler(&out, nil))})
	list, err := src.ListTools(t.Context(), agentsvc.SessionKey{})
	if err != nil || len(list) != 1 {
		t.Fatalf("%d tools, %v", len(list), err)
	}
	if got := list[0].Spec().Description; got != "From the shop.\n\nSays it again." {
		t.Errorf("described as %q", got)
	}
	if !strings.Contains(out.String(), "tool=ehco") {
		t.Errorf("no word about the filter's unknown name: %s", &out)
	}
}

func TestIdempotent(t *testing.T) {
	t.Parallel()
	s := newShopServer()
	hinted := func(name string, hints sdk.ToolAnnotations) {
		s.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: &hints},
			func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return textResult(""), nil })
	}
	hinted("reads", sdk.ToolAnnotations{ReadOnlyHint: true})
	hinted("repeats", sdk.ToolAnnotations{IdempotentHint: true})
	srv := startServer(t, newStreamableHandler(t, s))
	for name, tl := range toolsByName(t, newSource(t, mcp.Options{URL: srv.URL})) {
		if want := name == "reads"; tl.IsIdempotent() != want {
			t.Errorf("%s: %v, want %v", name, tl.IsIdempotent(), want)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		o    mcp.Options
		want string
	}{
		{mcp.Options{}, "url: must be an http or https address"},
		{mcp.Options{URL: "ftp://x"}, "url: must be an http or https address"},
		{mcp.Options{URL: "https://me:secret@x"}, "url: must hold no user or password: set headers instead"},
		{mcp.Options{Transport: mcp.Stdio}, "command: is needed for transport stdio"},
		{mcp.Options{Transport: mcp.Stdio, Command: "x", URL: "http://x"}, "url: does not go with a command"},
		{mcp.Options{Transport: mcp.SSE, Command: "x"}, "command: does not go with transport sse"},
		{mcp.Options{URL: "http://x", Headers: map[string]string{"Host": "y"}}, "headers.Host: belongs to the protocol and cannot be set"},
		{mcp.Options{URL: "http://x", Headers: map[string]string{"mcp-session-id": "y"}}, "headers.mcp-session-id: belongs to the protocol and cannot be set"},
		{mcp.Options{URL: "http://x", Headers: map[string]string{"a b": "y"}}, `headers: "a b" is no header name`},
		{mcp.Options{URL: "http://x", Headers: map[string]string{"A": "y\r\nB: z"}}, "headers.A: holds a control character"},
	} {
		if _, err := mcp.New(tt.o); err == nil || err.Error() != tt.want {
			t.Errorf("%+v: %v, want %s", tt.o, err, tt.want)
		}
	}
}
