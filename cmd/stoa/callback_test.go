package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// calledBack is the configuration of an app whose webhook posts what comes of it to hosts.
func calledBack(hosts ...string) string {
	list, _ := json.Marshal(hosts)
	return `
llms: {m: {provider: scripted, script: [{when: {text: "^ask$"}, then: [{ask: "what?"}]}, {when: {text: "^slow$"}, then: [{say: "one ", pause: 2s}, {say: two}]}, {then: [{say: "You said: {{text}}"}]}]}}
agents:
  hooked: {llm: m, trigger: {type: webhook, secret: a-secret-of-all-the-hooks, webhook_input: {template: "{{.text}}"}, response: {mode: callback, callback_hosts: ` + string(list) + `}}}
`
}

// result is what a webhook's sender is answered, and called back with.
type result struct {
	TaskID    string  `json:"task_id"`
	Status    string  `json:"status"`
	Result    *string `json:"result"`
	Error     string  `json:"error"`
	AgentName string  `json:"agent_name"`
}

// deliver sends a delivery to the webhook of an app, and returns the task that it has led to.
func (h *testHouse) deliver(t *testing.T, app, text, address string, want int) (task string) {
	t.Helper()
	status, answer := h.do(t, h.signedDelivery(t, app, text, address))
	if status != want {
		t.Fatalf("the delivery %q to %s: %d %s, want %d", text, address, status, answer, want)
	}
	var got result
	if err := json.Unmarshal([]byte(answer), &got); status == http.StatusAccepted && (err != nil || got.Status != "accepted") {
		t.Fatalf("the delivery %q to %s: %s, %v", text, address, answer, err)
	}
	return got.TaskID
}

// signedDelivery is a delivery to the webhook of an app whose sender names an address to be called back at.
func (h *testHouse) signedDelivery(t *testing.T, app, text, address string) *http.Request {
	t.Helper()
	raw, _ := json.Marshal(map[string]string{"text": text, "callback_url": address})
	mac := hmac.New(sha256.New, []byte("a-secret-of-all-the-hooks"))
	mac.Write(raw)
	req := h.request(t, "POST", "/apps/"+app+"/webhooks/hooked", "", string(raw))
	req.Header.Set("X-Webhook-Signature", hex.EncodeToString(mac.Sum(nil)))
	return req
}

// results are what an inbox was called back with.
func (in *inbox) results(t *testing.T) (all []result) {
	t.Helper()
	for _, m := range in.all() {
		var r result
		if err := json.Unmarshal([]byte(m), &r); err != nil {
			t.Fatalf("%s: %v", m, err)
		}
		all = append(all, r)
	}
	return all
}

// TestCallback: the sender of a delivery is told once, signed, what comes of it, when that is over; not while its app is suspended,
// at once when it is resumed, and never of an app that is deleted.
func TestCallback(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *testHouse) {
		in := openInbox(t)
		host := strings.TrimPrefix(in.url, "http://")
		secret := map[string]string{notificationSecretName: "whsec_" + strings.Repeat("YWFh", 10)}
		h.want(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{
			"name": "acme", "config": calledBack(host), "grants": []string{"private_network"}, "secrets": secret,
		})
		task := h.deliver(t, "acme", "hello", in.url+"/done", http.StatusAccepted)
		in.until(t, "completed")
		if again := h.deliver(t, "acme", "hello", in.url+"/done", http.StatusAccepted); again != task {
			t.Errorf("the same delivery leads to %s, and first to %s", again, task)
		}
		asked := h.deliver(t, "acme", "ask", in.url, http.StatusAccepted)
		operator := h.token(t, "acme", "otto", map[string]any{"roles": []string{"operator"}})
		cancelled := func() {
			within(t, 10*time.Second, "it waits for somebody", func() bool {
				_, body := h.ask(t, "GET", "/tasks?status=input_required", operator, nil)
				return strings.Contains(body, asked)
			})
			h.want(t, http.StatusOK, nil, "POST", "/v1/agents/hooked/tasks/"+asked+":cancel", operator, nil)
		}
		cancelled()
		in.until(t, "failed")
		said := "You said: hello"
		want := []result{{task, "completed", &said, "", "hooked"}, {asked, "failed", nil, "the task is cancelled", "hooked"}}
		if diff := cmp.Diff(want, in.results(t)); diff != "" {
			t.Errorf("called back with (-want +got):\n%s", diff)
		}
		if in.signed != 2 {
			t.Errorf("%d of the two are signed", in.signed)
		}

		in.answer(http.StatusServiceUnavailable)
		asked = h.deliver(t, "acme", "ask again", in.url, http.StatusAccepted)
		within(t, 10*time.Second, "it fails", func() bool { return h.notification(t, operator, asked).Attempts > 0 })
		h.want(t, http.StatusOK, nil, "POST", "/admin/apps/acme:suspend", testSecret, map[string]any{})
		in.answer(http.StatusNoContent)
		within(t, 20*time.Second, "nothing is tried for a while", func() bool { return h.postponed(t, asked) })
		if late := in.all(); len(late) > 0 {
			t.Errorf("a suspended app posts %v", late)
		}
		h.want(t, http.StatusOK, nil, "POST", "/admin/apps/acme:resume", testSecret, map[string]any{})
		within(t, 10*time.Second, "it is told at once when the app is back", func() bool { return len(in.all()) == 1 })

		in.answer(http.StatusServiceUnavailable)
		h.deliver(t, "acme", "gone", in.url, http.StatusAccepted)
		in.until(t, "gone")
		h.want(t, http.StatusNoContent, nil, "DELETE", "/admin/apps/acme", testSecret, nil)
		if open := h.receivers(t); open != 0 {
			t.Errorf("%d addresses are left of a deleted app", open)
		}

		h.want(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "outside", "config": calledBack(host)})
		h.deliver(t, "outside", "hello", in.url, http.StatusBadRequest)
	})
}

// TestCallbackAfterKill kills a process between what happens and what is told of it: the next one tells it.
func TestCallbackAfterKill(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, dir, database string) {
		first := serveIn(t, dir, "--database", database)
		in := openInbox(t)
		first.want(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{
			"name": "acme", "config": calledBack(strings.TrimPrefix(in.url, "http://")), "grants": []string{"private_network"},
		})
		task := first.deliver(t, "acme", "slow", in.url, http.StatusAccepted)
		_ = first.End(syscall.SIGKILL)
		serveIn(t, dir, "--database", database, "--queue-stale-threshold", "2s")
		in.until(t, "completed")
		said := "one two"
		if diff := cmp.Diff([]result{{task, "completed", &said, "", "hooked"}}, in.results(t)); diff != "" {
			t.Errorf("called back with (-want +got):\n%s", diff)
		}
	})
}
