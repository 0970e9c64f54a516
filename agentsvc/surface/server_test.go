package surface_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const config = `
llms: {demo: {provider: scripted}}
agents: {assistant: {llm: demo}}
`

// observations collects the observations of a server.
type observations struct {
	mu   sync.Mutex
	seen []surface.Observation
}

func (o *observations) record(x surface.Observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, x)
}

// newFixture returns a server with a route of each kind and an app acme besides the default one.
func newFixture(t *testing.T) (*surfacetest.Fixture, *observations) {
	t.Helper()
	read := func(w http.ResponseWriter, r *http.Request) error {
		body, err := surface.ReadBody(r)
		if err != nil {
			return err
		}
		return response.WriteJSON(w, http.StatusOK, len(body))
	}
	seen := &observations{}
	h := surfacetest.New(t, surfacetest.Options{Default: config, Surface: surface.Options{Observe: seen.record, BodyRate: 1 << 30, Timeouts: surface.Timeouts{Deadline: time.Second}}},
		func(*surfacetest.Fixture) []surface.Route {
			return []surface.Route{
				{Method: http.MethodGet, Pattern: "/who", Kind: surface.Tenant, Query: []string{"agent", "canary"}, Serve: func(w http.ResponseWriter, r *http.Request) error {
					v := surface.RequestOf(r)
					if _, err := v.Card(r.URL.Query().Get("agent")); err != nil {
						return err
					}
					return response.WriteJSON(w, http.StatusOK, []string{v.App.Name, v.Principal.Subject, v.BaseURL()})
				}},
				{Method: http.MethodPost, Pattern: "/small", Kind: surface.Tenant, Serve: read},
				{Method: http.MethodPost, Pattern: "/large", Kind: surface.Tenant, LargeBody: true, Serve: read},
				{Method: http.MethodGet, Pattern: "/config", Kind: surface.Tenant, Scope: authz.ConfigRead, Serve: read},
				{Method: http.MethodGet, Pattern: "/panic", Kind: surface.Open, Serve: func(http.ResponseWriter, *http.Request) error { panic("oh no") }},
				{Method: http.MethodGet, Pattern: "/half", Kind: surface.Open, Serve: func(w http.ResponseWriter, _ *http.Request) error {
					io.WriteString(w, "half an")
					http.NewResponseController(w).Flush()
					panic("oh no")
				}},
				{Method: http.MethodGet, Pattern: "/slow", Kind: surface.Open, Serve: func(_ http.ResponseWriter, r *http.Request) error {
					<-r.Context().Done()
					return r.Context().Err()
				}},
				{Method: http.MethodPost, Pattern: "/admin/thing", Kind: surface.Admin, Serve: func(w http.ResponseWriter, r *http.Request) error {
					return response.WriteJSON(w, http.StatusOK, surface.ActorOf(r).Name)
				}},
				{Method: http.MethodPost, Pattern: "/admin/apps/{app}/thing", Kind: surface.Admin, Serve: read},
			}
		})
	h.CreateApp(t, "acme", config)
	return h, seen
}

// whitespace reads as n bytes of white space without having them in memory.
type whitespace struct{ n int }

func (w *whitespace) Read(b []byte) (int, error) {
	if w.n == 0 {
		return 0, io.EOF
	}
	n := min(len(b), w.n)
	for i := range b[:n] {
		b[i] = ' '
	}
	w.n -= n
	return n, nil
}

func TestBodyLimits(t *testing.T) {
	t.Parallel()
	h, _ := newFixture(t)
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	tests := []struct {
		name, path string
		body       any
		want       int
		text       string
	}{
		{"largest small one", "/small", &whitespace{1 << 20}, 200, "1048576"},
		{"small one too large", "/small", &whitespace{1<<20 + 1}, 413, "the body is too large, 1 MiB are allowed"},
		{"small one too large by its own word", "/small", strings.Repeat(" ", 1<<20+1), 413, `"RESOURCE_EXHAUSTED"`},
		{"largest message", "/large", &whitespace{28 << 20}, 200, "29360128"},
		{"message too large", "/large", &whitespace{30 << 20}, 413, "the body is too large, 28 MiB are allowed"},
		{"deep", "/small", deep, 413, "nested more than 64 levels deep"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := h.Do(t, http.MethodPost, tt.path, "", tt.body)
			if resp.StatusCode != tt.want || !strings.Contains(body, tt.text) {
				t.Errorf("%d %s, want %d with %q", resp.StatusCode, body, tt.want, tt.text)
			}
		})
	}
}

// TestLargeBodyMemory checks what a refused body costs: nothing if its Content-Length is too large, else a bounded
// amount.
func TestLargeBodyMemory(t *testing.T) {
	h, _ := newFixture(t)
	allocated := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	claimed := strings.Repeat(" ", 30<<20)
	got := allocated(func() {
		if resp, _ := h.Do(t, http.MethodPost, "/large", "", claimed); resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("30 MiB: %d", resp.StatusCode)
		}
	})
	if got > 2<<20 {
		t.Errorf("a body that says it has 30 MiB cost %d bytes of memory", got)
	}
	got = allocated(func() {
		if resp, _ := h.Do(t, http.MethodPost, "/small", "", &whitespace{30 << 20}); resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("30 MiB: %d", resp.StatusCode)
		}
	})
	if got > 16<<20 {
		t.Errorf("a body of 30 MiB cost %d bytes of memory where 1 MiB is allowed", got)
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	h, _ := newFixture(t)
	ana := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"})
	tests := []struct {
		name, method, path, token string
		want                      int
		body                      string
	}{
		{"root", "GET", "/who", "", 200, `["default","anonymous","http://localhost:8080"]`},
		{"prefix of the default app", "GET", "/apps/default/who", "", 200, `["default","anonymous","http://localhost:8080/apps/default"]`},
		{"token decides", "GET", "/who", ana, 200, `["acme","ana","http://localhost:8080"]`},
		{"prefix agrees", "GET", "/apps/acme/who", ana, 200, `["acme","ana","http://localhost:8080/apps/acme"]`},
		{"prefix differs", "GET", "/apps/default/who", ana, 404, ""},
		{"prefix in another spelling", "GET", "/apps/%61cme/who", ana, 200, `["acme","ana","http://localhost:8080/apps/acme"]`},
		{"token of 9 KB", "GET", "/who", strings.Repeat("a", 9<<10) + ".b.c", 401, ""},
		{"headers of 40 KB", "GET", "/who", strings.Repeat("a", 40<<10), 431, ""},
		{"head", "HEAD", "/who", "", 200, ""},
		{"scope missing", "GET", "/config", ana, 403, ""},
		{"operator by prefix", "POST", "/apps/acme/admin/thing", surfacetest.Secret, 404, ""},
		{"operator", "POST", "/admin/thing", surfacetest.Secret, 200, `"admin"`},
		{"preflight", "OPTIONS", "/apps/acme/who", "", 204, ""},
		{"deadline", "GET", "/slow", "", 503, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			resp, body := h.Do(t, tt.method, tt.path, tt.token, nil)
			if resp.StatusCode != tt.want || tt.body != "" && strings.TrimSpace(body) != tt.body {
				t.Errorf("%d %s, want %d %s", resp.StatusCode, body, tt.want, tt.body)
			}
			if resp.StatusCode == 503 && resp.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			if resp.StatusCode != 431 && resp.Header.Get("Access-Control-Allow-Origin") != "*" {
				t.Error("no page may read this")
			}
		})
	}
}

// TestGuessing checks that guesses at the admin secret are throttled, and that those on tenant routes do not lock out
// the operator.
func TestGuessing(t *testing.T) {
	t.Parallel()
	h, _ := newFixture(t)
	for range 20 {
		if resp, _ := h.Do(t, http.MethodGet, "/who", "not-the-admin-secret-not-the-admin-secret", nil); resp.StatusCode != 401 {
			t.Fatalf("a wrong credential on a tenant's route: %d", resp.StatusCode)
		}
	}
	if resp, _ := h.Do(t, http.MethodGet, "/who", surfacetest.Secret, nil); resp.StatusCode != 403 {
		t.Errorf("the secret on a tenant's route, after 20 guesses: %d, want 403", resp.StatusCode)
	}
	if resp, _ := h.Do(t, http.MethodPost, "/admin/thing", surfacetest.Secret, nil); resp.StatusCode != 200 {
		t.Errorf("guesses on a tenant's route shut the operator out: %d", resp.StatusCode)
	}
	var last *http.Response
	for range 20 {
		last, _ = h.Do(t, http.MethodPost, "/admin/thing", "not-the-admin-secret-not-the-admin-secret", nil)
	}
	if last.StatusCode != 429 || last.Header.Get("Retry-After") == "" {
		t.Errorf("the 20th guess: %d, Retry-After %q", last.StatusCode, last.Header.Get("Retry-After"))
	}
	if resp, _ := h.Do(t, http.MethodPost, "/admin/thing", surfacetest.Secret, nil); resp.StatusCode == 429 {
		t.Error("the secret after 20 guesses from the same address: 429")
	}
}

// TestLog checks what the log contains about requests, and that it contains no query, body or credential.
func TestLog(t *testing.T) {
	t.Parallel()
	h, seen := newFixture(t)
	ana := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"})
	h.Do(t, http.MethodGet, "/who?agent=assistant&canary=query", ana, nil, "X-Request-Id", "req-1")
	h.Do(t, http.MethodPost, "/small", ana, `{"canary": "body"}`)
	h.Do(t, http.MethodGet, "/who", "canary.bad.token", nil, "X-Request-Id", "req-2")
	h.Do(t, http.MethodPost, "/admin/thing", "canary-wrong-secret", nil, "X-Request-Id", "evil\tid")
	resp, body := h.Do(t, http.MethodGet, "/panic", "", nil, "X-Request-Id", "req-3")
	if resp.StatusCode != 500 || resp.Header.Get("X-Request-Id") != "req-3" || !strings.Contains(body, `"request_id":"req-3"`) {
		t.Errorf("a panic: %d %s", resp.StatusCode, body)
	}
	log := h.Log.String()
	for _, never := range []string{"canary", ana, surfacetest.Secret, "evil"} {
		if strings.Contains(log, never) {
			t.Errorf("the log holds %q", never)
		}
	}
	for _, want := range []string{
		"request_id=req-1 method=GET route=/who status=200 duration=0.", "client=127.0.0.1 app=acme agent=assistant subject=ana",
		"request_id=req-2 method=GET route=/who status=401", "reason=",
		`msg="a handler panicked" request_id=req-3`, `panic="oh no"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not hold %q:\n%s", want, log)
		}
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	ok := slices.ContainsFunc(seen.seen, func(o surface.Observation) bool {
		return o.App == "acme" && o.Agent == "assistant" && o.Method == "GET" && o.Route == "/who" && o.Status == 200 && o.Duration > 0
	})
	if !ok {
		t.Errorf("observed %+v", seen.seen)
	}
}

// TestLogNamesApp checks that the log line of a request names the app that it is about, also where the request was
// refused or is the operator's, and that no refused request creates a label of metrics.
func TestLogNamesApp(t *testing.T) {
	t.Parallel()
	h, seen := newFixture(t)
	ana := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"})
	change := func(do func(ctx context.Context, actor audit.Actor, name string) error) func() {
		return func() {
			if err := do(t.Context(), audit.Actor{Name: "test"}, "acme"); err != nil {
				t.Fatal(err)
			}
		}
	}
	suspend := change(func(ctx context.Context, actor audit.Actor, name string) error {
		_, err := h.Apps.SuspendApp(ctx, actor, name, "")
		return err
	})
	remove := change(func(ctx context.Context, actor audit.Actor, name string) error {
		return h.Apps.DeleteApp(ctx, actor, name)
	})
	for i, tt := range []struct {
		name                string
		before              func()
		method, path, token string
		want                int
		app, reason         string
	}{
		{name: "operator", method: "POST", path: "/admin/apps/acme/thing", token: surfacetest.Secret, want: 200, app: "acme"},
		{name: "operator, no name of an app", method: "POST", path: "/admin/apps/ACME%0A/thing", token: surfacetest.Secret, want: 200},
		{name: "not the operator", method: "POST", path: "/admin/apps/acme/thing", token: ana, want: 403},
		{name: "no credential", method: "POST", path: "/admin/apps/acme/thing", want: 401},
		{name: "another app's path", method: "GET", path: "/apps/default/who", token: ana, want: 404, app: "acme"},
		{name: "suspended", before: suspend, method: "GET", path: "/who", token: ana, want: 403, app: "acme"},
		{name: "suspended, no credential", method: "GET", path: "/apps/acme/who", want: 401},
		{name: "deleted", before: remove, method: "GET", path: "/who", token: ana, want: 401, app: "acme", reason: "the app of the credential does not exist"},
	} {
		if tt.before != nil {
			tt.before()
		}
		id := fmt.Sprint("log-", i)
		resp, body := h.Do(t, tt.method, tt.path, tt.token, nil, "X-Request-Id", id)
		// The server learns of the change by a signal.
		for end := time.Now().Add(time.Minute); tt.before != nil && resp.StatusCode == http.StatusOK && time.Now().Before(end); {
			resp, body = h.Do(t, tt.method, tt.path, tt.token, nil, "X-Request-Id", id)
		}
		if resp.StatusCode != tt.want || tt.reason != "" && strings.Contains(body, tt.reason) {
			t.Errorf("%s: %d %s, want %d", tt.name, resp.StatusCode, body, tt.want)
		}
		line := ""
		for l := range strings.Lines(h.Log.String()) {
			if strings.Contains(l, "msg=request request_id="+id+" ") {
				line = l
			}
		}
		_, app, _ := strings.Cut(line, " app=")
		app, _, _ = strings.Cut(strings.TrimSpace(app), " ")
		if line == "" || app != tt.app || !strings.Contains(line, tt.reason) {
			t.Errorf("%s: the line names app %q, want %q and reason %q: %s", tt.name, app, tt.app, tt.reason, line)
		}
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, o := range seen.seen {
		if o.App != "" && o.Status != http.StatusOK {
			t.Errorf("observed %+v", o)
		}
	}
}

// TestLogOfUnavailableApp checks that the warning about a request that fails for an app names the app, here one that is
// encrypted with a master key that the process lacks.
func TestLogOfUnavailableApp(t *testing.T) {
	t.Parallel()
	h, _ := newFixture(t)
	ana := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"})
	var b db.Batch
	b.Exec(nil, `UPDATE app SET data_key = $1, master_key = 'lost' WHERE name = 'acme'`, bytes.Repeat([]byte{1}, 64))
	if err := h.DB.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	h.Do(t, http.MethodGet, "/who", ana, nil, "X-Request-Id", "req-1")
	if want := `msg="a request failed" request_id=req-1 route=/who app=acme `; !strings.Contains(h.Log.String(), want) {
		t.Errorf("the log does not hold %q:\n%s", want, h.Log.String())
	}
}

// TestHalfAnswer checks that a response whose handler panicked in its middle does not look complete to the client.
func TestHalfAnswer(t *testing.T) {
	t.Parallel()
	h, _ := newFixture(t)
	resp := h.OpenResponse(t, http.MethodGet, "/half", "", nil)
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the answer %q looks whole", body)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	if _, err := surface.New(surface.Options{Authentication: surface.Authentication{AdminSecret: surfacetest.Secret}}); err == nil {
		t.Error("a server without a verifier was made")
	}
}
