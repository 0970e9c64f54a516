package v1_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/surfacetest"
	v1 "stoa/agentsvc/surface/v1"
	"stoa/authz"
	"stoa/tenancy/audit"
)

const slowConfig = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^slow$"}
        then: [{say: "one ", pause: 300ms}, {say: "two"}]
      - when: {text: "^never$"}
        then: [{say: "wait ", pause: 10m}, {say: "for it"}]
      - then: [{say: "You said: {{text}}"}]
agents: {assistant: {llm: demo}}
`

func newSlowFixture(t *testing.T, o v1.Options, so surface.Options) *surfacetest.Fixture {
	t.Helper()
	return surfacetest.New(t, surfacetest.Options{Default: slowConfig, Surface: so}, func(*surfacetest.Fixture) []surface.Route { return v1.Routes(o) })
}

const agentPath = "/v1/agents/assistant"

func newMessageBody(text, more string) string {
	return `{"message": {"role": "user", "parts": [{"text": "` + text + `"}]}` + more + `}`
}

type task struct {
	ID     string
	Status struct{ State string }
}

// sendMessage sends a message and returns its task.
func sendMessage(t *testing.T, h *surfacetest.Fixture, body string) task {
	t.Helper()
	resp, answer := h.Do(t, http.MethodPost, agentPath+"/message:send", "", body)
	var out struct{ Task task }
	if err := json.Unmarshal([]byte(answer), &out); err != nil || resp.StatusCode != http.StatusOK || out.Task.ID == "" {
		t.Fatalf("%d %s: %v", resp.StatusCode, answer, err)
	}
	return out.Task
}

// TestStreamIsLive reads the first delta while the model is still writing, closes the stream and resumes it after
// the last event.
func TestStreamIsLive(t *testing.T) {
	t.Parallel()
	config, goOn := surfacetest.NewHaltingModel(t)
	h := surfacetest.New(t, surfacetest.Options{Default: config}, newRoutes)
	resp := h.OpenResponse(t, http.MethodPost, agentPath+"/message:stream?format=response", "", newMessageBody("hello", ""))
	next := surfacetest.ReadEvents(t, resp)
	id, last := "", ""
	for {
		ev, ok := next()
		if !ok {
			t.Fatal("the stream ended before the first words")
		}
		id, _ = ev.Data["task"].(map[string]any)["id"].(string)
		if ev.ID != "" {
			last = ev.ID
		}
		if strings.Contains(ev.Text, `"one "`) {
			break
		}
	}
	resp.Body.Close()
	if !goOn() {
		t.Error("the first words came when the model had gone on, want them before")
	}
	_, remaining := h.Do(t, http.MethodGet, agentPath+"/tasks/"+id+":subscribe", "", nil, "Last-Event-ID", last)
	if strings.Contains(remaining, "id: "+last+"\n") || !strings.Contains(remaining, `"update":`) || !strings.Contains(remaining, `"one two"`) ||
		!strings.HasSuffix(remaining, "event: done\ndata: {}\n\n") {
		t.Errorf("after event %s came %s", last, remaining)
	}
}

// TestSubscribe subscribes to a task that was sent without waiting, from its snapshot to its cancellation.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{})
	sent := sendMessage(t, h, newMessageBody("never", ""))
	if sent.Status.State != "TASK_STATE_SUBMITTED" {
		t.Errorf("a call that does not wait answers %s", sent.Status.State)
	}
	resp := h.OpenResponse(t, http.MethodGet, agentPath+"/tasks/"+sent.ID+":subscribe", "", nil)
	defer resp.Body.Close()
	next := surfacetest.ReadEvents(t, resp)
	if first, ok := next(); !ok || first.Name != "message" || first.ID == "" || first.Data["task"] == nil {
		t.Errorf("the first event is %+v, want the task as it stands", first)
	}
	if _, body := h.Do(t, http.MethodPost, agentPath+"/tasks/"+sent.ID+":cancel", "", nil); !strings.Contains(body, `"TASK_STATE_CANCELLED"`) {
		t.Errorf("cancel answers %s", body)
	}
	remaining, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(remaining), "event: done\ndata: {}\n\n") {
		t.Errorf("the stream of a cancelled task ends with %q, %v", remaining, err)
	}
}

// TestBlockingGivesUp checks that a blocking call returns the unfinished task after BlockFor.
func TestBlockingGivesUp(t *testing.T) {
	t.Parallel()
	state := ""
	for _, wait := range surfacetest.WaitTimes {
		h := newSlowFixture(t, v1.Options{BlockFor: wait}, surface.Options{})
		if state = sendMessage(t, h, newMessageBody("never", `, "configuration": {"blocking": true}`)).Status.State; state == "TASK_STATE_WORKING" {
			return
		}
	}
	t.Errorf("after the longest wait the task is %s", state)
}

// TestShutdown checks that a shutdown ends a stream with a retry hint and without the event done.
func TestShutdown(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{})
	resp := h.OpenResponse(t, http.MethodPost, agentPath+"/message:stream", "", newMessageBody("never", ""))
	defer resp.Body.Close()
	h.WaitForWorking(t, 1)
	h.Server.EndStreams()
	remaining, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(remaining), "retry: 1000\n\n") || strings.Contains(string(remaining), "event: done") {
		t.Errorf("the stream ended with %q, %v", remaining, err)
	}
}

// TestTooMuch checks that requests beyond the bounds are refused before they are processed.
func TestTooMuch(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{})
	parts := func(n int) string {
		return `{"message": {"role": "user", "parts": [` + strings.TrimSuffix(strings.Repeat(`{"text": "a"},`, n), ",") + `]}}`
	}
	tests := []struct {
		name, path, body string
		status           int
		text             string
	}{
		{"64 MiB", "/message:send", newMessageBody(strings.Repeat("a", 64<<20), ""), 413, "the body is too large, 28 MiB are allowed"},
		{"64 MiB streamed", "/message:stream", newMessageBody(strings.Repeat("a", 64<<20), ""), 413, `"RESOURCE_EXHAUSTED"`},
		{"10,000 parts", "/message:send", parts(10_000), 400, "message.parts: a message has at most 1000 parts"},
		{"1,000 parts", "/message:send", parts(1000), 200, "TASK_STATE_SUBMITTED"},
		{"too deep", "/message:send", `{"message": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, 413, "nested more than 64 levels deep"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := h.Do(t, http.MethodPost, agentPath+tt.path, "", tt.body)
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.text) {
				t.Errorf("%d %.300s, want %d with %q", resp.StatusCode, body, tt.status, tt.text)
			}
		})
	}
}

// TestPageToken checks that a page token is refused for another user, another app and another query.
func TestPageToken(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{})
	h.CreateApp(t, "acme", slowConfig)
	h.CreateApp(t, "globex", slowConfig)
	ana := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"})
	for range 3 {
		h.Do(t, http.MethodPost, agentPath+"/message:send", ana, newMessageBody("hello", `, "configuration": {"blocking": true}`))
	}
	page := func(token, query string) (int, string, []string) {
		resp, body := h.Do(t, http.MethodGet, agentPath+"/tasks?page_size=1"+query, token, nil)
		var out struct {
			Tasks         []task
			NextPageToken string
		}
		_ = json.Unmarshal([]byte(body), &out)
		var ids []string
		for _, t := range out.Tasks {
			ids = append(ids, t.ID)
		}
		return resp.StatusCode, out.NextPageToken, ids
	}
	_, next, first := page(ana, "")
	h.Do(t, http.MethodPost, agentPath+"/message:send", ana, newMessageBody("hello", `, "configuration": {"blocking": true}`))
	status, _, second := page(ana, "&page_token="+next)
	if status != 200 || len(first) != 1 || len(second) != 1 || first[0] == second[0] {
		t.Errorf("the second page is %d %v after %v: a task that came between moved it", status, second, first)
	}
	for name, token := range map[string]string{
		"another user": h.MintToken(t, "acme", authz.TokenSpec{Subject: "eve"}), "another app": h.MintToken(t, "globex", authz.TokenSpec{Subject: "ana"}),
	} {
		if status, _, _ := page(token, "&page_token="+next); status != 400 {
			t.Errorf("the page token of %s: %d", name, status)
		}
	}
	if status, _, _ := page(ana, "&status=working&page_token="+next); status != 400 {
		t.Errorf("the page token of another query: %d", status)
	}
}

// TestListVariants checks that a page contains the parts that its query asks for, although pages are cached in
// encoded form.
func TestListVariants(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{})
	h.CreateApp(t, "acme", slowConfig)
	ana := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"})
	h.Do(t, http.MethodPost, agentPath+"/message:send", ana, newMessageBody("hello", `, "configuration": {"blocking": true}`))
	for _, historyLength := range []int{2, 0, 1, 0, 2, 1} {
		_, body := h.Do(t, http.MethodGet, fmt.Sprintf("%s/tasks?history_length=%d", agentPath, historyLength), ana, nil)
		var out struct {
			Tasks []struct{ History []any }
		}
		if err := json.Unmarshal([]byte(body), &out); err != nil || len(out.Tasks) != 1 || len(out.Tasks[0].History) != historyLength {
			t.Errorf("asked for %d messages (%v): %s", historyLength, err, body)
		}
	}
}

// TestStreamEnds checks that streams end when their client loses its access, and that the streams of other clients
// continue.
func TestStreamEnds(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{Timeouts: surface.Timeouts{KeepAlive: 50 * time.Millisecond}})
	h.CreateApp(t, "acme", slowConfig)
	listen := func(user string, life time.Duration) *http.Response {
		token := h.MintToken(t, "acme", authz.TokenSpec{Subject: user, TTL: life})
		return h.OpenResponse(t, http.MethodPost, agentPath+"/message:stream", token, newMessageBody("never", ""))
	}
	ana, ben, cat := listen("ana", time.Hour), listen("ben", time.Hour), listen("cat", 3*time.Second)
	defer ana.Body.Close()
	if err := h.Apps.Tokens.Revoke(t.Context(), audit.Actor{Name: "test"}, "acme", "ben"); err != nil {
		t.Fatal(err)
	}
	for user, resp := range map[string]*http.Response{"ben, revoked": ben, "cat, expired": cat} {
		remaining, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(remaining), `"UNAUTHENTICATED"`) || strings.Contains(string(remaining), "event: done") {
			t.Errorf("%s: the stream ends with %q, %v", user, remaining, err)
		}
	}
	if n := h.Server.OpenStreams(); n != 1 {
		t.Errorf("%d streams are open, want ana's", n)
	}
}
