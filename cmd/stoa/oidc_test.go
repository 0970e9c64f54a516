package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"stoa/tenancy/db/dbtest"
)

// startOpenIDProvider starts a certified OpenID provider and returns its address.
func startOpenIDProvider(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("STOA_TEST_OIDC_PROVIDER")
	if folder == "" {
		dbtest.SkipMissing(t, "without STOA_TEST_OIDC_PROVIDER (the folder that .ci/oidc-provider prints) tokens of a real OpenID provider are not tested")
	}
	cmd := exec.Command("node", "testdata/oidc-provider.mjs", folder)
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "http://") {
			return lines.Text()
		}
	}
	t.Fatal("the provider does not start")
	return ""
}

// requestToken requests a token from the provider as one of its clients.
func requestToken(t *testing.T, provider, client, resource, scope string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "resource": {resource}, "scope": {scope}}
	req, err := http.NewRequest(http.MethodPost, provider+"/token", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(client, "secret")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct {
		AccessToken string `json:"access_token"`
		Error       string `json:"error_description"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || out.AccessToken == "" {
		t.Fatalf("no token for %s: %v %s", client, err, out.Error)
	}
	return out.AccessToken
}

// TestOpenIDProvider checks that tokens of a real provider are accepted, configured by its discovery document, with
// each kind of key.
func TestOpenIDProvider(t *testing.T) {
	t.Parallel()
	provider := startOpenIDProvider(t)
	resp, err := http.Get(provider + "/.well-known/openid-configuration")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var says struct {
		Issuer  string
		JWKSURI string `json:"jwks_uri"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&says); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "stoa.yaml")
	src := fmt.Sprintf(`
llms: {default: {provider: scripted}}
agents: {assistant: {}}
server: {auth: {enabled: true, issuer: %q, jwks_url: %q, audience: "https://stoa.test/api"}}
`, says.Issuer, says.JWKSURI)
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	h := openServerWith(t, newSQLiteURL(t), slog.New(slog.DiscardHandler), file)
	app := map[string]any{"config": "llms: {default: {provider: scripted}}\nagents: {assistant: {}}", "grants": []string{"private_network"}}
	app["name"] = "acme"
	h.requireStatus(t, 201, nil, "POST", "/admin/apps", testSecret, app)
	app["name"], app["auth"] = "globex", map[string]any{"issuer": says.Issuer, "jwks_url": says.JWKSURI, "audience": "https://globex.test"}
	h.requireStatus(t, 201, nil, "POST", "/admin/apps", testSecret, app)
	get := func(client, resource, scope string) string { return requestToken(t, provider, client, resource, scope) }
	const api, globex = "https://stoa.test/api", "https://globex.test"
	dbtest.WaitUntil(t, "the app's issuer is known", func() bool {
		status, _ := h.doRequest(t, "GET", "/apps/globex/agents", get("rsa", globex, ""), nil)
		return status == 200
	})
	h.checkRequests(t, []requestCase{
		{"RS256", "POST", "/agents/assistant", get("rsa", api, ""), helloCall, 200, "You said: hi"},
		{"ES256", "POST", "/agents/assistant", get("ec", api, ""), helloCall, 200, "You said: hi"},
		{"EdDSA", "POST", "/agents/assistant", get("ed", api, ""), helloCall, 200, "You said: hi"},
		{"a role", "GET", "/api/schema", get("ed", api, ""), nil, 200, ""},
		{"no role", "GET", "/api/schema", get("ec", api, ""), nil, 403, ""},
		{"a scope that narrows nothing", "POST", "/agents/assistant", get("rsa", api, "profile"), helloCall, 200, ""},
		{"a scope that narrows", "POST", "/agents/assistant", get("rsa", api, "profile agents:read"), helloCall, 403, ""},
		{"another resource", "POST", "/agents/assistant", get("rsa", "https://elsewhere.test", ""), helloCall, 401, ""},
		{"an app by name", "GET", "/apps/acme/tasks", get("acme", api, ""), nil, 200, ""},
		{"an app by name, its role", "POST", "/agents/assistant", get("acme", api, ""), helloCall, 403, ""},
		{"the platform's operator", "GET", "/admin/apps", get("root", api, ""), nil, 200, "globex"},
		{"an app's own", "POST", "/apps/globex/agents/assistant", get("ed", globex, ""), helloCall, 200, ""},
		{"an app's own elsewhere", "GET", "/apps/acme/agents", get("ed", globex, ""), nil, 404, ""},
		{"an app's own with another's name", "GET", "/agents", get("acme", globex, ""), nil, 401, ""},
		{"an app's own makes no operator", "GET", "/admin/apps", get("root", globex, ""), nil, 403, ""},
	})
}
