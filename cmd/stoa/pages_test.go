package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"stoa/agentsvc/surface"
	"stoa/tenancy/db/dbtest"
)

// anonymousApp is an app that needs no credential, with one webhook without and one with a signature. %s is further
// keys of server.
const anonymousApp = `
llms: {m: {provider: scripted}}
tools: {calc: {type: function, handler: calculator, require_approval: true}}
agents:
  assistant: {llm: m, tools: [calc]}
  unsigned: {llm: m, trigger: {type: webhook, path: /webhooks/unsigned, methods: [POST, PUT, PATCH, DELETE, GET], input: Go.}}
  signed: {llm: m, trigger: {type: webhook, path: /webhooks/signed, secret: a-secret-of-all-the-webhooks}}
server: {push_notifications: true%s}
`

// openAnonymousServer serves anonymousApp with further keys of server.
func openAnonymousServer(t *testing.T, more string) *testServer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stoa.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, anonymousApp, more), 0o600); err != nil {
		t.Fatal(err)
	}
	return openServerWith(t, dbtest.NewSQLiteURL(t), slog.New(slog.DiscardHandler), file)
}

// pageOrigin is the headers by which a browser describes the page that a request comes from.
type pageOrigin struct{ origin, site, host string }

func (o pageOrigin) setHeaders(req *http.Request) {
	if o.origin != "" {
		req.Header.Set("Origin", o.origin)
	}
	if o.site != "" {
		req.Header.Set("Sec-Fetch-Site", o.site)
	}
	if o.host != "" {
		req.Host = o.host
	}
}

// refusedOrigins are requests that an open app refuses, with the remedy that the error names.
var refusedOrigins = map[pageOrigin]string{
	{origin: "https://evil.example"}:                                              "server.cors.allowed_origins",
	{origin: "https://evil.example", site: "cross-site"}:                          "server.cors.allowed_origins",
	{origin: "http://localhost.evil.example"}:                                     "server.cors.allowed_origins",
	{origin: "chrome-extension://localhost"}:                                      "server.cors.allowed_origins",
	{origin: "null"}:                                                              "server.cors.allowed_origins",
	{origin: "null", site: "cross-site"}:                                          "server.cors.allowed_origins",
	{site: "cross-site"}:                                                          "server.cors.allowed_origins",
	{site: "same-site"}:                                                           "server.cors.allowed_origins",
	{host: "evil.example"}:                                                        "--public-url",
	{host: "evil.example:8080", origin: "http://evil.example:8080"}:               "--public-url",
	{host: "evil.example:8080", origin: "http://evil.example:8080", site: "none"}: "--public-url",
	{host: "127.0.0.1.evil.example"}:                                              "--public-url",
	{host: "evil.example.", site: "same-origin", origin: "https://evil.example."}: "--public-url",
	{host: "93.184.216.34", origin: "http://93.184.216.34", site: "same-origin"}:  "--public-url",
}

// acceptedOrigins are requests that an open app accepts. %s is the server's own host and port.
var acceptedOrigins = []pageOrigin{
	{}, {site: "none"}, {origin: "http://%s"}, {origin: "http://%s", site: "same-origin"}, {site: "same-origin"},
	{origin: "http://localhost:3000", site: "cross-site"}, {origin: "https://127.0.0.1"}, {origin: "http://[::1]:5173"}, {origin: "http://app.localhost"},
	{host: "localhost:8080"}, {host: "[::1]:8080"}, {host: "127.0.0.1"}, {host: "LOCALHOST."},
}

var pathParameters = regexp.MustCompile(`\{[a-z]+\}`)

// expandPaths returns paths of a route, below the default app and below /apps.
func expandPaths(route surface.Route) (paths []string) {
	for _, p := range append([]string{route.Pattern}, route.Aliases...) {
		p = strings.ReplaceAll(p, "{agent}", "assistant")
		p = strings.ReplaceAll(p, "{webhook}", "unsigned")
		p = strings.ReplaceAll(p, "{tenant}/{of}", "default/assistant")
		p = strings.ReplaceAll(p, "{tenant}", "default")
		p = pathParameters.ReplaceAllString(p, "nosuch")
		paths = append(paths, p, "/apps/default"+p)
	}
	return paths
}

// TestForeignPages checks, on every registered route, that an app without authentication refuses pages of foreign
// origins and foreign host names wherever a request acts or reads; discovery routes answer them like any other
// caller.
func TestForeignPages(t *testing.T) {
	t.Parallel()
	h := openAnonymousServer(t, "")
	self := strings.TrimPrefix(h.url, "http://")
	frontend, err := h.NewFrontend(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})
	if err != nil {
		t.Fatal(err)
	}
	acting := 0
	for _, route := range frontend.Routes() {
		if route.Kind != surface.Tenant {
			continue
		}
		for _, path := range expandPaths(route) {
			request := func(s pageOrigin) (int, string) {
				var body any
				if route.Method != http.MethodGet {
					body = map[string]any{}
				}
				req := h.newRequest(t, route.Method, path, "", body)
				s.setHeaders(req)
				return h.sendRequest(t, req)
			}
			plain, answer := request(pageOrigin{})
			if plain == http.StatusUnauthorized || plain == http.StatusForbidden {
				t.Fatalf("%s %s: %d %s to a caller who is no page", route.Method, path, plain, answer)
			}
			for s, remedy := range refusedOrigins {
				status, answer := request(s)
				switch {
				case route.Discovery && status != plain:
					t.Errorf("%s %s shows %+v %d %s, and others %d", route.Method, path, s, status, answer, plain)
				case route.Discovery:
				case status != http.StatusForbidden || !strings.Contains(answer, remedy):
					t.Errorf("%s %s answers %+v %d %.200s, want 403 and %s", route.Method, path, s, status, answer, remedy)
				}
			}
			for _, s := range acceptedOrigins {
				if s.origin = strings.ReplaceAll(s.origin, "%s", self); route.Discovery {
					continue
				}
				if status, answer := request(s); status != plain {
					t.Errorf("%s %s answers %+v %d %.200s, want %d", route.Method, path, s, status, answer, plain)
				}
			}
		}
		if !route.Discovery {
			acting++
		}
	}
	if acting < 40 {
		t.Errorf("only %d routes act", acting)
	}
}

// TestForeignPagesCode checks that the error has the code of a forbidden call, and that a page may read it.
func TestForeignPagesCode(t *testing.T) {
	t.Parallel()
	h := openAnonymousServer(t, "")
	for _, path := range []string{"/tasks", "/v1/agents/assistant/tasks", "/a2a/assistant/tasks"} {
		req := h.newRequest(t, "GET", path, "", nil)
		pageOrigin{origin: "https://evil.example"}.setHeaders(req)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden || resp.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %d, %q", path, resp.StatusCode, resp.Header.Get("Access-Control-Allow-Origin"))
		}
		if _, answer := h.sendRequest(t, req); path != "/a2a/assistant/tasks" && !strings.Contains(answer, `"PERMISSION_DENIED"`) {
			t.Errorf("%s: %s", path, answer)
		}
	}
}

// TestForeignCalls checks the same over gRPC. Browsers cannot use it directly, but a gRPC-Web proxy forwards their
// headers.
func TestForeignCalls(t *testing.T) {
	t.Parallel()
	h := openAnonymousServer(t, "")
	dial := func(authority string) *grpc.ClientConn {
		conn, err := grpc.NewClient(h.GRPCAddress().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(authority))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	here, elsewhere := dial("localhost"), dial("evil.example")
	request := func(conn *grpc.ClientConn, method string, shown ...string) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ctx = metadata.AppendToOutgoingContext(ctx, append(shown, "agent-name", "assistant")...)
		_, err := callGRPCWithContext(ctx, t, conn, method, unknownIDs.replaceIDs(grpcProbes[method].messages[0]))
		return err
	}
	for _, method := range listGRPCMethods() {
		for name, err := range map[string]error{
			"server.cors.allowed_origins": request(here, method, "origin", "https://evil.example"),
			"--public-url":                request(elsewhere, method),
		} {
			if st := grpcstatus.Convert(err); st.Code() != codes.PermissionDenied || !strings.Contains(st.Message(), name) {
				t.Errorf("%s: %v, want PermissionDenied and %s", method, err, name)
			}
		}
		if err := request(here, method); grpcstatus.Code(err) == codes.PermissionDenied {
			t.Errorf("%s: %v to a caller who is no page", method, err)
		}
	}
}

// TestWelcomePages checks that configured origins, signed deliveries and callers with a credential are accepted.
func TestWelcomePages(t *testing.T) {
	t.Parallel()
	evil, rebound := pageOrigin{origin: "https://evil.example", site: "cross-site"}, pageOrigin{host: "evil.example", origin: "http://evil.example"}
	const config = `{llms: {m: {provider: scripted}}, agents: {assistant: {llm: m}}}`
	for _, tt := range []struct {
		name, more string
		shown      pageOrigin
		app        string // whose token is sent, "" = none
		want       int
	}{
		{"every origin", ", cors: {allowed_origins: ['*']}", evil, "", 200},
		{"every origin, any name", ", cors: {allowed_origins: ['*']}", rebound, "", 200},
		{"a named origin", ", cors: {allowed_origins: ['https://evil.example']}", evil, "", 200},
		{"a named origin's host", ", cors: {allowed_origins: ['https://evil.example']}", pageOrigin{host: "evil.example"}, "", 200},
		{"another origin", ", cors: {allowed_origins: ['https://good.example']}", evil, "", 403},
		{"another name", ", cors: {allowed_origins: ['https://good.example']}", rebound, "", 403},
		{"no origin", ", cors: {allowed_origins: []}", evil, "", 403},
		{"an app that needs a credential", "", evil, "acme", 200},
		{"an app that needs a credential, under another name", "", rebound, "acme", 200},
		{"a credential for the open app", "", evil, "default", 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := openAnonymousServer(t, tt.more)
			h.createApp(t, "acme", config)
			token := ""
			if tt.app != "" {
				token = h.createToken(t, tt.app, "ana", nil)
			}
			req := h.newRequest(t, "POST", "/agents/assistant", token, newRPCCall("message:send", newTextMessage("hello")))
			tt.shown.setHeaders(req)
			if status, answer := h.sendRequest(t, req); status != tt.want {
				t.Errorf("%d %s, want %d", status, answer, tt.want)
			}
		})
	}
}

// TestSignedPages checks that a request with a valid signature is accepted under any origin and host.
func TestSignedPages(t *testing.T) {
	t.Parallel()
	h := openAnonymousServer(t, "")
	for path, want := range map[string]int{"/webhooks/signed": http.StatusOK, "/webhooks/unsigned": http.StatusForbidden} {
		const body = `{"a": 1}`
		req := h.newRequest(t, "POST", path, "", body)
		mac := hmac.New(sha256.New, []byte("a-secret-of-all-the-webhooks"))
		mac.Write([]byte(body))
		req.Header.Set("X-Webhook-Signature", hex.EncodeToString(mac.Sum(nil)))
		pageOrigin{origin: "https://evil.example", host: "evil.example"}.setHeaders(req)
		if status, answer := h.sendRequest(t, req); status != want {
			t.Errorf("%s: %d %s, want %d", path, status, answer, want)
		}
	}
}

// TestPagesStartNoAgentByGet checks that no page of another site starts the agent of a webhook without a secret by a
// request for which the browser names no origin, also where origins are configured.
func TestPagesStartNoAgentByGet(t *testing.T) {
	t.Parallel()
	h := openAnonymousServer(t, ", cors: {allowed_origins: [https://ui.example]}")
	for _, tt := range []struct {
		page pageOrigin
		want int
	}{
		{pageOrigin{}, http.StatusOK},
		{pageOrigin{origin: "https://ui.example", site: "cross-site"}, http.StatusOK},
		{pageOrigin{origin: "https://evil.example", site: "cross-site"}, http.StatusForbidden},
		{pageOrigin{site: "cross-site"}, http.StatusForbidden},
		{pageOrigin{site: "same-site"}, http.StatusForbidden},
	} {
		req := h.newRequest(t, "GET", "/webhooks/unsigned", "", nil)
		tt.page.setHeaders(req)
		if status, answer := h.sendRequest(t, req); status != tt.want {
			t.Errorf("%+v: %d %s, want %d", tt.page, status, answer, tt.want)
		}
	}
}
