package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/agentsvc/notify"
	"stoa/tenancy/db/dbtest"
)

// newStandingApp returns the configuration of an app with notifications for its agent's tasks.
func newStandingApp(url string) string {
	return fmt.Sprintf(`
llms: {m: {provider: scripted, script: [{when: {text: "^break"}, then: [{fail: {status: 400, message: "upstream said no"}}]}, {then: [{say: "You said: {{text}}"}]}]}}
agents:
  assistant:
    llm: m
    notifications:
      - {id: all, url: %[1]q, events: [task.started, task.completed, task.failed]}
      - {id: chat, url: %[1]q, events: [task.completed], payload: {template: '{"text": {{json .Result}}}'}}
      - {id: off, url: %[1]q, events: [task.started], enabled: false}
`, url)
}

// TestStandingNotifications checks that addresses in the configuration are notified of an agent's tasks for every
// caller; not while the app is suspended. Their delivery state is visible to operators only.
func TestStandingNotifications(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		in := newInbox(t)
		create := map[string]any{"name": "acme", "config": newStandingApp(in.url)}
		if status, body := h.doRequest(t, "POST", "/admin/apps", testSecret, create); status != http.StatusBadRequest || !strings.Contains(body, "agents.assistant.notifications[0].url") {
			t.Errorf("http outside: %d %s", status, body)
		}
		create["grants"] = []string{"private_network"}
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, create)
		ana, operator := h.createToken(t, "acme", "ana", nil), h.createToken(t, "acme", "otto", map[string]any{"roles": []string{"operator"}})
		send := func(text string) (task string) {
			var out struct{ Task struct{ ID string } }
			h.requireStatus(t, http.StatusOK, &out, "POST", "/v1/agents/assistant/message:send", ana, map[string]any{
				"message": map[string]any{"role": "user", "parts": []any{map[string]any{"text": text}}}, "configuration": map[string]any{"blocking": true},
			})
			return out.Task.ID
		}
		reported := func(n int) (notices []notify.Notice, texts []string) {
			dbtest.WaitUntil(t, "everything is told", func() bool { return len(in.listMessages()) >= n })
			for _, m := range in.listMessages() {
				var one notify.Notice
				if err := json.Unmarshal([]byte(m), &one); err != nil || one.Type == "" {
					texts = append(texts, m)
					continue
				}
				notices = append(notices, one)
			}
			return notices, texts
		}
		task := send("hello")
		notices, texts := reported(3)
		want := []notify.Notice{
			{Type: "task.started", AgentName: "assistant", Status: "working"},
			{Type: "task.completed", AgentName: "assistant", Status: "completed", Result: "You said: hello"},
		}
		few := cmpopts.IgnoreFields(notify.Notice{}, "TaskID", "ContextID", "Timestamp")
		if diff := cmp.Diff(want, notices, few); diff != "" {
			t.Errorf("got (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{`{"text": "You said: hello"}`}, texts); diff != "" {
			t.Errorf("sent by a template (-want +got):\n%s", diff)
		}
		var mine, all struct{ Notifications []struct{ ID, Form string } }
		h.requireStatus(t, http.StatusOK, &mine, "GET", "/tasks/"+task+"/notifications", ana, nil)
		h.requireStatus(t, http.StatusOK, &all, "GET", "/tasks/"+task+"/notifications", operator, nil)
		if len(mine.Notifications) != 0 || len(all.Notifications) != 2 || all.Notifications[0].ID != "all" || all.Notifications[0].Form != "notification" {
			t.Errorf("the owner sees %+v, an operator %+v", mine, all)
		}

		in.respondWith(http.StatusServiceUnavailable)
		task = send("break")
		dbtest.WaitUntil(t, "it fails", func() bool { return len(in.listMessages()) > 0 })
		h.requireStatus(t, http.StatusOK, nil, "POST", "/admin/apps/acme:suspend", testSecret, map[string]any{})
		in.respondWith(http.StatusOK)
		dbtest.WaitUntil(t, "nothing is tried for a while", func() bool { return h.isPostponed(t, task) })
		if late := in.listMessages(); len(late) > 0 {
			t.Errorf("a suspended app sends %v", late)
		}
		h.requireStatus(t, http.StatusOK, nil, "POST", "/admin/apps/acme:resume", testSecret, map[string]any{})
		notices, _ = reported(2)
		want = []notify.Notice{
			{Type: "task.started", AgentName: "assistant", Status: "working"},
			{Type: "task.failed", AgentName: "assistant", Status: "failed", Error: "model provider scripted answered 400: the request was refused as invalid"},
		}
		if diff := cmp.Diff(want, notices, few); diff != "" {
			t.Errorf("sent after a rest (-want +got):\n%s", diff)
		}
	})
}
