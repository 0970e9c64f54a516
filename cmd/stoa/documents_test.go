package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy/db/dbtest"
)

// documentsConfig is an app whose documents are uploaded.
const documentsConfig = `
llms: {m: {provider: scripted}}
agents: {assistant: {llm: m}}
document_stores: {manual: {source: {type: upload}}}
`

// docsRunner runs `stoa docs` against a server.
type docsRunner struct {
	*testServer
	token string
}

func newDocsRunner(t *testing.T) docsRunner {
	t.Helper()
	h := openTestServer(t, dbtest.NewSQLiteURL(t))
	h.createApp(t, "acme", documentsConfig)
	return docsRunner{h, h.createToken(t, "acme", "dev", map[string]any{"roles": []string{"developer"}})}
}

// run runs a command and returns its exit code, its results and its messages.
func (r docsRunner) run(t *testing.T, args ...string) (code int, out, messages string) {
	t.Helper()
	var results, written bytes.Buffer
	c := &console{in: strings.NewReader(""), out: &results, err: &written}
	code = runCommand(t.Context(), append(append([]string{"docs"}, args...), "--app", "acme", "--server", r.url, "--token", r.token), c)
	return code, results.String(), written.String()
}

// writeFiles writes files below a new folder and returns it.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, content := range files {
		at := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestDocumentCommands uploads a folder, changes it, and lists, searches, measures and deletes its documents.
func TestDocumentCommands(t *testing.T) {
	t.Parallel()
	h := newDocsRunner(t)
	folder := writeFiles(t, map[string]string{
		"handbook.txt": "The warranty is two years.", "guide/start.md": "# Start\n\nPlug the device in.", ".hidden/secret.txt": "no", ".dot": "no", "empty.txt": "",
	})
	if err := os.Symlink("/etc/hostname", filepath.Join(folder, "link.txt")); err != nil {
		t.Fatal(err)
	}
	want := func(step string, code int, out, messages string, wantCode int, wantOut, wantMessages string) {
		t.Helper()
		if diff := cmp.Diff(wantOut, out); code != wantCode || diff != "" || !strings.Contains(messages, wantMessages) {
			t.Fatalf("%s: exit code %d, want %d; out (-want +got):\n%s\nmessages: %s", step, code, wantCode, diff, messages)
		}
	}
	code, out, messages := h.run(t, "put", "manual", folder)
	want("put", code, out, messages, exitFailed, "refused    empty.txt: it is empty\nnew        guide/start.md\nnew        handbook.txt\nrefused    link.txt: it is a symbolic link\n", "2 new, 2 refused")
	for _, name := range []string{"empty.txt", "link.txt"} {
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "handbook.txt"), []byte("The warranty is three years."), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, messages = h.run(t, "put", "manual", folder)
	want("put again", code, out, messages, 0, "unchanged  guide/start.md\nchanged    handbook.txt\n", "1 changed, 1 unchanged")
	code, out, messages = h.run(t, "put", "manual", folder, "--wait")
	want("put and wait", code, out, messages, 0, "unchanged  guide/start.md\nunchanged  handbook.txt\n", "2 indexed, 0 failed")
	code, out, messages = h.run(t, "put", "manual", filepath.Join(folder, "handbook.txt"), "--metadata", "year=2026", "--access-role", "developer", "--access-subject", "bob")
	want("put with access", code, out, messages, 0, "updated    handbook.txt\n", "1 updated")
	for _, step := range []struct{ flag, want string }{{"", "unchanged"}, {"--access-everyone", "updated"}, {"", "unchanged"}} {
		args := []string{"put", "manual", filepath.Join(folder, "handbook.txt"), "--metadata", "year=2026"}
		if step.flag != "" {
			args = append(args, step.flag)
		}
		if code, out, messages = h.run(t, args...); code != 0 || !strings.HasPrefix(out, step.want+" ") {
			t.Errorf("put again %s: exit code %d, %s%s, want %s", step.flag, code, out, messages, step.want)
		}
	}

	if code, out, _ := h.run(t, "status", "manual"); code != 0 || !regexp.MustCompile(`(?m)^documents +2$`).MatchString(out) || !regexp.MustCompile(`(?m)^chunks +2$`).MatchString(out) {
		t.Errorf("status: exit code %d, %s", code, out)
	}
	if code, out, messages := h.run(t, "list", "manual", "--limit", "1"); code != 0 || !strings.Contains(out, "guide/start.md  indexed") || !strings.Contains(messages, "1 of 2; more with --cursor ") {
		t.Errorf("list: exit code %d, %s%s", code, out, messages)
	}
	code, out, messages = h.run(t, "search", "manual", "how long is the warranty", "--filter", "year=2026", "--mode", "text")
	if first, _, _ := strings.Cut(out, "\n"); code != 0 || !strings.HasPrefix(first, `1  handbook.txt, line 1  (`) || !strings.Contains(first, ": text ") || !strings.Contains(out, "   The warranty is three years.\n") {
		t.Errorf("search: exit code %d, %s%s", code, out, messages)
	}
	questions := filepath.Join(writeFiles(t, map[string]string{"questions.jsonl": `{"question": "how long is the warranty", "documents": ["handbook.txt"]}` + "\n\n" + `{"question": "plug the device", "documents": ["guide/start.md"]}` + "\n"}), "questions.jsonl")
	code, out, messages = h.run(t, "eval", "manual", questions)
	want("eval", code, out, messages, 0, "MODE    RECALL@1  RECALL@5  RECALL@10  MRR    NDCG@10\nvector  -         -         -          -      -\ntext    1.000     1.000     1.000      1.000  1.000\nhybrid  -         -         -          -      -\n", "2 questions; the store has no embedder")
	if code, out, _ := h.run(t, "eval", "manual", questions, "--json"); code != 0 || !strings.Contains(out, `"recall@1": 1`) {
		t.Errorf("eval --json: exit code %d, %s", code, out)
	}

	if err := os.Remove(filepath.Join(folder, "guide", "start.md")); err != nil {
		t.Fatal(err)
	}
	code, _, messages = h.run(t, "put", "manual", folder, "--delete-missing")
	if code != exitUsage || !strings.Contains(messages, "add --yes to delete these 1 documents of manual") {
		t.Errorf("delete missing without --yes: exit code %d, %s", code, messages)
	}
	code, _, messages = h.run(t, "put", "manual", folder, "--delete-missing", "--yes")
	if code != 0 || !strings.Contains(messages, "deleted guide/start.md") {
		t.Errorf("delete missing: exit code %d, %s", code, messages)
	}
	code, out, messages = h.run(t, "delete", "manual", "handbook.txt", "--yes")
	want("delete", code, out, messages, 0, "", "deleted handbook.txt")
	code, out, messages = h.run(t, "search", "manual", "how long is the warranty")
	want("search for a deleted document", code, out, messages, 0, "", "0 passages, searched by text")
}

// TestDocumentMistakes checks what the commands say about wrong input.
func TestDocumentMistakes(t *testing.T) {
	t.Parallel()
	h := newDocsRunner(t)
	folder := writeFiles(t, map[string]string{"a/x.txt": "1", "b/x.txt": "2", "none/.dot": "3", "bad.jsonl": "{\"question\": \"x\"}\n", "empty.jsonl": "\n"})
	at := func(name string) string { return filepath.Join(folder, name) }
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"status", "nosuch"}, exitFailed, `the app has no document store "nosuch"; it has manual`},
		{[]string{"put", "manual", at("nosuch")}, exitFailed, "no such file"},
		{[]string{"put", "manual", at("none")}, exitFailed, "there are no files to upload"},
		{[]string{"put", "manual", at("a/x.txt"), at("b/x.txt")}, exitUsage, `would both be the document "x.txt"`},
		{[]string{"put", "nosuch", at("a")}, exitFailed, "NOT_FOUND"},
		{[]string{"search", "manual", " "}, exitFailed, "query: is missing"},
		{[]string{"search", "manual", "x", "--mode", "best"}, exitUsage, "--mode must be one of"},
		{[]string{"delete", "manual", "x"}, exitUsage, "add --yes to delete 1 of manual: x"},
		{[]string{"delete", "manual", "x", "--yes"}, exitFailed, "x: not found"},
		{[]string{"eval", "manual", at("bad.jsonl")}, exitUsage, "line 1 needs a question and the documents that answer it"},
		{[]string{"eval", "manual", at("empty.jsonl")}, exitUsage, "there are no questions"},
	} {
		if code, _, messages := h.run(t, c.args...); code != c.code || !strings.Contains(messages, c.want) {
			t.Errorf("%v: exit code %d, want %d with %q: %s", c.args, code, c.code, c.want, messages)
		}
	}
	// A caller may search and not write; the refusal names the token that may.
	h.token = h.createToken(t, "acme", "ana", nil)
	if code, _, messages := h.run(t, "put", "manual", at("a")); code != exitFailed || !strings.Contains(messages, "--role developer --scope 'documents:write documents:read'") {
		t.Errorf("put by a caller: exit code %d, %s", code, messages)
	}
	if status, _ := h.sendRequest(t, h.newRequest(t, "GET", "/v1/document-stores/manual/documents/x.txt", h.token, nil)); status != http.StatusNotFound {
		t.Errorf("the document of a caller exists: %d", status)
	}
}

// TestCitationLines checks that the passages that an answer cites are shown below it, and metadata of other agents is not.
func TestCitationLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, metadata, want string }{
		{"cited", `{"citations": [{"n": 1, "store": "manual", "document": "handbook.pdf", "page": 12, "heading": "Warranty", "quote": "q"}, {"n": 3, "document": "a\nb", "url": "https://x.test/a"}]}`,
			"Two years [1].\n[1] handbook.pdf, p. 12, \"Warranty\"\n[3] a b <https://x.test/a>\n"},
		{"not cited", `{}`, "Two years [1].\n"},
		{"of another form", `{"citations": "none"}`, "Two years [1].\n"},
		{"missing", `null`, "Two years [1].\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out, messages bytes.Buffer
			v := &conversation{console: &console{out: &out, err: &messages}}
			v.shown = &transcript{conversation: v}
			event := `{"result": {"task_id": "t", "status": {"state": "completed", "message": {"parts": [{"type": "text", "text": "Two years [1]."}], "metadata": ` + c.metadata + `}}}}`
			if _, err := v.handleUpdate(event); err != nil {
				t.Fatal(err)
			}
			if err := v.shown.reportEnd(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
