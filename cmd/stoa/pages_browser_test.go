package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// commandApp needs no credential and has an agent that runs a command after an approval. %[1]s is its folder, %[2]s
// further keys of server.
const commandApp = `
llms:
  m:
    provider: scripted
    script:
      - when: {text: "^run$"}
        then: [{call: {tool: shell, arguments: {command: "touch ran"}}}]
      - then: [{say: "You said: {{text}}"}]
tools:
  shell: {type: command, working_directory: %[1]s, allowed_commands: [touch], deny_by_default: true, require_approval: true}
agents: {assistant: {llm: m, tools: [shell]}}
server: {host: 127.0.0.1%[2]s}
`

// TestPagesInBrowser checks that pages of a foreign origin in a real browser can neither act nor read in an open app:
// by fetch, form, WebSocket, server-sent events or image, from their own host name or from one that meanwhile
// resolves to the server. They can if the operator has configured their origin.
func TestPagesInBrowser(t *testing.T) {
	t.Parallel()
	folder, chromium := requireBrowser(t)
	port := func(url string) string { return url[strings.LastIndex(url, ":")+1:] }
	type page struct {
		Landed, Cards int
		Read, Blob    []int
		Socket        struct{ Opened bool }
		Source        bool
	}
	all := func(status int) page {
		p := page{Landed: 200, Cards: 200, Read: slices.Repeat([]int{status}, 2), Blob: slices.Repeat([]int{status}, 7), Source: status == 200}
		p.Socket.Opened = status == 200
		return p
	}
	foreignPort := port(serveWebPage(t))
	for name, tt := range map[string]struct {
		cors             string
		foreign, rebound page
		acts             bool // a call was approved and ran
	}{
		"default":        {"", all(403), all(403), false},
		"a named origin": {fmt.Sprintf(", cors: {allowed_origins: ['http://evil.example:%s']}", foreignPort), all(200), all(200), true},
		"every origin":   {", cors: {allowed_origins: ['*']}", all(200), all(200), true},
		// A page whose origin is not configured reads nothing, and what it sends without reading changes nothing.
		"another origin": {", cors: {allowed_origins: ['https://app.example.com']}", page{Landed: 200, Read: []int{0, 0}, Blob: make([]int, 7)}, all(403), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "stoa.yaml"), fmt.Appendf(nil, commandApp, dir, tt.cors), 0o600); err != nil {
				t.Fatal(err)
			}
			p := startProcess(t, dir, "--config", "stoa.yaml")
			var pending struct {
				Result struct {
					TaskID string `json:"task_id"`
				}
			}
			p.requireStatus(t, http.StatusOK, &pending, "POST", "/agents/assistant", "", newRPCCall("message:send", newTextMessage("run")))
			waiting := func() (list struct {
				Tasks []struct {
					TaskID    string `json:"task_id"`
					Approvals []struct {
						CallID string `json:"call_id"`
					}
				}
			}) {
				p.requireStatus(t, http.StatusOK, &list, "GET", "/tasks", "", nil)
				return list
			}
			before := waiting()
			if len(before.Tasks) != 1 || len(before.Tasks[0].Approvals) != 1 {
				t.Fatalf("before: %+v", before)
			}
			cmd := exec.CommandContext(t.Context(), "node", "testdata/browser/pages.mjs", folder, chromium, port(p.url), foreignPort,
				pending.Result.TaskID, before.Tasks[0].Approvals[0].CallID)
			cmd.Stderr = t.Output()
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			var got struct{ Foreign, Rebound page }
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%s: %v", out, err)
			}
			if tt.acts { // the task has ended when the second page requests it
				for i, status := range got.Rebound.Blob {
					if status == http.StatusConflict {
						got.Rebound.Blob[i] = http.StatusOK
					}
				}
			}
			if diff := cmp.Diff(tt.foreign, got.Foreign); diff != "" {
				t.Errorf("the foreign page saw (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.rebound, got.Rebound); diff != "" {
				t.Errorf("the page of a name that resolves to the server saw (-want +got):\n%s", diff)
			}
			after := waiting()
			_, missing := os.Stat(filepath.Join(dir, "ran"))
			if tt.acts != (missing == nil) || !tt.acts && len(after.Tasks) != 1 || tt.acts && len(after.Tasks) < 6 {
				t.Errorf("%d tasks, and the command ran: %v, want it to: %v", len(after.Tasks), missing == nil, tt.acts)
			}
		})
	}
}
