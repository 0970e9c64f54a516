package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stoa/cmd/stoa/server"
)

// studioConfig is an operator's file with the studio on, with comments and an order of its own.
const studioConfig = `# two assistants
agents:
  zoe: {llm: default} # first
  assistant: {}
llms: {default: {provider: scripted}}
server:
  studio: {enabled: true}
  port: ${STUDIO_TEST_PORT:8080}
`

// writeStudioFile writes a configuration with mode 0640 and returns its path.
func writeStudioFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stoa.yaml")
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

// sendStudio sends a request to the studio and returns the response's status, tag and body.
func (ts *testServer) sendStudio(t *testing.T, method, bearer, ifMatch, kind, text string) (status int, tag, body string) {
	t.Helper()
	var content any
	if method == http.MethodPost {
		content = text
	}
	req := ts.newRequest(t, method, "/api/config", bearer, content)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if ifMatch != "" {
		req.Header.Set("If-Match", ifMatch)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("ETag"), string(answer)
}

// checkStudio sends a text to the studio for a dry run.
func (ts *testServer) checkStudio(t *testing.T, text string) (status int, body string) {
	t.Helper()
	req := ts.newRequest(t, http.MethodPost, "/api/config?dry_run=true", "", text)
	req.Header.Set("Content-Type", "application/yaml")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// TestStudio checks that the studio reads and replaces the operator's file, and what it refuses.
func TestStudio(t *testing.T) {
	t.Parallel()
	path := writeStudioFile(t, studioConfig)
	link := filepath.Join(t.TempDir(), "linked.yaml")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	ts := openServerWith(t, newSQLiteURL(t), slog.New(slog.DiscardHandler), link)
	if _, body := ts.doRequest(t, "GET", "/health", "", nil); !strings.Contains(body, `"studio_mode":true,`) || !strings.Contains(body, `"studio":{"enabled":true,"allowed_roles":["operator","admin"]}`) {
		t.Errorf("health: %s", body)
	}
	status, tag, text := ts.sendStudio(t, "GET", "", "", "", "")
	if status != 200 || text != studioConfig || tag == "" {
		t.Fatalf("%d %s %q", status, tag, text)
	}

	refused := []struct {
		name, kind, text, ifMatch string
		status                    int
		contains                  string
	}{
		{"another port", "application/yaml", strings.Replace(studioConfig, "8080", "9090", 1), "", 400, `"path":"server.port","line":8,`},
		{"no server block", "application/yaml", "agents: {assistant: {}}\nllms: {default: {provider: scripted}}\n", "", 400, `"path":"server"`},
		{"a misspelled key", "application/yaml", strings.Replace(studioConfig, "llm: default", "lmm: default", 1), "", 400, `"path":"agents.zoe.lmm","line":3,"column":9,"message":"is not a known key","suggestion":"llm"`},
		{"two mistakes", "application/yaml", strings.Replace(studioConfig, "{}", "{llm: nosuch, type: loop}", 1), "", 400, `"path":"agents.assistant.llm"`},
		{"no YAML", "application/yaml", studioConfig + "\n\tx", "", 400, "is not valid YAML"},
		{"a page's form", "text/plain", studioConfig, "", 400, "Content-Type"},
		{"a file that has changed", "application/yaml", studioConfig, `"0123"`, 412, "has changed"},
	}
	for _, tt := range refused {
		if status, _, body := ts.sendStudio(t, "POST", "", tt.ifMatch, tt.kind, tt.text); status != tt.status || !strings.Contains(body, tt.contains) {
			t.Errorf("%s: %d %s, want %d with %s", tt.name, status, body, tt.status, tt.contains)
		}
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != studioConfig {
		t.Fatalf("%v %q", err, now)
	}

	next := strings.Replace(studioConfig, "  assistant: {}\n", "  assistant: {} # kept\n  added: {}\n", 1)
	for _, tt := range []struct {
		name, text string
		status     int
		contains   string
	}{
		{"a valid text", next, 200, `{"status":"valid"`},
		{"a misspelled key", strings.Replace(studioConfig, "llm: default", "lmm: default", 1), 400, `"path":"agents.zoe.lmm","line":3,"column":9`},
		{"another port", strings.Replace(studioConfig, "8080", "9090", 1), 400, `"path":"server.port"`},
	} {
		if status, body := ts.checkStudio(t, tt.text); status != tt.status || !strings.Contains(body, tt.contains) {
			t.Errorf("a dry run of %s: %d %s", tt.name, status, body)
		}
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != studioConfig {
		t.Fatalf("after dry runs: %v %q", err, now)
	}
	status, saved, body := ts.sendStudio(t, "POST", "", tag, "application/yaml", next)
	var answer struct{ Status, Message string }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 200 || answer.Status != "saved" || answer.Message == "" {
		t.Fatalf("%d %s", status, body)
	}
	if status, _, body := ts.sendStudio(t, "POST", "", tag, "application/yaml", studioConfig); status != 412 {
		t.Errorf("over another's change: %d %s", status, body)
	}
	if _, now, text := ts.sendStudio(t, "GET", "", "", "", ""); text != next || now != saved {
		t.Errorf("%s %s %q", now, saved, text)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v %v", err, info.Mode())
	}
	if to, err := os.Readlink(link); err != nil || to != path {
		t.Errorf("the link: %v %s", err, to)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%v: %v is left beside the file", err, entries)
	}
	if status, body := ts.doRequest(t, "POST", "/agents/added", "", helloCall); status != 200 || !strings.Contains(body, "You said: hi") {
		t.Errorf("the new agent: %d %s", status, body)
	}
	if entries := ts.listAuditEntries(t, "app=default"); len(entries) != 2 || entries[1].Action != "config.load" || entries[1].Actor != "anonymous" {
		t.Errorf("%+v", entries)
	}
	// A file that another program has emptied can be written again, without the server block.
	if err := os.WriteFile(path, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if status, tag, text := ts.sendStudio(t, "GET", "", "", "", ""); status != 200 || text != "" {
		t.Errorf("an emptied file: %d %q", status, text)
	} else if status, _, body := ts.sendStudio(t, "POST", "", tag, "application/yaml", "agents: {assistant: {}}\nllms: {default: {provider: scripted}}\n"); status != 200 {
		t.Errorf("over an emptied file: %d %s", status, body)
	}
	for _, empty := range []string{"", " \n"} {
		if status, _, body := ts.sendStudio(t, "POST", "", "", "application/yaml", empty); status != 400 || !strings.Contains(body, `"message":"is empty`) {
			t.Errorf("%q: %d %s", empty, status, body)
		}
		if status, body := ts.checkStudio(t, empty); status != 400 || !strings.Contains(body, `"message":"is empty`) {
			t.Errorf("a dry run of %q: %d %s", empty, status, body)
		}
	}
	// A folder that the server may not write to: nothing changes.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if status, _, body := ts.sendStudio(t, "POST", "", "", "application/yaml", next); status != 503 || !strings.Contains(body, "does not exist") {
		t.Errorf("without the file: %d %s", status, body)
	}
}

// TestStudioRoles checks who may use the studio under server.auth.
func TestStudioRoles(t *testing.T) {
	t.Parallel()
	o := newForeignIssuer(t)
	ts := openServerWith(t, newSQLiteURL(t), slog.New(slog.DiscardHandler), o.writeConfig(t, "  studio: {enabled: true, allowed_roles: [editor, admin]}"))
	ts.requireStatus(t, 201, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": "llms: {default: {provider: scripted}}\nagents: {assistant: {}}"})
	role := func(role, scope string) string {
		return o.signToken(map[string]any{"roles": []string{role}, "scope": scope})
	}
	ts.checkRequests(t, []requestCase{
		{"nothing", "GET", "/api/config", "", nil, 401, ""},
		{"another role", "GET", "/api/config", role("operator", ""), nil, 403, "allowed_roles"},
		{"a role of the list", "GET", "/api/config", role("editor", ""), nil, 200, "server:"},
		{"a narrowed token", "GET", "/api/config", role("admin", "agents:call"), nil, 403, "config:read"},
		{"a token that may read writes", "POST", "/api/config", role("admin", "config:read"), map[string]any{}, 403, "config:write"},
		{"the admin secret", "GET", "/api/config", testSecret, nil, 403, ""},
		{"an app's admin", "GET", "/api/config", ts.createToken(t, "acme", "ana", map[string]any{"roles": []string{"admin"}}), nil, 404, "NOT_FOUND"},
	})
}

// TestStudioFlag checks that --studio turns the studio on, that it needs a file, and that without it there is none.
func TestStudioFlag(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	database, port, host, studio := newSQLiteURL(t), 0, "127.0.0.1", true
	plain := strings.Replace(studioConfig, "  studio: {enabled: true}\n", "", 1)
	h, err := openFlaggedServer(t, server.Flags{Database: &database, Port: &port, Host: &host, Studio: &studio}, log, writeStudioFile(t, plain))
	if err != nil {
		t.Fatal(err)
	}
	if status, _, text := startTestServer(t, h).sendStudio(t, "GET", "", "", "", ""); status != 200 || text != plain {
		t.Errorf("%d %q", status, text)
	}
	off := openServerWith(t, newSQLiteURL(t), log, writeStudioFile(t, plain))
	for _, method := range []string{"GET", "POST"} {
		if status, _, body := off.sendStudio(t, method, "", "", "application/yaml", plain); status != 404 || !strings.Contains(body, "NOT_FOUND") {
			t.Errorf("%s without the studio: %d %s", method, status, body)
		}
	}
	if _, body := off.doRequest(t, "GET", "/health", "", nil); !strings.Contains(body, `"studio_mode":false`) || strings.Contains(body, `"studio":`) {
		t.Errorf("health: %s", body)
	}
	database = newSQLiteURL(t)
	if _, err := openFlaggedServer(t, server.Flags{Database: &database, Port: &port, Host: &host, Studio: &studio}, log, ""); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("without a file: %v", err)
	}
}
