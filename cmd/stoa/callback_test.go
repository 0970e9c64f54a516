package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/store/receiver"
	"stoa/cmd/stoa/server"
	"stoa/tenancy/db/dbtest"
)

// callbackApp returns the configuration of an app whose webhook posts its results to hosts.
func callbackApp(hosts ...string) string {
	list, _ := json.Marshal(hosts)
	return `
llms: {m: {provider: scripted, script: [{when: {text: "^ask$"}, then: [{ask: "what?"}]}, {when: {text: "^slow$"}, then: [{say: "one ", pause: 2s}, {say: two}]}, {then: [{say: "You said: {{text}}"}]}]}}
agents:
  hooked: {llm: m, trigger: {type: webhook, secret: a-secret-of-all-the-hooks, webhook_input: {template: "{{.text}}"}, response: {mode: callback, callback_hosts: ` + string(list) + `}}}
`
}

// webhookResult is the response to a webhook delivery, and the body of a callback.
type webhookResult struct {
	TaskID    string  `json:"task_id"`
	Status    string  `json:"status"`
	Result    *string `json:"result"`
	Error     string  `json:"error"`
	AgentName string  `json:"agent_name"`
}

// deliverWebhook sends a delivery to the webhook of an app and returns the task that it created.
func (ts *testServer) deliverWebhook(t *testing.T, app, text, address string, want int) (task string) {
	t.Helper()
	status, answer := ts.sendRequest(t, ts.newSignedDelivery(t, app, text, address))
	if status != want {
		t.Fatalf("the delivery %q to %s: %d %s, want %d", text, address, status, answer, want)
	}
	var got webhookResult
	if err := json.Unmarshal([]byte(answer), &got); status == http.StatusAccepted && (err != nil || got.Status != "accepted") {
		t.Fatalf("the delivery %q to %s: %s, %v", text, address, answer, err)
	}
	return got.TaskID
}

// newSignedDelivery returns a signed delivery to the webhook of an app that names a callback address.
func (ts *testServer) newSignedDelivery(t *testing.T, app, text, address string) *http.Request {
	t.Helper()
	raw, _ := json.Marshal(map[string]string{"text": text, "callback_url": address})
	mac := hmac.New(sha256.New, []byte("a-secret-of-all-the-hooks"))
	mac.Write(raw)
	req := ts.newRequest(t, "POST", "/apps/"+app+"/webhooks/hooked", "", string(raw))
	req.Header.Set("Idempotency-Key", text)
	req.Header.Set("X-Webhook-Signature", hex.EncodeToString(mac.Sum(nil)))
	return req
}

// parseResults returns the callbacks that an inbox has received.
func (in *inbox) parseResults(t *testing.T) (all []webhookResult) {
	t.Helper()
	for _, m := range in.listMessages() {
		var r webhookResult
		if err := json.Unmarshal([]byte(m), &r); err != nil {
			t.Fatalf("%s: %v", m, err)
		}
		all = append(all, r)
	}
	return all
}

// TestCallback checks that the sender of a delivery receives one signed callback when the task has ended: not while
// the app is suspended, at once when it is resumed, and none for a deleted app.
func TestCallback(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		in := newInbox(t)
		host := strings.TrimPrefix(in.url, "http://")
		secret := map[string]string{server.NotificationSecretName: "whsec_" + strings.Repeat("YWFh", 10)}
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{
			"name": "acme", "config": callbackApp(host), "grants": []string{"private_network"}, "secrets": secret,
		})
		task := h.deliverWebhook(t, "acme", "hello", in.url+"/done", http.StatusAccepted)
		in.awaitMessage(t, "completed")
		if again := h.deliverWebhook(t, "acme", "hello", in.url+"/done", http.StatusAccepted); again != task {
			t.Errorf("the same delivery leads to %s, and first to %s", again, task)
		}
		dbtest.WaitUntil(t, "the repeated delivery has its callback", func() bool { return len(in.listMessages()) == 2 })
		asked := h.deliverWebhook(t, "acme", "ask", in.url, http.StatusAccepted)
		operator := h.createToken(t, "acme", "otto", map[string]any{"roles": []string{"operator"}})
		cancelled := func() {
			dbtest.WaitUntil(t, "it waits for somebody", func() bool {
				_, body := h.doRequest(t, "GET", "/tasks?status=input_required", operator, nil)
				return strings.Contains(body, asked)
			})
			h.requireStatus(t, http.StatusOK, nil, "POST", "/v1/agents/hooked/tasks/"+asked+":cancel", operator, nil)
		}
		cancelled()
		in.awaitMessage(t, "failed")
		written := "You said: hello"
		want := []webhookResult{{task, "completed", &written, "", "hooked"}, {task, "completed", &written, "", "hooked"}, {asked, "failed", nil, "the task is cancelled", "hooked"}}
		if diff := cmp.Diff(want, in.parseResults(t)); diff != "" {
			t.Errorf("called back with (-want +got):\n%s", diff)
		}
		if in.signed != 3 {
			t.Errorf("%d of the three are signed", in.signed)
		}

		in.respondWith(http.StatusServiceUnavailable)
		asked = h.deliverWebhook(t, "acme", "ask again", in.url, http.StatusAccepted)
		dbtest.WaitUntil(t, "it fails", func() bool { return h.getNotification(t, operator, asked).Attempts > 0 })
		h.requireStatus(t, http.StatusOK, nil, "POST", "/admin/apps/acme:suspend", testSecret, map[string]any{})
		in.respondWith(http.StatusNoContent)
		dbtest.WaitUntil(t, "nothing is tried for a while", func() bool { return h.isPostponed(t, asked) })
		if late := in.listMessages(); len(late) > 0 {
			t.Errorf("a suspended app posts %v", late)
		}
		h.requireStatus(t, http.StatusOK, nil, "POST", "/admin/apps/acme:resume", testSecret, map[string]any{})
		dbtest.WaitUntil(t, "it is told at once when the app is back", func() bool { return len(in.listMessages()) == 1 })

		in.respondWith(http.StatusServiceUnavailable)
		h.deliverWebhook(t, "acme", "gone", in.url, http.StatusAccepted)
		in.awaitMessage(t, "gone")
		h.requireStatus(t, http.StatusNoContent, nil, "DELETE", "/admin/apps/acme", testSecret, nil)
		if open := h.countReceivers(t); open != 0 {
			t.Errorf("%d addresses are left of a deleted app", open)
		}

		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "outside", "config": callbackApp(host)})
		h.deliverWebhook(t, "outside", "hello", in.url, http.StatusBadRequest)
	})
}

// TestCallbackOfEachDelivery repeats a delivery at the same time and until its callbacks are exhausted: each one that was
// accepted has one callback, and the refused one says why.
func TestCallbackOfEachDelivery(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		in := newInbox(t)
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{
			"name": "acme", "config": callbackApp(strings.TrimPrefix(in.url, "http://")), "grants": []string{"private_network"},
		})
		var tasks [receiver.MaxPerTask]string
		var g sync.WaitGroup
		for i := range tasks {
			g.Go(func() { tasks[i] = h.deliverWebhook(t, "acme", "slow", in.url, http.StatusAccepted) })
		}
		g.Wait()
		for _, id := range tasks {
			if id != tasks[0] {
				t.Errorf("one delivery leads to %s and %s", id, tasks[0])
			}
		}
		dbtest.WaitUntil(t, "each has its callback", func() bool { return len(in.listMessages()) == len(tasks) })
		status, answer := h.sendRequest(t, h.newSignedDelivery(t, "acme", "slow", in.url))
		if status != http.StatusTooManyRequests || !strings.Contains(answer, "at most 10 times") {
			t.Errorf("one too many: %d %s", status, answer)
		}
	})
}

// TestCallbackAfterKill kills a process between the end of a task and its callback: the next process sends it.
func TestCallbackAfterKill(t *testing.T) {
	t.Parallel()
	onEachProcessDatabase(t, func(t *testing.T, dir, database string) {
		first := startProcess(t, dir, "--database", database)
		in := newInbox(t)
		first.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{
			"name": "acme", "config": callbackApp(strings.TrimPrefix(in.url, "http://")), "grants": []string{"private_network"},
		})
		task := first.deliverWebhook(t, "acme", "slow", in.url, http.StatusAccepted)
		_ = first.SignalAndWait(syscall.SIGKILL)
		startProcess(t, dir, "--database", database, "--queue-stale-threshold", "2s")
		in.awaitMessage(t, "completed")
		written := "one two"
		if diff := cmp.Diff([]webhookResult{{task, "completed", &written, "", "hooked"}}, in.parseResults(t)); diff != "" {
			t.Errorf("called back with (-want +got):\n%s", diff)
		}
	})
}
