package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/runtime"
	"stoa/cmd/stoa/server"
	"stoa/cmd/stoa/stoatest"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/runtimecache"
)

// testServer is a complete server inside the test's process.
type testServer struct {
	*server.Server
	url      string
	db       *db.DB
	apps     *tenancy.Service
	runtimes *runtimecache.Cache[*runtime.Runtime]
}

const testSecret = stoatest.AdminSecret

// onEachEngine runs f against a server on each engine in parallel. It must be the last statement of a test.
func onEachEngine(t *testing.T, f func(t *testing.T, h *testServer)) {
	t.Helper()
	onEachEngineWith(t, exampleConfig, f)
}

// onEachEngineWith is onEachEngine with a configuration of the test.
func onEachEngineWith(t *testing.T, config string, f func(t *testing.T, h *testServer)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		f(t, openServerWith(t, dbtest.NewSQLiteURL(t), newTestLog(t), config))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		f(t, openServerWith(t, dbtest.NewPostgresURL(t), newTestLog(t), config))
	})
}

// exampleConfig is the configuration of a server whose test has none of its own.
const exampleConfig = "../../examples/default.yaml"

// openTestServer serves exampleConfig on database until the test ends.
func openTestServer(t testing.TB, database string) *testServer {
	t.Helper()
	return openLoggedServer(t, database, newTestLog(t))
}

// newTestLog returns a logger that discards records unless the environment asks for them.
func newTestLog(t testing.TB) *slog.Logger {
	if os.Getenv("STOA_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	return slog.New(slog.DiscardHandler)
}

// openLoggedServer is openTestServer with a logger.
func openLoggedServer(t testing.TB, database string, log *slog.Logger) *testServer {
	t.Helper()
	return openServerWith(t, database, log, exampleConfig)
}

// openServerWith is openLoggedServer with a configuration of the test.
func openServerWith(t testing.TB, database string, log *slog.Logger, config string) *testServer {
	t.Helper()
	h, err := prepareServer(t, database, log, config)
	if err != nil {
		t.Fatal(err)
	}
	return startTestServer(t, h)
}

// prepareServer opens a server with a configuration, ready to serve.
func prepareServer(t testing.TB, database string, log *slog.Logger, config string) (*server.Server, error) {
	t.Helper()
	port, host := 0, "127.0.0.1"
	return openFlaggedServer(t, server.Flags{Database: &database, Port: &port, Host: &host}, log, config)
}

// openFlaggedServer is prepareServer with flags of the test.
func openFlaggedServer(t testing.TB, line server.Flags, log *slog.Logger, config string) (*server.Server, error) {
	t.Helper()
	mine, err := server.LoadDefaultApp(config)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.ResolveSettings(line, mine.Config())
	if err != nil {
		t.Fatal(err)
	}
	return server.New(t.Context(), server.Options{Version: version, Commit: "abc123", Settings: s, DefaultApp: mine, Log: log})
}

// startTestServer serves h until the test ends.
func startTestServer(t testing.TB, h *server.Server) *testServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ts, _ := serveUntilStopped(t, h, l)
	return ts
}

// serveUntilStopped serves h on l until stop is called or the test ends, which waits for the end of the shutdown.
func serveUntilStopped(t testing.TB, h *server.Server, l net.Listener) (ts *testServer, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ctx, l, func() {}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &testServer{h, "http://" + l.Addr().String(), h.Storage.DB, h.Apps, h.Execution.Runtimes}, cancel
}

// doRequest sends a request and returns status and body. A body that is not a string is sent as JSON.
func (ts *testServer) doRequest(t testing.TB, method, path, bearer string, body any) (int, string) {
	t.Helper()
	return ts.sendRequest(t, ts.newRequest(t, method, path, bearer, body))
}

// sendRequest sends req. A response that takes longer than a minute fails the test.
func (ts *testServer) sendRequest(t testing.TB, req *http.Request) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := http.DefaultClient.Do(req.WithContext(ctx))
	if err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL.Path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL.Path, err)
	}
	return resp.StatusCode, string(raw)
}

func (ts *testServer) newRequest(t testing.TB, method, path, bearer string, body any) *http.Request {
	t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, ts.url+path, r)
	if err != nil {
		t.Fatal(err)
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	if r != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if b, ok := body.(interface{ headers(ts http.Header) }); ok {
		b.headers(req.Header)
	}
	return req
}

// requireStatus sends a request and fails the test unless the response has that status; the body is decoded into into
// unless that is nil.
func (ts *testServer) requireStatus(t testing.TB, status int, into any, method, path, bearer string, body any) {
	t.Helper()
	got, text := ts.doRequest(t, method, path, bearer, body)
	if got != status {
		t.Fatalf("%s %s: %d %s, want %d", method, path, got, text, status)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
}

// createToken issues a token of an app.
func (ts *testServer) createToken(t *testing.T, app, sub string, more map[string]any) string {
	t.Helper()
	body := map[string]any{"sub": sub}
	for k, v := range more {
		body[k] = v
	}
	var out struct {
		AccessToken string `json:"access_token"`
	}
	ts.requireStatus(t, http.StatusCreated, &out, "POST", "/admin/apps/"+app+"/tokens", testSecret, body)
	return out.AccessToken
}

// newTenantFlags returns the flags with which a command calls the server, with a token.
func (ts *testServer) newTenantFlags(token string) tenantFlags {
	return tenantFlags{serverFlag: serverFlag{Server: ts.url}, Token: token}
}

// newRPCCall returns a JSON-RPC request.
func newRPCCall(method string, params any) map[string]any {
	return map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
}

// newTextMessage returns the params of a message with text and further members.
func newTextMessage(text string, more ...any) map[string]any {
	m := map[string]any{"role": "user", "parts": []any{map[string]any{"type": "text", "text": text}}}
	for i := 0; i+1 < len(more); i += 2 {
		m[fmt.Sprint(more[i])] = more[i+1]
	}
	return map[string]any{"message": m}
}
