package admin_test

import (
	"net/http"
	"strings"
	"testing"

	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
)

// TestRefusedCredential checks that a caller learns that its credential was refused, and that only the log has the
// reason.
func TestRefusedCredential(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	h.CreateApp(t, "acme", "llms: {m: {provider: scripted}}\nagents: {a: {llm: m}}")
	token := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"})
	if resp, body := h.Do(t, http.MethodPost, "/admin/apps/acme/tokens:revoke", surfacetest.Secret, `{"sub": "ana"}`); resp.StatusCode >= 300 {
		t.Fatal(resp.StatusCode, body)
	}
	for _, tt := range []struct{ name, token, header, logged string }{
		{"none", "", "Bearer", ""},
		{"revoked", token, `Bearer error="invalid_token"`, "were revoked"},
		{"forged", token[:len(token)-8] + "AAAAAAAA", `Bearer error="invalid_token"`, "signature"},
	} {
		before := len(h.Log.String())
		resp, _ := h.Do(t, http.MethodGet, "/apps/acme/tasks", tt.token, nil)
		if got := resp.Header.Get("WWW-Authenticate"); resp.StatusCode != http.StatusUnauthorized || got != tt.header {
			t.Errorf("%s: %d %s", tt.name, resp.StatusCode, got)
		}
		if log := h.Log.String()[before:]; !strings.Contains(log, tt.logged) {
			t.Errorf("%s is logged as %s", tt.name, log)
		}
	}
}

// TestPrivateIssuer checks that an issuer is refused if its keys are at an address that the app may not reach.
func TestPrivateIssuer(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	h.CreateApp(t, "acme", "llms: {m: {provider: scripted}}\nagents: {a: {llm: m}}")
	sendPut := func(at string, grants ...string) int {
		body := map[string]any{"auth": map[string]any{"issuer": "https://login.example", "jwks_url": at, "audience": "agents"}, "grants": append([]string{}, grants...)}
		resp, _ := h.Do(t, http.MethodPatch, "/admin/apps/acme", surfacetest.Secret, body)
		return resp.StatusCode
	}
	for _, at := range []string{"https://127.0.0.1/jwks", "https://10.1.2.3:8443/jwks", "https://[::1]/jwks", "https://[::ffff:192.168.0.1]/jwks", "https://localhost/jwks", "https://169.254.1.1/jwks"} {
		if got := sendPut(at); got != http.StatusBadRequest {
			t.Errorf("%s: %d", at, got)
		}
		if got := sendPut(at, "private_network"); got != http.StatusOK {
			t.Errorf("%s with the grant: %d", at, got)
		}
		if got := sendPut("https://login.example/jwks"); got != http.StatusOK {
			t.Errorf("a public name: %d", got)
		}
	}
}
