package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// serveWebPage serves a page that can call agents and returns its origin.
func serveWebPage(t *testing.T) string {
	t.Helper()
	script, err := os.ReadFile("testdata/browser/page.js")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, "<!doctype html><title>A page</title><script>%s</script>", script)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// browserApp is the configuration of both apps of TestBrowser.
const browserApp = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^slow$"}
        then: [{say: "one "}, {say: "two", pause: 1s}]
      - when: {text: "^ask$"}
        then: [{ask: "Which city?"}]
      - then: [{say: "You said: {{text}}"}]
agents: {assistant: {llm: demo}}
`

// TestBrowser calls a server of another origin from pages in a real browser: streams by fetch, a WebSocket, and
// server-sent events that resume after a restart of the server. A page of an origin that is not allowed reads nothing
// and changes nothing.
func TestBrowser(t *testing.T) {
	t.Parallel()
	folder, chromium := requireBrowser(t)
	home, foreign, dir := serveWebPage(t), serveWebPage(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "stoa.yaml"), fmt.Appendf(nil, "%sserver: {cors: {allowed_origins: [%q]}}\n", browserApp, home), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, dir, "--config", "stoa.yaml")
	for _, app := range []string{"acme", "globex"} {
		p.createApp(t, app, browserApp)
	}
	cmd := exec.CommandContext(t.Context(), "node", "testdata/browser/browser.mjs", folder, chromium, p.url, home, foreign,
		p.createToken(t, "acme", "ana", nil), p.createToken(t, "globex", "ana", nil))
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() != "restart" {
			if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
				t.Errorf("%s: %v", lines.Text(), err)
			}
			continue
		}
		if err := p.SignalAndWait(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		startProcess(t, dir, "--config", "stoa.yaml", "--port", p.url[strings.LastIndex(p.url, ":")+1:], "--grpc-port", "0")
		_, _ = io.WriteString(in, "\n")
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	text := func(of ...any) []any { return of }
	object := func(of ...any) map[string]any {
		m := map[string]any{}
		for i := 0; i < len(of); i += 2 {
			m[of[i].(string)] = of[i+1]
		}
		return m
	}
	source, _ := got["source"].(map[string]any)
	if diff := cmp.Diff(source["whole"], source["states"]); diff != "" {
		t.Errorf("across the restart the page saw other events than there were (-want +got):\n%s", diff)
	}
	delete(source, "whole")
	delete(source, "states")
	want := object(
		"stream", object("status", 200.0, "names", text("message", "done"), "said", "one two", "live", true,
			"states", text("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED")),
		"socket", object("opened", true, "protocol", "stoa.v1", "said", "You said: hello", "code", 1000.0),
		"send", text("TASK_STATE_COMPLETED", true),
		"denied", text(text(401.0, "UNAUTHENTICATED"), text(404.0, "NOT_FOUND")),
		"badSocket", object("opened", false, "said", "", "code", 1006.0),
		"source", object("before", 3.0, "opened", 2.0, "last", "TASK_STATE_COMPLETED"),
		"strangers", object("ask", object("refused", "TypeError"), "read", object("refused", "TypeError"), "blind", "opaque", "blindRPC", "opaque",
			"socket", object("opened", false, "said", "", "code", 1006.0), "source", 0.0, "tasks", 0.0),
	)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the pages saw (-want +got):\n%s", diff)
	}
}
