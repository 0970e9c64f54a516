package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy/db/dbtest"
)

// movedConfig is an app with a secret, documents and a conversation.
const movedConfig = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^warranty.$"}
        then: [{call: {tool: search_manual, arguments: {query: "warranty", limit: 5}}}]
      - when: {tool_result: search_manual}
        then: [{say: "Two years [1]."}]
      - then: [{say: "hello ${GREETING}"}]
document_stores:
  manual: {source: {type: upload}}
agents:
  assistant: {llm: demo, document_stores: [manual]}
`

// runMove runs a command of stoa app against a server and returns its messages.
func (ts *testServer) runMove(t *testing.T, wantCode int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if code := runCommand(t.Context(), append(append([]string{"app"}, args...), "--server", ts.url), &console{in: strings.NewReader(""), out: &out, err: &out}); code != wantCode {
		t.Fatalf("stoa app %s: exit code %d, want %d: %s", strings.Join(args, " "), code, wantCode, out.String())
	}
	return out.String()
}

// callRPC calls a method as the owner of a credential.
func (ts *testServer) callRPC(t *testing.T, credential, method string, params any) (int, string) {
	t.Helper()
	return ts.doRequest(t, "POST", "/agents/assistant", credential, newRPCCall(method, params))
}

// uploadDocument uploads a document and waits until it is found.
func (ts *testServer) uploadDocument(t *testing.T, token, id, text string) {
	t.Helper()
	path := "/v1/document-stores/manual/documents/" + id
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, ts.url+path, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "text/markdown")
	if status, answer := ts.sendRequest(t, req); status != http.StatusAccepted {
		t.Fatal(status, answer)
	}
	dbtest.WaitUntil(t, "the document is indexed", func() bool {
		_, answer := ts.doRequest(t, "GET", path, token, nil)
		return strings.Contains(answer, `"indexed"`)
	})
}

// readCommitted returns what a budget counts.
func (ts *testServer) readCommitted(t *testing.T, path string) (n int64) {
	t.Helper()
	var b struct{ Committed int64 }
	ts.requireStatus(t, http.StatusOK, &b, "GET", path, testSecret, nil)
	return b.Committed
}

// TestMoveApp moves an app with the commands from a server on SQLite to one on PostgreSQL and on to another on SQLite. Its
// API key, conversations and citations are the same there; tokens of the former server are not valid.
func TestMoveApp(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	secret := filepath.Join(folder, "passphrase")
	if err := os.WriteFile(secret, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := openTestServer(t, dbtest.NewSQLiteURL(t))
	first.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": movedConfig, "secrets": map[string]string{"GREETING": "world"}})
	first.createApp(t, "other", strings.ReplaceAll(movedConfig, "${GREETING}", "CANARY-B"))
	var key struct{ Key string }
	first.requireStatus(t, http.StatusCreated, &key, "POST", "/admin/apps/acme/keys", testSecret, map[string]any{"name": "shop"})
	token := first.createToken(t, "acme", "ana", nil)
	first.uploadDocument(t, first.createToken(t, "acme", "dev", map[string]any{"roles": []string{"developer"}}), "warranty.md", "The warranty lasts two years from the day of purchase.")
	_, opened := first.callRPC(t, key.Key, "message:send", newTextMessage("hi"))
	task := parseFacts(t, opened).ID
	_, cited := first.callRPC(t, key.Key, "message:send", newTextMessage("warranty?"))
	wantCitations := findCitations(t, cited)
	if len(wantCitations) != 1 || !strings.Contains(opened, "hello world") {
		t.Fatal(opened, cited)
	}
	_, wantTask := first.callRPC(t, key.Key, "tasks/get", map[string]any{"id": task})

	budget := map[string]any{"name": "cap", "unit": "calls", "amount": 1000, "window": "year", "hard": false}
	first.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps/acme/budgets", testSecret, budget)
	used := first.readCommitted(t, "/admin/apps/acme/budgets/cap")
	if used == 0 {
		t.Error("the budget counts no call")
	}

	source := first
	for i, url := range []string{dbtest.NewPostgresURL(t), dbtest.NewSQLiteURL(t)} {
		file := filepath.Join(folder, "acme-"+string(rune('1'+i)))
		source.runMove(t, exitFailed, "export", "acme", file, "--passphrase-file", secret) // it is active
		source.runMove(t, 0, "suspend", "acme")
		source.runMove(t, 0, "export", "acme", file, "--passphrase-file", secret)
		if content, err := os.ReadFile(file); err != nil || bytes.Contains(content, []byte("CANARY")) || bytes.Contains(content, []byte("GREETING}")) || !bytes.Contains(content, []byte("hello world")) {
			t.Errorf("the file has something of another app or the configuration in clear text, or no conversation (%v)", err)
		}
		target := openTestServer(t, url)
		target.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/budgets", testSecret, budget)
		if out := target.runMove(t, 0, "import", file, "--passphrase-file", secret); !strings.Contains(out, "acme imported") || !strings.Contains(out, "suspended") {
			t.Error(out)
		}
		for _, path := range []string{"/admin/apps/acme/budgets/cap", "/admin/budgets/cap"} {
			if got := target.readCommitted(t, path); got != used {
				t.Errorf("%s counts %d calls, the former installation %d", path, got, used)
			}
		}
		target.runMove(t, exitFailed, "import", file, "--passphrase-file", secret)
		if status, text := target.callRPC(t, key.Key, "message:send", newTextMessage("hi")); status != http.StatusForbidden {
			t.Errorf("before it is resumed the app answers %d %s", status, text)
		}
		target.runMove(t, 0, "resume", "acme")
		if out := source.runMove(t, 0, "delete", "acme", "--moved", "--yes"); !strings.Contains(out, "deleted") {
			t.Error(out)
		}

		_, gotTask := target.callRPC(t, key.Key, "tasks/get", map[string]any{"id": task})
		if diff := cmp.Diff(wantTask, gotTask); diff != "" {
			t.Errorf("the task is another one (-before +after)\n%s", diff)
		}
		status, again := target.callRPC(t, key.Key, "message:send", newTextMessage("hi", "context_id", parseFacts(t, opened).Context))
		if status != http.StatusOK || !strings.Contains(again, "hello world") || parseFacts(t, again).Context != parseFacts(t, opened).Context {
			t.Errorf("the conversation does not go on: %d %s", status, again)
		}
		_, cited := target.callRPC(t, key.Key, "message:send", newTextMessage("warranty?"))
		if diff := cmp.Diff(wantCitations, findCitations(t, cited)); diff != "" {
			t.Errorf("citations (-before +after)\n%s", diff)
		}
		if status, _ := target.callRPC(t, token, "message:send", newTextMessage("hi")); status != http.StatusUnauthorized {
			t.Errorf("a token of the former server is answered %d, want 401", status)
		}
		if _, text := target.doRequest(t, "GET", "/admin/audit?app=acme&action=app.import", testSecret, nil); !strings.Contains(text, "digest") {
			t.Errorf("the audit trail has no app.import: %s", text)
		}
		if _, text := source.doRequest(t, "GET", "/admin/audit?app=acme&action=app.exported", testSecret, nil); !strings.Contains(text, "digest") {
			t.Errorf("the audit trail of the former server has no app.exported: %s", text)
		}
		var out bytes.Buffer
		if code := runCommand(t.Context(), []string{"audit", "verify", "--server", target.url}, &console{in: strings.NewReader(""), out: &out, err: &out}); code != 0 {
			t.Errorf("the audit trail does not verify: %s", out.String())
		}
		used = target.readCommitted(t, "/admin/apps/acme/budgets/cap")
		source = target
	}
}

// TestDeleteMoved deletes one app after a move and another for good: only the other gets a last invoice.
func TestDeleteMoved(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, dbtest.NewSQLiteURL(t))
	h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/plans", testSecret, map[string]any{"name": "basic", "currency": "USD", "base_fee": 5_000_000_000})
	for _, name := range []string{"moved", "gone"} {
		body := map[string]any{"name": name, "plan": "basic", "config": strings.ReplaceAll(movedConfig, "${GREETING}", "world")}
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, body)
	}
	h.requireStatus(t, http.StatusPreconditionFailed, nil, "DELETE", "/admin/apps/moved?moved=true", testSecret, nil) // it is active
	h.requireStatus(t, http.StatusBadRequest, nil, "DELETE", "/admin/apps/moved?moved=yes", testSecret, nil)
	h.requireStatus(t, http.StatusOK, nil, "POST", "/admin/apps/moved:suspend", testSecret, nil)
	h.requireStatus(t, http.StatusNoContent, nil, "DELETE", "/admin/apps/moved?moved=true", testSecret, nil)
	h.requireStatus(t, http.StatusNoContent, nil, "DELETE", "/admin/apps/gone", testSecret, nil)
	if _, text := h.doRequest(t, "GET", "/admin/invoices?status=final", testSecret, nil); !strings.Contains(text, `"gone"`) || strings.Contains(text, `"moved"`) {
		t.Errorf("invoices: %s", text)
	}
}
