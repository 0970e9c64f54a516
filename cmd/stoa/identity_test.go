package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stoa/tenancy/db/dbtest"
)

// foreignIssuer is an issuer elsewhere, whose keys lie at its URL.
type foreignIssuer struct {
	url     string
	key     ed25519.PrivateKey
	down    atomic.Bool
	fetches atomic.Int64
}

func newForeignIssuer(t *testing.T) *foreignIssuer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	o := &foreignIssuer{key: private}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		o.fetches.Add(1)
		if o.down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		fmt.Fprintf(w, `{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k1", "use": "sig", "x": %q}]}`, base64.RawURLEncoding.EncodeToString(public))
	}))
	t.Cleanup(srv.Close)
	o.url = srv.URL
	return o
}

// token signs claims, to which what every token needs is added. A claim that is nil is left out.
func (o *foreignIssuer) token(claims map[string]any) string {
	all := map[string]any{"iss": o.url, "aud": "stoa-test", "sub": "ana", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	head, _ := json.Marshal(map[string]any{"alg": "EdDSA", "kid": "k1", "typ": "at+jwt"})
	body, _ := json.Marshal(all)
	input := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(body)
	return input + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(o.key, []byte(input)))
}

// fileWith writes an operator's file with agents of each visibility, whose server.auth is o's and has more.
func (o *foreignIssuer) fileWith(t *testing.T, more string) string {
	t.Helper()
	src := fmt.Sprintf(`
llms: {default: {provider: scripted}}
agents:
  assistant: {}
  inside: {visibility: internal}
  hidden: {visibility: private}
server:
  auth:
    enabled: true
    issuer: %s
    jwks_url: %[1]s/jwks
    audience: stoa-test
    client_id: pages
%s
`, o.url, more)
	file := filepath.Join(t.TempDir(), "stoa.yaml")
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func sqliteURL(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "stoa.db") }

// knock is a request and the status that it must get.
type knock struct {
	name, method, path, credential string
	body                           any
	want                           int
	holds                          string // in the answer
}

func (h *testHouse) knocks(t *testing.T, all []knock) {
	t.Helper()
	for _, k := range all {
		if status, body := h.ask(t, k.method, k.path, k.credential, k.body); status != k.want || !strings.Contains(body, k.holds) {
			t.Errorf("%s: %s %s: %d %s, want %d with %q", k.name, k.method, k.path, status, body, k.want, k.holds)
		}
	}
}

var hello = rpc("message:send", words("hi"))

// helloV1 is hello below /v1.
var helloV1 = map[string]any{"message": map[string]any{"messageId": "m-1", "role": "user", "parts": []any{map[string]any{"text": "hi"}}}}

// TestServerAuth lets callers of the default app in as server.auth says.
func TestServerAuth(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	t.Run("required", func(t *testing.T) {
		o := newForeignIssuer(t)
		h := openHouseOf(t, sqliteURL(t), log, o.fileWith(t, ""))
		good := o.token(nil)
		h.want(t, 201, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": "llms: {default: {provider: scripted}}\nagents: {assistant: {}}"})
		h.knocks(t, []knock{
			{"a token", "POST", "/agents/assistant", good, hello, 200, "You said: hi"},
			{"a token at an internal agent", "POST", "/agents/inside", good, hello, 200, "You said: hi"},
			{"a token at a private agent", "POST", "/agents/hidden", good, hello, 404, ""},
			{"nothing", "POST", "/agents/assistant", "", hello, 401, "UNAUTHENTICATED"},
			{"nothing, an internal agent", "POST", "/agents/inside", "", hello, 401, ""},
			{"nothing, no such agent", "POST", "/agents/nobody", "", hello, 401, ""},
			{"nothing, below /v1", "POST", "/v1/agents/assistant/message:send", "", helloV1, 401, ""},
			{"nothing, the list below /v1", "GET", "/v1/agents", "", nil, 200, "assistant"},
			{"nothing, a card below /v1", "GET", "/v1/agents/assistant/.well-known/agent-card.json", "", nil, 200, `"security":{"schemes":{"bearer":{"type":"http","scheme":"bearer"}}}`},
			{"a token below /v1", "POST", "/v1/agents/assistant/message:send", good, helloV1, 200, ""},
			{"nothing, tasks", "GET", "/tasks", "", nil, 401, ""},
			{"nothing, the schema", "GET", "/api/schema", "", nil, 401, ""},
			{"nothing, the list", "GET", "/agents", "", nil, 200, `"total":1`},
			{"nothing, a card", "GET", "/agents/assistant", "", nil, 200, `"security":[{"bearer":[]}]`},
			{"nothing, an internal card", "GET", "/agents/inside", "", nil, 404, ""},
			{"nothing, the default card", "GET", "/.well-known/agent-card.json", "", nil, 200, `"security_schemes":{"bearer":{"type":"http","scheme":"bearer","bearer_format":"JWT"}}`},
			{"a token, the list", "GET", "/agents", good, nil, 200, `"total":2`},
			{"health", "GET", "/health", "", nil, 200, `"auth":{"enabled":true,"type":"jwt","issuer":"` + o.url + `","audience":"stoa-test","client_id":"pages"}`},
			{"a bad token", "POST", "/agents/assistant", good[:len(good)-4] + "AAAA", hello, 401, ""},
			{"a bad token, the list", "GET", "/agents", good[:len(good)-4] + "AAAA", nil, 401, ""},
			{"another audience", "POST", "/agents/assistant", o.token(map[string]any{"aud": "other"}), hello, 401, ""},
			{"expired", "POST", "/agents/assistant", o.token(map[string]any{"exp": time.Now().Unix() - 1}), hello, 401, ""},
			{"a viewer calls", "POST", "/agents/assistant", o.token(map[string]any{"roles": []string{"viewer"}}), hello, 403, ""},
			{"an operator reads the schema", "GET", "/api/schema", o.token(map[string]any{"roles": []string{"operator"}}), nil, 200, ""},
			{"a scope narrows", "POST", "/agents/assistant", o.token(map[string]any{"scope": "openid agents:call:inside"}), hello, 403, "narrowed"},
			{"OpenID's scopes do not", "POST", "/agents/assistant", o.token(map[string]any{"scope": "openid profile"}), hello, 200, ""},
			{"an app by name", "POST", "/agents/assistant", o.token(map[string]any{"tenant_id": "acme"}), hello, 200, ""},
			{"an app by name, by its path", "POST", "/apps/acme/agents/assistant", o.token(map[string]any{"tenant_id": "acme"}), hello, 200, ""},
			{"an app by name, by another path", "POST", "/apps/default/agents/assistant", o.token(map[string]any{"tenant_id": "acme"}), hello, 404, ""},
			{"the default app's at another app", "POST", "/apps/acme/agents/assistant", good, hello, 404, ""},
			{"an app that is not there", "POST", "/agents/assistant", o.token(map[string]any{"tenant_id": "ghost"}), hello, 401, ""},
			{"an app's operator at the admin API", "GET", "/admin/apps", o.token(map[string]any{"roles": []string{"operator"}}), nil, 403, ""},
			{"the platform's at the admin API", "GET", "/admin/apps", o.token(map[string]any{"roles": []string{"platform_operator"}}), nil, 200, "acme"},
			{"the platform's at an agent", "POST", "/agents/assistant", o.token(map[string]any{"roles": []string{"platform_operator"}}), hello, 403, ""},
			{"a token of the house", "POST", "/agents/assistant", h.token(t, "default", "bob", nil), hello, 200, ""},
			{"without iat", "POST", "/agents/assistant", o.token(map[string]any{"iat": nil}), hello, 200, ""},
		})
		if n := o.fetches.Load(); n != 1 {
			t.Errorf("the keys were fetched %d times", n)
		}
		h.want(t, 204, nil, "POST", "/admin/apps/default/tokens:revoke", testSecret, map[string]any{"sub": "ana"})
		h.knocks(t, []knock{
			{"a revoked subject", "POST", "/agents/assistant", good, hello, 401, ""},
			{"a revoked subject, by a clock that is ahead", "POST", "/agents/assistant", o.token(map[string]any{"iat": time.Now().Unix() + 50}), hello, 401, ""},
			{"a revoked subject without iat", "POST", "/agents/assistant", o.token(map[string]any{"iat": nil}), hello, 401, ""},
			{"another subject without iat", "POST", "/agents/assistant", o.token(map[string]any{"iat": nil, "sub": "eve"}), hello, 200, ""},
		})
	})
	t.Run("not required", func(t *testing.T) {
		o := newForeignIssuer(t)
		h := openHouseOf(t, sqliteURL(t), log, o.fileWith(t, "    require_auth: false"))
		h.knocks(t, []knock{
			{"nothing", "POST", "/agents/assistant", "", hello, 200, "You said: hi"},
			{"nothing, an internal agent", "POST", "/agents/inside", "", hello, 404, ""},
			{"nothing, the schema", "GET", "/api/schema", "", nil, 403, ""},
			{"nothing, tasks", "GET", "/tasks", "", nil, 200, ""},
			{"nothing, a card", "GET", "/agents/assistant", "", nil, 200, `"security_schemes"`},
			{"a token", "POST", "/agents/inside", o.token(nil), hello, 200, ""},
			{"a bad one", "POST", "/agents/assistant", "a.b.c", hello, 401, ""},
		})
		if _, card := h.ask(t, "GET", "/agents/assistant", "", nil); strings.Contains(card, `"security":`) {
			t.Errorf("the card demands a credential: %s", card)
		}
	})
	t.Run("excluded", func(t *testing.T) {
		o := newForeignIssuer(t)
		h := openHouseOf(t, sqliteURL(t), log, o.fileWith(t, "    excluded_paths: [/agents/]"))
		h.knocks(t, []knock{
			{"nothing", "POST", "/agents/assistant", "", hello, 200, ""},
			{"nothing, by the app's path", "POST", "/apps/default/agents/assistant", "", hello, 200, ""},
			{"nothing, an internal agent", "POST", "/agents/inside", "", hello, 404, ""},
			{"nothing, what is not on the list", "POST", "/v1/agents/assistant/message:send", "", helloV1, 401, ""},
			{"nothing, tasks", "GET", "/tasks", "", nil, 401, ""},
			{"nothing, the list", "GET", "/agents", "", nil, 200, ""},
			{"nothing, the default card", "GET", "/.well-known/agent-card.json", "", nil, 401, ""},
			{"a token, the default card", "GET", "/.well-known/agent-card.json", o.token(nil), nil, 200, ""},
			{"health", "GET", "/health", "", nil, 200, ""},
		})
	})
	t.Run("refuses to start", func(t *testing.T) {
		o := newForeignIssuer(t)
		o.down.Store(true)
		if _, err := prepare(t, sqliteURL(t), log, o.fileWith(t, "")); err == nil || !strings.Contains(err.Error(), o.url+"/jwks") {
			t.Errorf("with unreachable keys it starts: %v", err)
		}
	})
	t.Run("recreated app", func(t *testing.T) {
		o := newForeignIssuer(t)
		h := openHouseOf(t, sqliteURL(t), log, o.fileWith(t, ""))
		create := map[string]any{"name": "acme", "config": "llms: {default: {provider: scripted}}\nagents: {assistant: {}}"}
		h.want(t, 201, nil, "POST", "/admin/apps", testSecret, create)
		old, timeless := o.token(map[string]any{"tenant_id": "acme"}), o.token(map[string]any{"tenant_id": "acme", "iat": nil})
		h.want(t, 200, nil, "POST", "/agents/assistant", old, hello)
		h.want(t, 200, nil, "POST", "/agents/assistant", timeless, hello)
		h.want(t, 204, nil, "DELETE", "/admin/apps/acme", testSecret, nil)
		h.want(t, 401, nil, "POST", "/agents/assistant", old, hello)
		h.want(t, 201, nil, "POST", "/admin/apps", testSecret, create)
		h.want(t, 401, nil, "POST", "/agents/assistant", old, hello)
		h.want(t, 401, nil, "POST", "/agents/assistant", timeless, hello)
		h.want(t, 401, nil, "POST", "/agents/assistant", o.token(map[string]any{"tenant_id": "acme", "iat": time.Now().Unix() + 50}), hello)
		h.want(t, 200, nil, "POST", "/agents/assistant", h.token(t, "acme", "ana", nil), hello)
	})
}

// TestAppIssuer has apps bring issuers of their own, in two processes on one database.
func TestAppIssuer(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	database := dbtest.PostgresURL(t)
	server, own, shared := newForeignIssuer(t), newForeignIssuer(t), newForeignIssuer(t)
	file := server.fileWith(t, "")
	h, other := openHouseOf(t, database, log, file), openHouseOf(t, database, log, file)
	auth := func(o *foreignIssuer, aud string, more ...any) map[string]any {
		a := map[string]any{"issuer": o.url, "jwks_url": o.url + "/jwks", "audience": aud}
		for i := 0; i+1 < len(more); i += 2 {
			a[more[i].(string)] = more[i+1]
		}
		return a
	}
	app := func(name string, auth any, grants ...string) map[string]any {
		return map[string]any{"name": name, "config": "llms: {default: {provider: scripted}}\nagents: {assistant: {}}", "auth": auth, "grants": grants}
	}
	h.knocks(t, []knock{
		{"a private address", "POST", "/admin/apps", testSecret, app("acme", map[string]any{"issuer": "https://east", "jwks_url": "https://127.0.0.1:1/", "audience": "east"}), 400, "auth.jwks_url"},
		{"a private address in disguise", "POST", "/admin/apps", testSecret, app("acme", map[string]any{"issuer": "https://east", "jwks_url": "https://127.1:1/", "audience": "east"}), 400, "leads into a private network"},
		{"a name of nobody", "POST", "/admin/apps", testSecret, app("acme", map[string]any{"issuer": "https://east", "jwks_url": "https://nobody..example/", "audience": "east"}), 400, "does not resolve"},
		{"no grant", "POST", "/admin/apps", testSecret, app("acme", auth(own, "acme")), 400, "private_network"},
		{"a field missing", "POST", "/admin/apps", testSecret, app("acme", map[string]any{"issuer": own.url}, "private_network"), 400, "auth.jwks_url"},
		{"a field misspelt", "POST", "/admin/apps", testSecret, app("acme", auth(own, "acme", "audiences", "x"), "private_network"), 400, "auth"},
		{"fetched too often", "POST", "/admin/apps", testSecret, app("acme", auth(own, "acme", "refresh_interval", "1s"), "private_network"), 400, "auth.refresh_interval"},
		{"the server's own", "POST", "/admin/apps", testSecret, app("acme", auth(server, "stoa-test"), "private_network"), 409, "the server's own"},
		{"one", "POST", "/admin/apps", testSecret, app("acme", auth(own, "acme", "client_id", "pages"), "private_network"), 201, `"client_id":"pages"`},
		{"the same again", "POST", "/admin/apps", testSecret, app("globex", auth(own, "acme"), "private_network"), 409, "for the app acme already"},
		{"the same by name", "POST", "/admin/apps", testSecret, app("globex", auth(own, "acme", "require_tenant_id", true), "private_network"), 409, "for the app acme already"},
		{"another audience", "POST", "/admin/apps", testSecret, app("globex", auth(own, "globex"), "private_network"), 201, ""},
		{"by name", "POST", "/admin/apps", testSecret, app("north", auth(shared, "both", "require_tenant_id", true), "private_network"), 201, ""},
		{"by name as well", "POST", "/admin/apps", testSecret, app("south", auth(shared, "both", "require_tenant_id", true), "private_network"), 201, ""},
		{"beside those by name", "POST", "/admin/apps", testSecret, app("west", auth(shared, "both"), "private_network"), 409, "already"},
	})
	soon(t, "the other process takes the token", func() bool {
		status, _ := other.ask(t, "POST", "/agents/assistant", own.token(map[string]any{"aud": "acme"}), hello)
		return status == 200
	})
	for _, h := range []*testHouse{h, other} {
		soon(t, "all are known", func() bool {
			status, _ := h.ask(t, "GET", "/agents", shared.token(map[string]any{"aud": "both", "tenant_id": "south"}), nil)
			return status == 200
		})
		h.knocks(t, []knock{
			{"acme", "GET", "/apps/acme/agents", own.token(map[string]any{"aud": "acme"}), nil, 200, ""},
			{"acme, named", "GET", "/apps/acme/agents", own.token(map[string]any{"aud": "acme", "tenant_id": "acme"}), nil, 200, ""},
			{"acme's at another app", "GET", "/apps/globex/agents", own.token(map[string]any{"aud": "acme"}), nil, 404, ""},
			{"acme's audience, another's name", "GET", "/agents", own.token(map[string]any{"aud": "acme", "tenant_id": "globex"}), nil, 401, ""},
			{"globex", "GET", "/apps/globex/agents", own.token(map[string]any{"aud": "globex"}), nil, 200, ""},
			{"both audiences", "GET", "/agents", own.token(map[string]any{"aud": []string{"acme", "globex"}}), nil, 401, ""},
			{"an audience of nobody", "GET", "/agents", own.token(map[string]any{"aud": "stoa-test"}), nil, 401, ""},
			{"no operator comes of it", "GET", "/admin/apps", own.token(map[string]any{"aud": "acme", "roles": []string{"platform_operator"}}), nil, 403, ""},
			{"north by name", "GET", "/apps/north/agents", shared.token(map[string]any{"aud": "both", "tenant_id": "north"}), nil, 200, ""},
			{"south by name", "GET", "/apps/south/agents", shared.token(map[string]any{"aud": "both", "tenant_id": "south"}), nil, 200, ""},
			{"by no name", "GET", "/agents", shared.token(map[string]any{"aud": "both"}), nil, 401, ""},
			{"the server's issuer speaks for it too", "GET", "/apps/acme/agents", server.token(map[string]any{"tenant_id": "acme"}), nil, 200, ""},
		})
	}
	h.want(t, 200, nil, "PUT", "/admin/apps/acme", testSecret, map[string]any{"display_name": "Acme"})
	h.knocks(t, []knock{{"what is left out stays", "GET", "/admin/apps/acme", testSecret, nil, 200, own.url}})
	token := own.token(map[string]any{"aud": "acme"})
	h.want(t, 200, nil, "PUT", "/admin/apps/acme", testSecret, map[string]any{"auth": nil})
	for _, h := range []*testHouse{h, other} {
		soon(t, "an issuer that was taken away is refused", func() bool {
			status, _ := h.ask(t, "GET", "/agents", token, nil)
			return status == 401
		})
	}
	h.want(t, 200, nil, "PUT", "/admin/apps/globex", testSecret, map[string]any{"auth": auth(own, "acme")})
	soon(t, "what became free may be another's", func() bool {
		status, _ := other.ask(t, "GET", "/apps/globex/agents", token, nil)
		return status == 200
	})
	h.want(t, 400, nil, "PUT", "/admin/apps/globex", testSecret, map[string]any{"grants": []string{}})
	if _, body := h.ask(t, "GET", "/admin/audit?app=acme", testSecret, nil); !strings.Contains(body, `"auth.issuer":{"after":"hmac-sha256:`) || strings.Contains(body, own.url) {
		t.Errorf("the audit trail does not tell of the issuer by its hash: %s", body)
	}
}

// soon waits until what was changed has reached every process: two seconds, and longer where the machine is busy.
func soon(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is never that %s", what)
		}
	}
}
