package surface_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/agentsvctest"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
	"stoa/tenancy/apikey"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// TestFailedCredentials checks which refused credentials are reported for the audit trail, and about which app: the one
// whose credential it was, never one that the client only names.
func TestFailedCredentials(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []audit.FailedCredential
	serve := func(_ http.ResponseWriter, r *http.Request) error {
		return surface.RequestOf(r).Authorize(r.Context(), authz.AgentsCall, r.URL.Query().Get("agent"))
	}
	const guarded = `
llms: {demo: {provider: scripted}}
agents:
  assistant: {llm: demo}
  guarded: {llm: demo, security: {schemes: {key: {type: apiKey, name: X-Key, in: header}}, require: [key]}}
`
	h := surfacetest.New(t, surfacetest.Options{Default: guarded, Surface: surface.Options{Authentication: surface.Authentication{OnFailedCredential: func(f audit.FailedCredential) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, f)
	}}}}, func(*surfacetest.Fixture) []surface.Route {
		return []surface.Route{
			{Method: http.MethodGet, Pattern: "/call", Query: []string{"agent"}, Kind: surface.Tenant, Serve: serve},
			{Method: http.MethodPost, Pattern: "/admin/thing", Kind: surface.Admin, Serve: func(http.ResponseWriter, *http.Request) error { return nil }},
		}
	})
	h.CreateApp(t, "acme", guarded)
	app, err := h.Apps.LoadApp(t.Context(), "acme")
	ana, bob := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"}), h.MintToken(t, "acme", authz.TokenSpec{Subject: "bob"})
	agentsvctest.RequireNoErrors(t, err, h.Apps.Tokens.Revoke(t.Context(), audit.Actor{Name: "test"}, "acme", "bob"))
	newKey := func(expires time.Time) string {
		id := apikey.NewID()
		text := apikey.NewText("acme", id)
		_, _, err := h.Keys.Store.Create(t.Context(), audit.Actor{Name: "test"}, "acme", apikey.Key{ID: id, Name: id, Hash: apikey.Hash(text), Roles: []string{authz.RoleCaller}, ExpiresAt: expires})
		agentsvctest.RequireNoErrors(t, err)
		return text
	}
	key, expired := newKey(time.Time{}), newKey(time.Now().Add(-time.Hour))
	forged := ana[:strings.LastIndex(ana, ".")+1] + strings.Repeat("A", 86)
	failed := func(app db.ID, credential, reason string) []audit.FailedCredential {
		return []audit.FailedCredential{{AppID: app, Credential: credential, Reason: reason, Client: "127.0.0.1"}}
	}
	tests := []struct {
		name, method, path, credential string
		headers                        []string
		status                         int
		want                           []audit.FailedCredential
	}{
		{name: "good", path: "/call", credential: ana, status: 200},
		{name: "none", path: "/apps/acme/call", status: 401},
		{name: "good, of another app", path: "/apps/default/call", credential: ana, status: 404},
		{name: "good, but not the operator's", method: "POST", path: "/admin/thing", credential: ana, status: 403},
		{name: "no token", path: "/apps/acme/call", credential: "a.b.c", status: 401, want: failed("", "token", "invalid")},
		{name: "forged", path: "/apps/acme/call", credential: forged, status: 401, want: failed("", "token", "invalid")},
		{name: "forged, at the admin API", method: "POST", path: "/admin/thing", credential: forged, status: 401, want: failed("", "token", "invalid")},
		{name: "revoked", path: "/call", credential: bob, status: 401, want: failed(app.ID, "token", "revoked")},
		{name: "unknown key", path: "/call", credential: apikey.NewText("acme", apikey.NewID()), status: 401, want: failed("", "api_key", "invalid")},
		{name: "guess at a key", path: "/call", credential: key[:len(key)-1] + "!", status: 401, want: failed("", "admin_secret", "invalid")},
		{name: "wrong secret of a key", path: "/call", credential: key[:len(key)-4] + "aaaa", status: 401, want: failed(app.ID, "api_key", "invalid")},
		{name: "expired key", path: "/call", credential: expired, status: 401, want: failed(app.ID, "api_key", "expired")},
		{name: "wrong secret", method: "POST", path: "/admin/thing", credential: "guess", status: 401, want: failed("", "admin_secret", "invalid")},
		{name: "another scheme", path: "/call", headers: []string{"Authorization", "Basic Z3Vlc3M="}, status: 401, want: failed("", "other", "invalid")},
		{name: "another scheme, at the admin API", method: "POST", path: "/admin/thing", headers: []string{"Authorization", "Basic Z3Vlc3M="}, status: 401, want: failed("", "other", "invalid")},
		{name: "no key of the agent", path: "/call?agent=guarded", credential: ana, status: 401},
		{name: "wrong key of the agent", path: "/call?agent=guarded", credential: ana, headers: []string{"X-Key", "guess"}, status: 401, want: failed(app.ID, "agent_key", "invalid")},
		{name: "wrong key of the agent, anonymous", path: "/call?agent=guarded", headers: []string{"X-Key", "guess"}, status: 401, want: failed("", "agent_key", "invalid")},
	}
	for _, tt := range tests {
		method := tt.method
		if method == "" {
			method = "GET"
		}
		got = nil
		if resp, body := h.Do(t, method, tt.path, tt.credential, nil, tt.headers...); resp.StatusCode != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, resp.StatusCode, body, tt.status)
		}
		mu.Lock()
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		mu.Unlock()
	}
	// Wrong secrets that are throttled count as well.
	got = nil
	for range 15 {
		h.Do(t, "POST", "/admin/thing", "guess", nil)
	}
	if len(got) != 15 {
		t.Errorf("%d of 15 guesses are reported", len(got))
	}
}
