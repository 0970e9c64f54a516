package mcp_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/sandbox"
	"stoa/agentsvc/tool"
	"stoa/agentsvc/tool/mcp"
	"stoa/tenancy/db/dbtest"
)

// unavailableReason returns the reason why the tools are not available.
func unavailableReason(t *testing.T, s *mcp.Server) string {
	t.Helper()
	_, err := s.ListTools(t.Context(), agentsvc.SessionKey{})
	var unavailable *tool.UnavailableError
	if !errors.As(err, &unavailable) || unavailable.Source != "tools.shop" {
		t.Fatalf("error = %v, want an UnavailableError of tools.shop", err)
	}
	return unavailable.Reason
}

// TestUnavailable uses servers that cannot be connected to.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	status := func(code int) string {
		return startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the upstream's secret words", code)
		})).URL
	}
	redirect := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusTemporaryRedirect)
	})).URL
	outside := egress.New(egress.Options{})
	t.Cleanup(outside.Close)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	page := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>hello</html>") })).URL
	hangs := make(chan struct{})
	slow := startServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hangs })).URL
	t.Cleanup(func() { close(hangs) })
	short := programOptions(t, "mute")
	short.ConnectTimeout = 300 * time.Millisecond
	endless := programOptions(t, "endless line")
	endless.MaxMessage = 1 << 20
	for name, tt := range map[string]struct {
		o    mcp.Options
		want string
	}{
		"nobody there":           {mcp.Options{URL: closed.URL}, "the connection was refused"},
		"not let in":             {mcp.Options{URL: status(401)}, "the server answered HTTP 401"},
		"no such path":           {mcp.Options{URL: status(404)}, "the server answered HTTP 404"},
		"a private address":      {mcp.Options{URL: page, HTTP: outside.HTTP()}, `the address of "127.0.0.1" is not allowed: only public addresses may be called`},
		"redirected inside":      {mcp.Options{URL: redirect}, `the address of "169.254.169.254" is not allowed: only public addresses may be called`},
		"a web page":             {mcp.Options{URL: page}, "it does not speak MCP as expected"},
		"hangs":                  {mcp.Options{URL: slow, ConnectTimeout: 300 * time.Millisecond}, "no answer in time"},
		"no program":             {mcp.Options{Command: "no-such-program"}, "its program was not found"},
		"a program that quits":   {programOptions(t, "quits"), "its program ended: exit status 3"},
		"a program that chats":   {programOptions(t, "garbage"), "it does not speak MCP as expected"},
		"a program that is mute": {short, "no answer in time"},
		"an endless line":        {endless, "it does not speak MCP as expected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out logBuffer
			tt.o.Logger = slog.New(slog.NewTextHandler(&out, nil))
			src := newSource(t, tt.o)
			if got := unavailableReason(t, src); got != tt.want {
				t.Errorf("reason %q, want %q", got, tt.want)
			}
			if strings.Contains(out.String(), "secret") || !strings.Contains(out.String(), "is unavailable") {
				t.Errorf("log %s", &out)
			}
			tt.o.Optional = true
			if list, err := newSource(t, tt.o).ListTools(t.Context(), agentsvc.SessionKey{}); err != nil || len(list) != 0 {
				t.Errorf("optional: %d tools, %v", len(list), err)
			}
		})
	}
}

// TestReturns checks a server that starts late, stops, and starts again.
func TestReturns(t *testing.T) {
	t.Parallel()
	var ready atomic.Bool
	var requests atomic.Int64
	var handler atomic.Pointer[http.Handler]
	renew := func() {
		h := newStreamableHandler(t, newShopServer())
		handler.Store(&h)
	}
	renew()
	srv := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if !ready.Load() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		(*handler.Load()).ServeHTTP(w, r)
	}))
	src := newSource(t, mcp.Options{URL: srv.URL, Transport: mcp.StreamableHTTP})
	if got := unavailableReason(t, src); got != "the server answered HTTP 502" {
		t.Error(got)
	}
	before := requests.Load()
	unavailableReason(t, src)
	if requests.Load() != before {
		t.Error("the server was asked again at once")
	}
	ready.Store(true)
	dbtest.WaitUntil(t, "the server is tried again", func() bool { _, err := src.ListTools(t.Context(), agentsvc.SessionKey{}); return err == nil })
	have := toolsByName(t, src)
	renew() // the server forgets the session
	if got := callTool(t, have["echo"], `{"a":1}`); got != `{"a":1}` {
		t.Errorf("after the session was forgotten: %q", got)
	}
	ready.Store(false)
	if got := callTool(t, have["echo"], `{}`); !strings.HasPrefix(got, "error: its server gave no result: the server answered HTTP 502") {
		t.Errorf("while it is unavailable: %q", got)
	}
	if len(toolsByName(t, src)) != 2 {
		t.Error("the known tools of an unavailable server disappear")
	}
}

// TestDies ends the program during a call: the call is not repeated, and the next one starts the program again.
func TestDies(t *testing.T) {
	t.Parallel()
	o := programOptions(t, "nasty")
	src := newSource(t, o)
	have := toolsByName(t, src)
	if got := callTool(t, have["die"], `{}`); got != "error: its server gave no result: the connection was lost; whether the call took effect is unknown" {
		t.Error(got)
	}
	if got := callTool(t, have["echo"], `{}`); got != `{}` {
		t.Errorf("the next call: %q", got)
	}
	starts, _ := filepath.Glob(filepath.Join(o.Env["MCP_TEST_FOLDER"], "started-*"))
	if len(starts) != 2 {
		t.Errorf("the program was started %d times", len(starts))
	}
}

// TestFlood makes the program print 1 GB during a call.
func TestFlood(t *testing.T) {
	t.Parallel()
	o := programOptions(t, "nasty")
	o.MaxMessage = 1 << 20
	src := newSource(t, o)
	if got := callTool(t, toolsByName(t, src)["flood"], `{}`); !strings.HasPrefix(got, "error: its server gave no result") {
		t.Error(got)
	}
	starts, _ := filepath.Glob(filepath.Join(o.Env["MCP_TEST_FOLDER"], "started-*"))
	dbtest.WaitUntil(t, "the program is stopped", func() bool { return hasEnded(parsePID(starts[0])) })
	if _, err := os.Stat(filepath.Join(o.Env["MCP_TEST_FOLDER"], "flooded")); err == nil {
		t.Error("it could print all of it")
	}
}

// parsePID reads a process id from the file that the process wrote.
func parsePID(path string) int {
	_, id, _ := strings.Cut(filepath.Base(path), "-")
	n, _ := strconv.Atoi(id)
	return n
}

// TestLargeAnswer answers a call with more than a message may have.
func TestLargeAnswer(t *testing.T) {
	t.Parallel()
	for name, json := range map[string]bool{"JSON": true, "SSE": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShopServer()
			addTool(s, "large", "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				return textResult(strings.Repeat("a", 2<<20)), nil
			})
			srv := startServer(t, newStreamableHandler(t, s, &sdk.StreamableHTTPOptions{JSONResponse: json}))
			src := newSource(t, mcp.Options{URL: srv.URL, MaxMessage: 1 << 20})
			if got := callTool(t, toolsByName(t, src)["large"], `{}`); !strings.HasPrefix(got, "error: its server gave no result") {
				t.Errorf("%.100q", got)
			}
			if got := callTool(t, toolsByName(t, src)["echo"], `{}`); got != "{}" {
				t.Errorf("the next call: %q", got)
			}
		})
	}
}

// TestCancel cancels a call: the server is notified.
func TestCancel(t *testing.T) {
	t.Parallel()
	o := programOptions(t, "nasty")
	src := newSource(t, o)
	wait := toolsByName(t, src)["wait"]
	there := func(name string) func() bool {
		return func() bool { _, err := os.Stat(filepath.Join(o.Env["MCP_TEST_FOLDER"], name)); return err == nil }
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := wait.Call(ctx, tool.Call{Arguments: []byte(`{}`)}); done <- err }()
	dbtest.WaitUntil(t, "the call has arrived", there("waiting"))
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
	dbtest.WaitUntil(t, "the server knows", there("cancelled"))
}

// TestClose closes a source during a call, while its program does not end by itself.
func TestClose(t *testing.T) {
	t.Parallel()
	o := programOptions(t, "stubborn")
	o.Name, o.Logger = "shop", slog.New(slog.DiscardHandler)
	src, err := mcp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	echo := toolsByName(t, src)["echo"]
	if err := src.Close(); err != nil {
		t.Error(err)
	}
	starts, _ := filepath.Glob(filepath.Join(o.Env["MCP_TEST_FOLDER"], "*-*"))
	if len(starts) != 2 {
		t.Fatalf("the processes are %v", starts)
	}
	for _, path := range starts {
		dbtest.WaitUntil(t, path+" is gone", func() bool { return hasEnded(parsePID(path)) })
	}
	if got := callTool(t, echo, `{}`); got != "error: its server is not available: the app was closed" {
		t.Error(got)
	}
}

// hasEnded reports whether a process has ended, even if its parent has not waited for it.
func hasEnded(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// TestEnvironment checks that the program sees nothing of this process's environment.
func TestEnvironment(t *testing.T) {
	t.Setenv("STOA_CANARY", "chirp")
	o := programOptions(t, "shop")
	toolsByName(t, newSource(t, o))
	starts, _ := filepath.Glob(filepath.Join(o.Env["MCP_TEST_FOLDER"], "started-*"))
	env, err := os.ReadFile(starts[0])
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(env)) {
		if name, _, _ := strings.Cut(line, "="); name != "PATH" && !strings.HasPrefix(name, "MCP_TEST_") {
			t.Errorf("the program sees %s", line)
		}
	}
}

// TestSandbox checks that a sandboxed program works, can write only its own folder, and leaves nothing behind.
func TestSandbox(t *testing.T) {
	o := programOptions(t, "shop")
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	o.Name, o.Logger, o.Sandbox = "shop", slog.New(slog.DiscardHandler), sandbox.NewHost(o.Command, sandbox.Options{ProgramFolders: []string{filepath.Dir(o.Command)}})
	src, err := mcp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.Close() }()
	if _, complete := o.Sandbox.DescribeIsolation(); !complete {
		if got := unavailableReason(t, src); got != "this host has no sandbox for its program" {
			t.Error(got)
		}
		dbtest.SkipMissing(t, "there is no sandbox here, so programs in it are not tested")
	}
	if got := callTool(t, toolsByName(t, src)["echo"], `{"a":1}`); got != `{"a":1}` {
		t.Errorf("echo answered %q", got)
	}
	if starts, _ := filepath.Glob(filepath.Join(o.Env["MCP_TEST_FOLDER"], "started-*")); len(starts) != 0 {
		t.Error("the program could write outside its folder")
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) != 0 {
		t.Errorf("it left %v", left)
	}
}

// TestHeaders redirects requests to another host, which must not receive the configured headers.
func TestHeaders(t *testing.T) {
	t.Parallel()
	s := newShopServer()
	var keys, leaked atomic.Int64
	there := newStreamableHandler(t, s)
	other := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != "" {
			leaked.Add(1)
		}
		there.ServeHTTP(w, r)
	}))
	origin := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") == "secret" {
			keys.Add(1)
		}
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	src := newSource(t, mcp.Options{URL: origin.URL, Headers: map[string]string{"X-Key": "secret"}})
	_, _ = src.ListTools(t.Context(), agentsvc.SessionKey{})
	if keys.Load() == 0 || leaked.Load() != 0 {
		t.Errorf("%d requests had the key, %d of them elsewhere", keys.Load(), leaked.Load())
	}
}

// TestInvalidDefinitions lists tools that no model could call.
func TestInvalidDefinitions(t *testing.T) {
	t.Parallel()
	schema := func(name, input, description string) string {
		return `{"name":` + strconv.Quote(name) + `,"description":` + strconv.Quote(description) + `,"inputSchema":` + input + `}`
	}
	list := strings.Join([]string{
		schema("good", `{"type":"object","properties":{"n":{"type":"integer"}}}`, ""),
		schema("good", `{"type":"object"}`, "a second one"),
		schema("text", `"object"`, ""), schema("number", `{"type":7}`, ""), schema("pattern", `{"type":"object","properties":{"a":{"pattern":"("}}}`, ""),
		schema("remote", `{"$ref":"http://169.254.169.254/schema"}`, ""), schema("a.b", `{"type":"object"}`, ""),
		schema("long", `{"type":"object"}`, strings.Repeat("a", 9<<10)), schema("wide", `{"type":"object","title":"`+strings.Repeat("a", 65<<10)+`"}`, ""), `null`,
	}, ",")
	srv := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		id := "0"
		if _, after, ok := strings.Cut(string(body), `"id":`); ok {
			id = strings.TrimRight(strings.SplitN(after, ",", 2)[0], "}")
		}
		answer := ""
		switch {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		case strings.Contains(string(body), `"initialize"`):
			answer = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`
		case strings.Contains(string(body), `"tools/list"`):
			answer = `{"tools":[` + list + `]}`
		case strings.Contains(string(body), `"notifications/`):
			w.WriteHeader(http.StatusAccepted)
			return
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-32601,"message":"no such method"}}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":`+answer+`}`)
	}))
	var out logBuffer
	logger := slog.New(slog.NewTextHandler(&out, nil))
	set, err := tool.NewSet(nil, tool.Options{Logger: logger, Sources: []tool.Source{newSource(t, mcp.Options{URL: srv.URL, Logger: logger})}})
	if err != nil {
		t.Fatal(err)
	}
	live, err := set.LoadLiveSet(t.Context(), agentsvc.SessionKey{})
	if err != nil {
		t.Fatal(err)
	}
	if specs := live.Specs(); len(specs) != 1 || specs[0].Name != "good" || specs[0].Description != "" {
		t.Errorf("the tools are %+v", specs)
	}
	for _, name := range []string{"text", "number", "pattern", "remote", "a.b", "long", "wide"} {
		if !strings.Contains(out.String(), "tool="+name+" ") {
			t.Errorf("no word about %s", name)
		}
	}
}
