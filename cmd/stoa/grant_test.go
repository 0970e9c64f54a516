package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stoa/cmd/stoa/server"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// grantedConfig is an app that shows the files of a folder and runs cat in another.
const grantedConfig = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^read (?P<file>.+)$"}
        then: [{call: {tool: read, arguments: {path: "{{file}}"}}}]
      - when: {text: "^run (?P<line>.+)$"}
        then: [{call: {tool: shell, arguments: {command: "{{line}}"}}}]
      - when: {tool_result: read}
        then: [{say: "{{result}}"}]
      - when: {tool_result: shell}
        then: [{say: "{{result}}"}]
agents: {assistant: {llm: demo, tools: [read, shell]}}
tools:
  read: {type: function, handler: read_file, working_directory: %q}
  shell: {type: command, working_directory: %q, allowed_commands: [cat, bash, id, chmod, cp], require_approval: false}
`

// TestGrantedFolders checks that a tenant reaches the folders of its grants and nothing else of the host: not by its
// configuration and not by symbolic links that its programs create. The server's own folders and the system's cannot
// be granted.
func TestGrantedFolders(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		root, outside := filepath.Join(dir, "acme"), filepath.Join(dir, "globex")
		files, programs := filepath.Join(root, "files"), filepath.Join(root, "programs")
		for _, folder := range []string{files, programs, outside} {
			if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // programs run as another user
				t.Fatal(err)
			}
		}
		if err := h.Dependencies.Sandbox.ChownFolder(programs); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{filepath.Join(files, "notes.txt"): "buy tea", filepath.Join(outside, "notes.txt"): "a secret"} {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil { //nolint:gosec // its mode must not be what protects it
				t.Fatal(err)
			}
		}
		// on PostgreSQL the current folder, which has no data of the server
		data := filepath.Dir(server.SecretsFile(h.Settings.Database.URL))
		if h.db.Engine() == db.Postgres {
			data = filepath.Dir(h.DefaultApp.Path())
		}
		src := func(read, shell string) string { return fmt.Sprintf(grantedConfig, read, shell) }
		create := func(name string, grants any, src string) (int, string) {
			return h.doRequest(t, "POST", "/admin/apps", testSecret, map[string]any{"name": name, "config": src, "grants": grants})
		}
		both := func(root string) []any {
			return []any{map[string]any{"filesystem": []string{root}}, map[string]any{"command": []string{root}}}
		}
		abs, err := filepath.Abs(data)
		if err != nil {
			t.Fatal(err)
		}
		ownFolder := "data, configuration or secrets of this server"
		if strings.HasPrefix(abs, "/root/") {
			ownFolder = "which no grant reaches" // the project's own folder is in one of the system's
		}
		for _, c := range []struct {
			grants any
			src    string
			says   string
		}{
			{[]any{"filesystem"}, src(files, programs), `{\"filesystem\": [\"/srv/acme\"]}, on the command line --grant filesystem=/srv/acme`},
			{[]any{"command"}, src(files, programs), `{\"command\": [\"/srv/acme\"]}`},
			{both("/"), src(files, programs), "name a folder in it"},
			{both("/etc"), src("/etc", "/etc"), "which no grant reaches"},
			{both("/proc/sys"), src("/proc/sys", "/proc/sys"), "which no grant reaches"},
			{both(abs), src(abs, abs), ownFolder},
			{both(filepath.Join(abs, "backup")), src(abs, abs), ownFolder},
			{both(root), src(outside, programs), "lies below none of the folders that the operator has granted by filesystem"},
			{both(root), src(files, outside), "lies below none of the folders that the operator has granted by command"},
			{both(root), src(files, filepath.Join(root, "..", "globex")), "lies below none of the folders that the operator has granted by command"},
		} {
			if status, body := create("acme", c.grants, c.src); status != http.StatusBadRequest || !strings.Contains(body, c.says) {
				t.Errorf("%v: %d %s, want %s", c.grants, status, body, c.says)
			}
		}
		if status, body := create("acme", both(root), src(files, programs)); status != http.StatusCreated || !strings.Contains(strings.Join(strings.Fields(body), ""), fmt.Sprintf(`"grants":[{"command":[%q]},{"filesystem":[%q]}]`, root, root)) {
			t.Fatalf("%d %s", status, body)
		}
		token := h.createToken(t, "acme", "ana", nil)
		send := func(text string) string {
			_, body := h.doRequest(t, "POST", "/apps/acme/agents/assistant", token, newRPCCall("message/send", newTextMessage(text)))
			return body
		}
		if body := send("read notes.txt"); !strings.Contains(body, "buy tea") {
			t.Error(body)
		}
		if body := send("run id -u"); os.Getuid() == 0 && !strings.Contains(body, "65534") {
			t.Errorf("a tenant's program runs as root: %s", body)
		}
		for _, line := range []string{"run cat " + filepath.Join(outside, "notes.txt"), "run cat /etc/shadow", "run cat " + filepath.Join(abs, "stoa.secrets"), "run bash -c 'cat ../../globex/*'"} {
			if body := send(line); strings.Contains(body, "a secret") || strings.Contains(body, "STOA_") || strings.Contains(body, "root:") {
				t.Errorf("%s: %s", line, body)
			}
		}
		send("run cp /usr/bin/bash mine")
		send("run chmod 6755 mine")
		if info, err := os.Stat(filepath.Join(programs, "mine")); err != nil || info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			t.Errorf("%v %v", info, err)
		}
		// A folder that existed when the app was created is a symbolic link when it is used.
		for _, folder := range []string{files, programs} {
			if err := os.Rename(folder, folder+".old"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(outside, folder); err != nil {
				t.Fatal(err)
			}
		}
		for _, line := range []string{"read notes.txt", "run cat notes.txt"} {
			if body := send(line); strings.Contains(body, "a secret") || !strings.Contains(body, "the folder no longer exists") {
				t.Errorf("%s: %s", line, body)
			}
		}
	})
}

// TestStoredGrants checks an app whose grant was stored without folders by an earlier version: the app loads and
// shows the grant, the grant gives nothing, and the error describes what to do.
func TestStoredGrants(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		dir := t.TempDir()
		src := "llms: {m: {provider: scripted}}\nagents: {assistant: {llm: m, tools: [read]}}\ntools: {read: {type: function, handler: read_file, working_directory: " + dir + "}}\n"
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret,
			map[string]any{"name": "acme", "config": src, "grants": []any{map[string]any{"filesystem": []string{dir}}}})
		var b db.Batch
		b.Exec(nil, `UPDATE app SET grants = $1 WHERE name = 'acme'`, `["filesystem"]`)
		if err := h.db.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		var app struct {
			Grants json.RawMessage `json:"grants"`
		}
		h.requireStatus(t, http.StatusOK, &app, "GET", "/admin/apps/acme", testSecret, nil)
		if got := strings.Join(strings.Fields(string(app.Grants)), ""); got != `["filesystem"]` {
			t.Errorf("grants %s", got)
		}
		status, body := h.doRequest(t, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"secrets": map[string]string{"A": "b"}})
		if status != http.StatusBadRequest || !strings.Contains(body, "has granted filesystem without naming folders") {
			t.Errorf("%d %s", status, body)
		}
		h.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"display_name": "Acme"})
		h.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"grants": []any{map[string]any{"filesystem": []string{dir}}}})
	})
}

// TestExternalDatabaseIsOneFile checks that an app's SQLite file cannot be another app's or the platform's, under any
// name.
func TestExternalDatabaseIsOneFile(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, "sqlite://"+filepath.Join(t.TempDir(), "stoa.db"))
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other.db")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	platform := strings.TrimPrefix(h.Settings.Database.URL, "sqlite://")
	for name, make := range map[string]func(at string) error{
		"hard link":          func(at string) error { return os.Link(platform, at) },
		"link":               func(at string) error { return os.Symlink(platform, at) },
		"hard link of other": func(at string) error { return os.Link(other, at) },
		"journal":            func(at string) error { return os.Symlink(other, at+"-wal") },
	} {
		at := filepath.Join(root, strings.ReplaceAll(name, " ", "-")+".db")
		if err := make(at); err != nil {
			t.Fatal(err)
		}
		src := fmt.Sprintf("{llms: {m: {provider: scripted}}, agents: {a: {llm: m}}, storage: {sessions: {database: own}}, databases: {own: {driver: sqlite, database: %q}}}", at)
		status, body := h.doRequest(t, "POST", "/admin/apps", testSecret,
			map[string]any{"name": "acme", "config": src, "grants": []any{"sqlite", map[string]any{"filesystem": []string{root}}}})
		if status != http.StatusBadRequest || !strings.Contains(body, "databases.own.database") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

// TestDatabaseApartFromPrograms checks that no program or tool that a tenant controls can write in a folder with the
// SQLite file of an app, its own or another's.
func TestDatabaseApartFromPrograms(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		root, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		for _, folder := range []string{"db", "tools"} {
			if err := os.Mkdir(filepath.Join(root, folder), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		files, programs := filepath.Join(root, "db"), filepath.Join(root, "tools")
		grants := func(words ...string) grant.List { return grant.ParseList(words) }
		src := func(file, tools string) string {
			return fmt.Sprintf("{llms: {m: {provider: scripted}}, agents: {a: {llm: m}}, storage: {sessions: {database: own}}, databases: {own: {driver: sqlite, database: %q}}, tools: {%s}}", file, tools)
		}
		plain := "{llms: {m: {provider: scripted}}, agents: {a: {llm: m}}}"
		request := func(method, path, name, src string, grants grant.List) (int, string) {
			return h.doRequest(t, method, path, testSecret, map[string]any{"name": name, "config": src, "grants": grants})
		}
		for _, c := range []struct {
			src    string
			grants grant.List
			want   string
		}{
			{src(filepath.Join(files, "own.db"), ""), grants("sqlite", "filesystem="+files, "command="+files), "by the grant command"},
			{src(filepath.Join(files, "own.db"), ""), grants("sqlite", "filesystem="+files, "command="+root), "by the grant command"},
			{src(filepath.Join(files, "own.db"), fmt.Sprintf("w: {type: function, handler: write_file, working_directory: %q}", files)), grants("sqlite", "filesystem="+root), `the tool \"w\" writes files`},
		} {
			status, body := request("POST", "/admin/apps", "acme", c.src, c.grants)
			if status != http.StatusBadRequest || !strings.Contains(body, "databases.own.database") || !strings.Contains(body, c.want) {
				t.Errorf("%v: %d %s", c.grants, status, body)
			}
		}
		acme := grants("sqlite", "filesystem="+files, "command="+programs)
		if status, body := request("POST", "/admin/apps", "acme", src(filepath.Join(files, "own.db"), ""), acme); status != http.StatusCreated {
			t.Fatalf("%d %s", status, body)
		}
		for _, c := range []struct {
			grants grant.List
			want   string
		}{
			{grants("command=" + files), "command: the folder " + files},
			{grants("command=" + root), "the app acme has SQLite files"},
			{grants("sqlite", "filesystem="+root), "the app acme runs programs in " + programs},
		} {
			if status, body := request("POST", "/admin/apps", "globex", plain, c.grants); status != http.StatusBadRequest || !strings.Contains(body, c.want) {
				t.Errorf("%v: %d %s", c.grants, status, body)
			}
		}
		if status, body := request("POST", "/admin/apps", "globex", plain, grants("filesystem="+root)); status != http.StatusCreated {
			t.Fatalf("%d %s", status, body)
		}
		if status, body := h.doRequest(t, "PATCH", "/admin/apps/globex", testSecret, map[string]any{"grants": grants("command=" + files)}); status != http.StatusBadRequest || !strings.Contains(body, "SQLite files") {
			t.Errorf("%d %s", status, body)
		}
	})
}
