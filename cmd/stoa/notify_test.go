package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/store/receiver"
	"stoa/cmd/stoa/server"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

const notifyingApp = `
llms: {m: {provider: scripted, script: [{when: {text: "^ask$"}, then: [{ask: "what?"}]}, {when: {text: "^file$"}, then: [{artifact: {name: out.txt, media_type: text/plain, text: hello}}, {say: done}]}, {then: [{say: "You said: {{text}}"}]}]}}
agents: {assistant: {llm: m}}
`

// createNotifyingApp creates an app that may call private addresses and returns a caller's token.
func (ts *testServer) createNotifyingApp(t *testing.T) (token string) {
	t.Helper()
	return ts.createNotifyingAppNamed(t, "acme", "")
}

// createNotifyingAppNamed is createNotifyingApp with a name and further configuration.
func (ts *testServer) createNotifyingAppNamed(t *testing.T, name, more string) (token string) {
	t.Helper()
	app := map[string]any{"name": name, "config": notifyingApp + more, "grants": []string{"private_network"}}
	ts.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, app)
	return ts.createToken(t, name, "ana", nil)
}

// notification is the state of the one receiver of a task.
type notification struct {
	Status, Error string
	Attempts      int `json:"failed_attempts"`
}

func (ts *testServer) getNotification(t *testing.T, token, task string) notification {
	t.Helper()
	var out struct{ Notifications []notification }
	ts.requireStatus(t, http.StatusOK, &out, "GET", "/tasks/"+task+"/notifications", token, nil)
	if len(out.Notifications) != 1 {
		t.Fatalf("%d addresses are registered", len(out.Notifications))
	}
	return out.Notifications[0]
}

// inbox is a receiver of notifications. It answers with status, initially 204.
type inbox struct {
	url      string
	mu       sync.Mutex
	status   int
	received []string
	signed   int // number of messages with a valid signature
}

func newInbox(t *testing.T) *inbox {
	t.Helper()
	in := &inbox{status: http.StatusNoContent}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		in.mu.Lock()
		defer in.mu.Unlock()
		w.WriteHeader(in.status)
		in.received = append(in.received, string(body))
		if strings.HasPrefix(r.Header.Get("Webhook-Signature"), "v1,") && r.Header.Get("Webhook-Id") != "" {
			in.signed++
		}
	}))
	t.Cleanup(srv.Close)
	in.url = srv.URL
	return in
}

func (in *inbox) respondWith(status int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.status, in.received, in.signed = status, nil, 0
}

func (in *inbox) listMessages() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.received)
}

// awaitMessage waits until the last message of the inbox contains a text, for longer than the lease of a killed
// process.
func (in *inbox) awaitMessage(t *testing.T, what string) []string {
	t.Helper()
	var all []string
	dbtest.WaitUntil(t, "the inbox is told "+what, func() bool {
		all = in.listMessages()
		return len(all) > 0 && strings.Contains(all[len(all)-1], what)
	})
	return all
}

// parseStates returns the states and artifacts in messages of version 1.0, or of tasks of version 0.3.
func parseStates(t *testing.T, messages []string) (out []string) {
	t.Helper()
	for _, m := range messages {
		var ev spec.StreamResponse
		if strings.Contains(m, `"kind":"task"`) {
			var task struct {
				Status    struct{ State string }
				Artifacts []any
			}
			if err := json.Unmarshal([]byte(m), &task); err != nil {
				t.Fatalf("%s: %v", m, err)
			}
			out = append(out, fmt.Sprint(task.Status.State, " ", len(task.Artifacts)))
			continue
		}
		if err := json.Unmarshal([]byte(m), &ev); err != nil {
			t.Fatalf("%s: %v", m, err)
		}
		switch ev := ev.Event.(type) {
		case *spec.TaskStatusUpdateEvent:
			out = append(out, string(ev.Status.State))
		case *spec.TaskArtifactUpdateEvent:
			out = append(out, ev.Artifact.Name)
		default:
			t.Fatalf("got %T: %s", ev, m)
		}
	}
	return out
}

// sendWithPush sends a message with a push notification config of an id and an address, and returns the task.
func (ts *testServer) sendWithPush(t *testing.T, token, text, config, url string) (id string) {
	t.Helper()
	var out struct{ Task struct{ ID string } }
	ts.requireStatus(t, http.StatusOK, &out, "POST", "/a2a/assistant/message:send", token, map[string]any{
		"message":       map[string]any{"messageId": "m" + config, "role": "ROLE_USER", "parts": []any{map[string]any{"text": text}}},
		"configuration": map[string]any{"returnImmediately": true, "taskPushNotificationConfig": map[string]any{"id": config, "url": url}},
	})
	return out.Task.ID
}

// listNotificationAudit returns the entries of an app's audit trail about notifications: action, actor and config.
func (ts *testServer) listNotificationAudit(t *testing.T, app string) (entries []string) {
	t.Helper()
	var trail struct {
		Entries []struct {
			Action, Actor string
			Detail        map[string]any
		}
	}
	ts.requireStatus(t, http.StatusOK, &trail, "GET", "/admin/audit?action=notification&app="+app, testSecret, nil)
	for _, e := range trail.Entries {
		entries = append(entries, fmt.Sprint(e.Action, " ", e.Actor, " ", e.Detail["config"]))
	}
	slices.Sort(entries)
	return entries
}

// hashForAudit returns the keyed hash of a text of an app, as the audit trail shows it.
func (ts *testServer) hashForAudit(t *testing.T, app, text string) string {
	t.Helper()
	a, err := ts.apps.LoadApp(t.Context(), app)
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := ts.apps.LoadSnapshot(t.Context(), a.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.Hasher.Sum([]byte(text))
}

// isPostponed reports whether the one open receiver of a task is postponed.
func (ts *testServer) isPostponed(t *testing.T, task string) (postponed bool) {
	t.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&postponed) }, `SELECT due_at > stoa_now() + 20000000 FROM receiver WHERE task = $1 AND state = 'open'`, task)
	if err := ts.db.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return postponed
}

// countReceivers returns the number of open receivers of all apps.
func (ts *testServer) countReceivers(t *testing.T) int64 {
	t.Helper()
	open, _, err := receiver.NewQueue(ts.db).Count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return open
}

// TestNotifications checks that a receiver given with a message gets all events of its task, in either version. A
// suspended app sends nothing, a deleted one leaves nothing to send.
func TestNotifications(t *testing.T) {
	t.Parallel()
	onEachEngineWith(t, "../../examples/notifications.yaml", func(t *testing.T, h *testServer) {
		token := h.createNotifyingApp(t)
		newer, older := newInbox(t), newInbox(t)
		h.sendWithPush(t, token, "file", "newer", newer.url)
		h.requireStatus(t, http.StatusOK, nil, "POST", "/a2a/assistant", token, newRPCCall("message/send", map[string]any{
			"message":       map[string]any{"kind": "message", "messageId": "m2", "role": "user", "parts": []any{map[string]any{"kind": "text", "text": "file"}}},
			"configuration": map[string]any{"blocking": true, "pushNotificationConfig": map[string]any{"id": "older", "url": older.url}},
		}))
		want := []string{"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "out.txt", "TASK_STATE_COMPLETED"}
		got := parseStates(t, newer.awaitMessage(t, "TASK_STATE_COMPLETED"))
		if diff := cmp.Diff(want, slices.DeleteFunc(got, func(s string) bool { return s == "TASK_STATE_UNSPECIFIED" })); diff != "" {
			t.Errorf("version 1.0 (-want +got):\n%s", diff)
		}
		got = parseStates(t, older.awaitMessage(t, `"completed"`))
		if diff := cmp.Diff([]string{"submitted 0", "working 0", "working 1", "completed 1"}, got); diff != "" {
			t.Errorf("version 0.3 (-want +got):\n%s", diff)
		}

		memory := newInbox(t)
		h.sendWithPush(t, h.createNotifyingAppNamed(t, "memory", "storage: {tasks: {backend: inmemory}}\n"), "hello", "brief", memory.url)
		memory.awaitMessage(t, "COMPLETED")
		if diff := cmp.Diff([]string{"notification.set ana " + h.hashForAudit(t, "memory", "brief")}, h.listNotificationAudit(t, "memory")); diff != "" {
			t.Errorf("on the trail of tasks in memory (-want +got):\n%s", diff)
		}

		later := newInbox(t)
		task := h.sendWithPush(t, token, "ask", "later", later.url)
		later.awaitMessage(t, "INPUT_REQUIRED")
		const configs = "/pushNotificationConfigs"
		h.requireStatus(t, http.StatusOK, nil, "POST", "/a2a/assistant/tasks/"+task+configs, token, map[string]any{"taskId": task, "id": "other", "url": later.url})
		h.requireStatus(t, http.StatusOK, nil, "DELETE", "/a2a/assistant/tasks/"+task+configs+"/other", token, nil)
		h.requireStatus(t, http.StatusOK, nil, "DELETE", "/a2a/assistant/tasks/"+task+configs+"/other", token, nil)
		more := newInbox(t)
		asked := h.sendWithPush(t, token, "ask", "more", more.url)
		more.awaitMessage(t, "INPUT_REQUIRED")
		h.requireStatus(t, http.StatusOK, nil, "POST", "/a2a/assistant/message:send", token, map[string]any{
			"message":       map[string]any{"messageId": "m3", "taskId": asked, "role": "ROLE_USER", "parts": []any{map[string]any{"text": "Lisbon"}}},
			"configuration": map[string]any{"returnImmediately": true, "taskPushNotificationConfig": map[string]any{"id": "again", "url": more.url}},
		})
		want = []string{"notification.drop ana " + h.hashForAudit(t, "acme", "other")}
		for _, config := range []string{"again", "later", "more", "newer", "older", "other"} {
			want = append(want, "notification.set ana "+h.hashForAudit(t, "acme", config))
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, h.listNotificationAudit(t, "acme")); diff != "" {
			t.Errorf("on the trail (-want +got):\n%s", diff)
		}
		later.respondWith(http.StatusServiceUnavailable)
		h.requireStatus(t, http.StatusOK, nil, "POST", "/a2a/assistant/tasks/"+task+":cancel", token, map[string]any{})
		dbtest.WaitUntil(t, "the address fails", func() bool {
			at := h.getNotification(t, token, task)
			return at.Status == "open" && at.Attempts > 0 && at.Error == "it answered 503 Service Unavailable"
		})
		h.requireStatus(t, http.StatusOK, nil, "POST", "/admin/apps/acme:suspend", testSecret, map[string]any{})
		dbtest.WaitUntil(t, "nothing is tried for a while", func() bool { return h.isPostponed(t, task) })
		h.requireStatus(t, http.StatusNoContent, nil, "DELETE", "/admin/apps/acme", testSecret, nil)
		if open := h.countReceivers(t); open != 0 {
			t.Errorf("%d addresses are left of a deleted app", open)
		}
	})
}

// TestNotifiedAfterKill kills a process between an event and its notification: the next process sends it.
func TestNotifiedAfterKill(t *testing.T) {
	t.Parallel()
	onEachProcessDatabase(t, func(t *testing.T, dir, database string) {
		src, err := os.ReadFile("../../examples/notifications.yaml")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "stoa.yaml")
		if err := os.WriteFile(file, src, 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"--database", database, "--config", file}
		first := startProcess(t, dir, args...)
		token := first.createNotifyingApp(t)
		in := newInbox(t)
		in.respondWith(http.StatusServiceUnavailable)
		task := first.sendWithPush(t, token, "hello", "in", in.url)
		dbtest.WaitUntil(t, "the first try", func() bool { return len(in.listMessages()) > 0 })
		dbtest.WaitUntil(t, "the task ends", func() bool {
			_, body := first.doRequest(t, "GET", "/a2a/assistant/tasks/"+task, token, nil)
			return strings.Contains(body, "TASK_STATE_COMPLETED")
		})
		_ = first.SignalAndWait(syscall.SIGKILL)
		in.respondWith(http.StatusOK)
		startProcess(t, dir, args...)
		got := parseStates(t, in.awaitMessage(t, "COMPLETED"))
		if diff := cmp.Diff([]string{"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"}, slices.Compact(got)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestNotificationSecret checks that an invalid signing secret is refused, by the admin API and at the start.
func TestNotificationSecret(t *testing.T) {
	t.Parallel()
	onEachEngineWith(t, "../../examples/notifications.yaml", func(t *testing.T, h *testServer) {
		h.createNotifyingApp(t)
		const path = "/admin/apps/acme/secrets/" + server.NotificationSecretName
		if status, body := h.doRequest(t, "PUT", path, testSecret, map[string]any{"value": "secret"}); status != http.StatusBadRequest || !strings.Contains(body, "whsec_ and 24 to 64 bytes") {
			t.Errorf("a secret that is none: %d %s", status, body)
		}
		h.requireStatus(t, http.StatusNoContent, nil, "PUT", path, testSecret, map[string]any{"value": "whsec_" + strings.Repeat("YWFh", 10)})
	})
}
