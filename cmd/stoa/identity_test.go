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

// foreignIssuer is an issuer outside the server, whose keys are at its URL.
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

// signToken signs claims after adding what every token needs. A claim that is nil is left out.
func (i *foreignIssuer) signToken(claims map[string]any) string {
	all := map[string]any{"iss": i.url, "aud": "stoa-test", "sub": "ana", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	head, _ := json.Marshal(map[string]any{"alg": "EdDSA", "kid": "k1", "typ": "at+jwt"})
	body, _ := json.Marshal(all)
	input := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(body)
	return input + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(i.key, []byte(input)))
}

// writeConfig writes an operator's file with agents of each visibility, whose server.auth trusts o and has the keys
// of more.
func (i *foreignIssuer) writeConfig(t *testing.T, more string) string {
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
`, i.url, more)
	file := filepath.Join(t.TempDir(), "stoa.yaml")
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func newSQLiteURL(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "stoa.db") }

// requestCase is a request and the status that it must get.
type requestCase struct {
	name, method, path, credential string
	body                           any
	want                           int
	contains                       string // text that the response must contain
}

func (ts *testServer) checkRequests(t *testing.T, all []requestCase) {
	t.Helper()
	for _, k := range all {
		if status, body := ts.doRequest(t, k.method, k.path, k.credential, k.body); status != k.want || !strings.Contains(body, k.contains) {
			t.Errorf("%s: %s %s: %d %s, want %d with %q", k.name, k.method, k.path, status, body, k.want, k.contains)
		}
	}
}

var helloCall = newRPCCall("message:send", newTextMessage("hi"))

// helloV1Body is the hello message in the format of /v1.
var helloV1Body = map[string]any{"message": map[string]any{"messageId": "m-1", "role": "user", "parts": []any{map[string]any{"text": "hi"}}}}

// TestServerAuth checks who may call the default app under server.auth.
func TestServerAuth(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	t.Run("required", func(t *testing.T) {
		o := newForeignIssuer(t)
		h := openServerWith(t, newSQLiteURL(t), log, o.writeConfig(t, ""))
		good := o.signToken(nil)
		h.requireStatus(t, 201, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": "llms: {default: {provider: scripted}}\nagents: {assistant: {}}"})
		h.checkRequests(t, []requestCase{
			{"a token", "POST", "/agents/assistant", good, helloCall, 200, "You said: hi"},
			{"a token at an internal agent", "POST", "/agents/inside", good, helloCall, 200, "You said: hi"},
			{"a token at a private agent", "POST", "/agents/hidden", good, helloCall, 404, ""},
			{"nothing", "POST", "/agents/assistant", "", helloCall, 401, "UNAUTHENTICATED"},
			{"nothing, an internal agent", "POST", "/agents/inside", "", helloCall, 401, ""},
			{"nothing, no such agent", "POST", "/agents/nobody", "", helloCall, 401, ""},
			{"nothing, below /v1", "POST", "/v1/agents/assistant/message:send", "", helloV1Body, 401, ""},
			{"nothing, the list below /v1", "GET", "/v1/agents", "", nil, 200, "assistant"},
			{"nothing, a card below /v1", "GET", "/v1/agents/assistant/.well-known/agent-card.json", "", nil, 200, `"security":{"schemes":{"bearer":{"type":"http","scheme":"bearer"}}}`},
			{"a token below /v1", "POST", "/v1/agents/assistant/message:send", good, helloV1Body, 200, ""},
			{"nothing, tasks", "GET", "/tasks", "", nil, 401, ""},
			{"nothing, the schema", "GET", "/api/schema", "", nil, 401, ""},
			{"nothing, the list", "GET", "/agents", "", nil, 200, `"total":1`},
			{"nothing, a card", "GET", "/agents/assistant", "", nil, 200, `"security":[{"bearer":[]}]`},
			{"nothing, an internal card", "GET", "/agents/inside", "", nil, 404, ""},
			{"nothing, the default card", "GET", "/.well-known/agent-card.json", "", nil, 200, `"security_schemes":{"bearer":{"type":"http","scheme":"bearer","bearer_format":"JWT"}}`},
			{"a token, the list", "GET", "/agents", good, nil, 200, `"total":2`},
			{"health", "GET", "/health", "", nil, 200, `"auth":{"enabled":true,"type":"jwt","issuer":"` + o.url + `","audience":"stoa-test","client_id":"pages"}`},
			{"a bad token", "POST", "/agents/assistant", good[:len(good)-4] + "AAAA", helloCall, 401, ""},
			{"a bad token, the list", "GET", "/agents", good[:len(good)-4] + "AAAA", nil, 401, ""},
			{"another audience", "POST", "/agents/assistant", o.signToken(map[string]any{"aud": "other"}), helloCall, 401, ""},
			{"expired", "POST", "/agents/assistant", o.signToken(map[string]any{"exp": time.Now().Unix() - 1}), helloCall, 401, ""},
			{"a viewer calls", "POST", "/agents/assistant", o.signToken(map[string]any{"roles": []string{"viewer"}}), helloCall, 403, ""},
			{"an operator reads the schema", "GET", "/api/schema", o.signToken(map[string]any{"roles": []string{"operator"}}), nil, 200, ""},
			{"a scope narrows", "POST", "/agents/assistant", o.signToken(map[string]any{"scope": "openid agents:call:inside"}), helloCall, 403, "narrowed"},
			{"OpenID's scopes do not", "POST", "/agents/assistant", o.signToken(map[string]any{"scope": "openid profile"}), helloCall, 200, ""},
			{"an app by name", "POST", "/agents/assistant", o.signToken(map[string]any{"tenant_id": "acme"}), helloCall, 200, ""},
			{"an app by name, by its path", "POST", "/apps/acme/agents/assistant", o.signToken(map[string]any{"tenant_id": "acme"}), helloCall, 200, ""},
			{"an app by name, by another path", "POST", "/apps/default/agents/assistant", o.signToken(map[string]any{"tenant_id": "acme"}), helloCall, 404, ""},
			{"the default app's at another app", "POST", "/apps/acme/agents/assistant", good, helloCall, 404, ""},
			{"an app that is not there", "POST", "/agents/assistant", o.signToken(map[string]any{"tenant_id": "ghost"}), helloCall, 401, ""},
			{"an app's operator at the admin API", "GET", "/admin/apps", o.signToken(map[string]any{"roles": []string{"operator"}}), nil, 403, ""},
			{"the platform's at the admin API", "GET", "/admin/apps", o.signToken(map[string]any{"roles": []string{"platform_operator"}}), nil, 200, "acme"},
			{"the platform's at an agent", "POST", "/agents/assistant", o.signToken(map[string]any{"roles": []string{"platform_operator"}}), helloCall, 403, ""},
			{"a token of the house", "POST", "/agents/assistant", h.createToken(t, "default", "bob", nil), helloCall, 200, ""},
			{"without iat", "POST", "/agents/assistant", o.signToken(map[string]any{"iat": nil}), helloCall, 200, ""},
		})
		if n := o.fetches.Load(); n != 1 {
			t.Errorf("the keys were fetched %d times", n)
		}
		h.requireStatus(t, 204, nil, "POST", "/admin/apps/default/tokens:revoke", testSecret, map[string]any{"sub": "ana"})
		h.checkRequests(t, []requestCase{
			{"a revoked subject", "POST", "/agents/assistant", good, helloCall, 401, ""},
			{"a revoked subject, by a clock that is ahead", "POST", "/agents/assistant", o.signToken(map[string]any{"iat": time.Now().Unix() + 50}), helloCall, 401, ""},
			{"a revoked subject without iat", "POST", "/agents/assistant", o.signToken(map[string]any{"iat": nil}), helloCall, 401, ""},
			{"another subject without iat", "POST", "/agents/assistant", o.signToken(map[string]any{"iat": nil, "sub": "eve"}), helloCall, 200, ""},
		})
	})
	t.Run("not required", func(t *testing.T) {
		o := newForeignIssuer(t)
		h := openServerWith(t, newSQLiteURL(t), log, o.writeConfig(t, "    require_auth: false"))
		h.checkRequests(t, []requestCase{
			{"nothing", "POST", "/agents/assistant", "", helloCall, 200, "You said: hi"},
			{"nothing, an internal agent", "POST", "/agents/inside", "", helloCall, 404, ""},
			{"nothing, the schema", "GET", "/api/schema", "", nil, 403, ""},
			{"nothing, tasks", "GET", "/tasks", "", nil, 200, ""},
			{"nothing, a card", "GET", "/agents/assistant", "", nil, 200, `"security_schemes"`},
			{"a token", "POST", "/agents/inside", o.signToken(nil), helloCall, 200, ""},
			{"a bad one", "POST", "/agents/assistant", "a.b.c", helloCall, 401, ""},
		})
		if _, card := h.doRequest(t, "GET", "/agents/assistant", "", nil); strings.Contains(card, `"security":`) {
			t.Errorf("the card demands a credential: %s", card)
		}
	})
	t.Run("excluded", func(t *testing.T) {
		o := newForeignIssuer(t)
		h := openServerWith(t, newSQLiteURL(t), log, o.writeConfig(t, "    excluded_paths: [/agents/]"))
		h.checkRequests(t, []requestCase{
			{"nothing", "POST", "/agents/assistant", "", helloCall, 200, ""},
			{"nothing, by the app's path", "POST", "/apps/default/agents/assistant", "", helloCall, 200, ""},
			{"nothing, an internal agent", "POST", "/agents/inside", "", helloCall, 404, ""},
			{"nothing, what is not on the list", "POST", "/v1/agents/assistant/message:send", "", helloV1Body, 401, ""},
			{"nothing, tasks", "GET", "/tasks", "", nil, 401, ""},
			{"nothing, the list", "GET", "/agents", "", nil, 200, ""},
			{"nothing, the default card", "GET", "/.well-known/agent-card.json", "", nil, 200, `"name":"assistant"`},
			{"a token, the default card", "GET", "/.well-known/agent-card.json", o.signToken(nil), nil, 200, ""},
			{"health", "GET", "/health", "", nil, 200, ""},
		})
	})
	t.Run("refuses to start", func(t *testing.T) {
		o := newForeignIssuer(t)
		o.down.Store(true)
		if _, err := prepareServer(t, newSQLiteURL(t), log, o.writeConfig(t, "")); err == nil || !strings.Contains(err.Error(), o.url+"/jwks") {
			t.Errorf("with unreachable keys it starts: %v", err)
		}
	})
	t.Run("recreated app", func(t *testing.T) {
		o := newForeignIssuer(t)
		h := openServerWith(t, newSQLiteURL(t), log, o.writeConfig(t, ""))
		create := map[string]any{"name": "acme", "config": "llms: {default: {provider: scripted}}\nagents: {assistant: {}}"}
		h.requireStatus(t, 201, nil, "POST", "/admin/apps", testSecret, create)
		old, timeless := o.signToken(map[string]any{"tenant_id": "acme"}), o.signToken(map[string]any{"tenant_id": "acme", "iat": nil})
		h.requireStatus(t, 200, nil, "POST", "/agents/assistant", old, helloCall)
		h.requireStatus(t, 200, nil, "POST", "/agents/assistant", timeless, helloCall)
		h.requireStatus(t, 204, nil, "DELETE", "/admin/apps/acme", testSecret, nil)
		h.requireStatus(t, 401, nil, "POST", "/agents/assistant", old, helloCall)
		h.requireStatus(t, 201, nil, "POST", "/admin/apps", testSecret, create)
		h.requireStatus(t, 401, nil, "POST", "/agents/assistant", old, helloCall)
		h.requireStatus(t, 401, nil, "POST", "/agents/assistant", timeless, helloCall)
		h.requireStatus(t, 401, nil, "POST", "/agents/assistant", o.signToken(map[string]any{"tenant_id": "acme", "iat": time.Now().Unix() + 50}), helloCall)
		h.requireStatus(t, 200, nil, "POST", "/agents/assistant", h.createToken(t, "acme", "ana", nil), helloCall)
	})
}

// TestAppIssuer gives apps issuers of their own, in two processes on one database.
func TestAppIssuer(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	database := dbtest.NewPostgresURL(t)
	server, specific, shared := newForeignIssuer(t), newForeignIssuer(t), newForeignIssuer(t)
	file := server.writeConfig(t, "")
	h, other := openServerWith(t, database, log, file), openServerWith(t, database, log, file)
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
	h.checkRequests(t, []requestCase{
		{"a private address", "POST", "/admin/apps", testSecret, app("acme", map[string]any{"issuer": "https://east", "jwks_url": "https://127.0.0.1:1/", "audience": "east"}), 400, "auth.jwks_url"},
		{"a private address in disguise", "POST", "/admin/apps", testSecret, app("acme", map[string]any{"issuer": "https://east", "jwks_url": "https://127.1:1/", "audience": "east"}), 400, "leads into a private network"},
		{"a name of nobody", "POST", "/admin/apps", testSecret, app("acme", map[string]any{"issuer": "https://east", "jwks_url": "https://nobody..example/", "audience": "east"}), 400, "does not resolve"},
		{"no grant", "POST", "/admin/apps", testSecret, app("acme", auth(specific, "acme")), 400, "private_network"},
		{"a field missing", "POST", "/admin/apps", testSecret, app("acme", map[string]any{"issuer": specific.url}, "private_network"), 400, "auth.jwks_url"},
		{"a field misspelt", "POST", "/admin/apps", testSecret, app("acme", auth(specific, "acme", "audiences", "x"), "private_network"), 400, "auth"},
		{"fetched too often", "POST", "/admin/apps", testSecret, app("acme", auth(specific, "acme", "refresh_interval", "1s"), "private_network"), 400, "auth.refresh_interval"},
		{"the server's own", "POST", "/admin/apps", testSecret, app("acme", auth(server, "stoa-test"), "private_network"), 409, "the server's own"},
		{"one", "POST", "/admin/apps", testSecret, app("acme", auth(specific, "acme", "client_id", "pages"), "private_network"), 201, `"client_id":"pages"`},
		{"the same again", "POST", "/admin/apps", testSecret, app("globex", auth(specific, "acme"), "private_network"), 409, "for the app acme already"},
		{"the same by name", "POST", "/admin/apps", testSecret, app("globex", auth(specific, "acme", "require_tenant_id", true), "private_network"), 409, "for the app acme already"},
		{"another audience", "POST", "/admin/apps", testSecret, app("globex", auth(specific, "globex"), "private_network"), 201, ""},
		{"by name", "POST", "/admin/apps", testSecret, app("north", auth(shared, "both", "require_tenant_id", true), "private_network"), 201, ""},
		{"by name as well", "POST", "/admin/apps", testSecret, app("south", auth(shared, "both", "require_tenant_id", true), "private_network"), 201, ""},
		{"beside those by name", "POST", "/admin/apps", testSecret, app("west", auth(shared, "both"), "private_network"), 409, "already"},
	})
	dbtest.WaitUntil(t, "the other process takes the token", func() bool {
		status, _ := other.doRequest(t, "POST", "/agents/assistant", specific.signToken(map[string]any{"aud": "acme"}), helloCall)
		return status == 200
	})
	for _, h := range []*testServer{h, other} {
		dbtest.WaitUntil(t, "all are known", func() bool {
			status, _ := h.doRequest(t, "GET", "/agents", shared.signToken(map[string]any{"aud": "both", "tenant_id": "south"}), nil)
			return status == 200
		})
		h.checkRequests(t, []requestCase{
			{"acme", "GET", "/apps/acme/agents", specific.signToken(map[string]any{"aud": "acme"}), nil, 200, ""},
			{"acme, named", "GET", "/apps/acme/agents", specific.signToken(map[string]any{"aud": "acme", "tenant_id": "acme"}), nil, 200, ""},
			{"acme's at another app", "GET", "/apps/globex/agents", specific.signToken(map[string]any{"aud": "acme"}), nil, 404, ""},
			{"acme's audience, another's name", "GET", "/agents", specific.signToken(map[string]any{"aud": "acme", "tenant_id": "globex"}), nil, 401, ""},
			{"globex", "GET", "/apps/globex/agents", specific.signToken(map[string]any{"aud": "globex"}), nil, 200, ""},
			{"both audiences", "GET", "/agents", specific.signToken(map[string]any{"aud": []string{"acme", "globex"}}), nil, 401, ""},
			{"an audience of nobody", "GET", "/agents", specific.signToken(map[string]any{"aud": "stoa-test"}), nil, 401, ""},
			{"no operator comes of it", "GET", "/admin/apps", specific.signToken(map[string]any{"aud": "acme", "roles": []string{"platform_operator"}}), nil, 403, ""},
			{"north by name", "GET", "/apps/north/agents", shared.signToken(map[string]any{"aud": "both", "tenant_id": "north"}), nil, 200, ""},
			{"south by name", "GET", "/apps/south/agents", shared.signToken(map[string]any{"aud": "both", "tenant_id": "south"}), nil, 200, ""},
			{"by no name", "GET", "/agents", shared.signToken(map[string]any{"aud": "both"}), nil, 401, ""},
			{"the server's issuer speaks for it too", "GET", "/apps/acme/agents", server.signToken(map[string]any{"tenant_id": "acme"}), nil, 200, ""},
		})
	}
	h.requireStatus(t, 200, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"display_name": "Acme"})
	h.checkRequests(t, []requestCase{{"what is left out stays", "GET", "/admin/apps/acme", testSecret, nil, 200, specific.url}})
	token := specific.signToken(map[string]any{"aud": "acme"})
	h.requireStatus(t, 200, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"auth": nil})
	for _, h := range []*testServer{h, other} {
		dbtest.WaitUntil(t, "an issuer that was taken away is refused", func() bool {
			status, _ := h.doRequest(t, "GET", "/agents", token, nil)
			return status == 401
		})
	}
	h.requireStatus(t, 200, nil, "PATCH", "/admin/apps/globex", testSecret, map[string]any{"auth": auth(specific, "acme")})
	dbtest.WaitUntil(t, "what became free may be another's", func() bool {
		status, _ := other.doRequest(t, "GET", "/apps/globex/agents", token, nil)
		return status == 200
	})
	h.requireStatus(t, 400, nil, "PATCH", "/admin/apps/globex", testSecret, map[string]any{"grants": []string{}})
	if _, body := h.doRequest(t, "GET", "/admin/audit?app=acme", testSecret, nil); !strings.Contains(body, `"auth.issuer":{"after":"hmac-sha256:`) || strings.Contains(body, specific.url) {
		t.Errorf("the audit trail does not contain the hash of the issuer: %s", body)
	}
}
