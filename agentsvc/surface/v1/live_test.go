package v1_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/surface/surfacetest"
	v1 "stoa/agentsvc/surface/v1"
	"stoa/authz"

	"stoa/agentsvc/surface"
)

const slow = `
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

func slowHouse(t *testing.T, o v1.Options, so surface.Options) *surfacetest.House {
	t.Helper()
	return surfacetest.New(t, surfacetest.Options{Default: slow, Surface: so}, func(*surfacetest.House) []surface.Route { return v1.Routes(o) })
}

const agent = "/v1/agents/assistant"

func say(text, more string) string {
	return `{"message": {"role": "user", "parts": [{"text": "` + text + `"}]}` + more + `}`
}

type task struct {
	ID     string
	Status struct{ State string }
}

// send sends a message and returns its task.
func send(t *testing.T, h *surfacetest.House, body string) task {
	t.Helper()
	resp, answer := h.Do(t, http.MethodPost, agent+"/message:send", "", body)
	var out struct{ Task task }
	if err := json.Unmarshal([]byte(answer), &out); err != nil || resp.StatusCode != http.StatusOK || out.Task.ID == "" {
		t.Fatalf("%d %s: %v", resp.StatusCode, answer, err)
	}
	return out.Task
}

// TestStreamIsLive reads the first words while the model still pauses, drops the stream and goes on from where it was.
func TestStreamIsLive(t *testing.T) {
	t.Parallel()
	config, goOn := surfacetest.Halting(t)
	h := surfacetest.New(t, surfacetest.Options{Default: config}, routes)
	resp := h.Open(t, http.MethodPost, agent+"/message:stream?format=response", "", say("hello", ""))
	next := surfacetest.Events(t, resp)
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
	_, rest := h.Do(t, http.MethodGet, agent+"/tasks/"+id+":subscribe", "", nil, "Last-Event-ID", last)
	if strings.Contains(rest, "id: "+last+"\n") || !strings.Contains(rest, `"update":`) || !strings.Contains(rest, `"one two"`) ||
		!strings.HasSuffix(rest, "event: done\ndata: {}\n\n") {
		t.Errorf("after event %s came %s", last, rest)
	}
}

// TestSubscribe follows a task that was sent without waiting, from its snapshot to its cancellation.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	h := slowHouse(t, v1.Options{}, surface.Options{})
	sent := send(t, h, say("never", ""))
	if sent.Status.State != "TASK_STATE_SUBMITTED" {
		t.Errorf("a call that does not wait answers %s", sent.Status.State)
	}
	resp := h.Open(t, http.MethodGet, agent+"/tasks/"+sent.ID+":subscribe", "", nil)
	defer resp.Body.Close()
	next := surfacetest.Events(t, resp)
	if first, ok := next(); !ok || first.Name != "message" || first.ID == "" || first.Data["task"] == nil {
		t.Errorf("the first event is %+v, want the task as it stands", first)
	}
	if _, body := h.Do(t, http.MethodPost, agent+"/tasks/"+sent.ID+":cancel", "", nil); !strings.Contains(body, `"TASK_STATE_CANCELLED"`) {
		t.Errorf("cancel answers %s", body)
	}
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(rest), "event: done\ndata: {}\n\n") {
		t.Errorf("the stream of a cancelled task ends with %q, %v", rest, err)
	}
}

// TestBlockingGivesUp returns the task as it stands after the longest wait.
func TestBlockingGivesUp(t *testing.T) {
	t.Parallel()
	state := ""
	for _, wait := range surfacetest.Waits {
		h := slowHouse(t, v1.Options{BlockFor: wait}, surface.Options{})
		if state = send(t, h, say("never", `, "configuration": {"blocking": true}`)).Status.State; state == "TASK_STATE_WORKING" {
			return
		}
	}
	t.Errorf("after the longest wait the task is %s", state)
}

// TestShutdown ends a stream with a hint to come back, and does not call it done.
func TestShutdown(t *testing.T) {
	t.Parallel()
	h := slowHouse(t, v1.Options{}, surface.Options{})
	resp := h.Open(t, http.MethodPost, agent+"/message:stream", "", say("never", ""))
	defer resp.Body.Close()
	h.Works(t, 1)
	h.Server.EndStreams()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(rest), "retry: 1000\n\n") || strings.Contains(string(rest), "event: done") {
		t.Errorf("the stream ended with %q, %v", rest, err)
	}
}

// TestTooMuch refuses what is too large before anything is made of it.
func TestTooMuch(t *testing.T) {
	t.Parallel()
	h := slowHouse(t, v1.Options{}, surface.Options{})
	parts := func(n int) string {
		return `{"message": {"role": "user", "parts": [` + strings.TrimSuffix(strings.Repeat(`{"text": "a"},`, n), ",") + `]}}`
	}
	tests := []struct {
		name, path, body string
		status           int
		text             string
	}{
		{"64 MiB", "/message:send", say(strings.Repeat("a", 64<<20), ""), 413, "the body is too large, 28 MiB are allowed"},
		{"64 MiB streamed", "/message:stream", say(strings.Repeat("a", 64<<20), ""), 413, `"RESOURCE_EXHAUSTED"`},
		{"10,000 parts", "/message:send", parts(10_000), 400, "message.parts: a message has at most 1000 parts"},
		{"1,000 parts", "/message:send", parts(1000), 200, "TASK_STATE_SUBMITTED"},
		{"too deep", "/message:send", `{"message": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, 400, "nested more than 64 levels deep"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := h.Do(t, http.MethodPost, agent+tt.path, "", tt.body)
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.text) {
				t.Errorf("%d %.300s, want %d with %q", resp.StatusCode, body, tt.status, tt.text)
			}
		})
	}
}

// TestPageToken refuses the page tokens of another user, another app and another query.
func TestPageToken(t *testing.T) {
	t.Parallel()
	h := slowHouse(t, v1.Options{}, surface.Options{})
	h.App(t, "acme", slow)
	h.App(t, "globex", slow)
	ana := h.Token(t, "acme", authz.TokenSpec{Subject: "ana"})
	for range 3 {
		h.Do(t, http.MethodPost, agent+"/message:send", ana, say("hello", `, "configuration": {"blocking": true}`))
	}
	page := func(token, query string) (int, string, []string) {
		resp, body := h.Do(t, http.MethodGet, agent+"/tasks?page_size=1"+query, token, nil)
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
	h.Do(t, http.MethodPost, agent+"/message:send", ana, say("hello", `, "configuration": {"blocking": true}`))
	status, _, second := page(ana, "&page_token="+next)
	if status != 200 || len(first) != 1 || len(second) != 1 || first[0] == second[0] {
		t.Errorf("the second page is %d %v after %v: a task that came between moved it", status, second, first)
	}
	for name, token := range map[string]string{
		"another user": h.Token(t, "acme", authz.TokenSpec{Subject: "eve"}), "another app": h.Token(t, "globex", authz.TokenSpec{Subject: "ana"}),
	} {
		if status, _, _ := page(token, "&page_token="+next); status != 400 {
			t.Errorf("the page token of %s: %d", name, status)
		}
	}
	if status, _, _ := page(ana, "&status=working&page_token="+next); status != 400 {
		t.Errorf("the page token of another query: %d", status)
	}
}

// TestListAsAsked: a page holds what it is asked for, whatever was asked for before.
func TestListAsAsked(t *testing.T) {
	t.Parallel()
	h := slowHouse(t, v1.Options{}, surface.Options{})
	h.App(t, "acme", slow)
	ana := h.Token(t, "acme", authz.TokenSpec{Subject: "ana"})
	h.Do(t, http.MethodPost, agent+"/message:send", ana, say("hello", `, "configuration": {"blocking": true}`))
	for _, asked := range []int{2, 0, 1, 0, 2, 1} {
		_, body := h.Do(t, http.MethodGet, fmt.Sprintf("%s/tasks?history_length=%d", agent, asked), ana, nil)
		var out struct {
			Tasks []struct{ History []any }
		}
		if err := json.Unmarshal([]byte(body), &out); err != nil || len(out.Tasks) != 1 || len(out.Tasks[0].History) != asked {
			t.Errorf("asked for %d messages (%v): %s", asked, err, body)
		}
	}
}

// TestStreamEnds ends the streams of clients that would not be let in any more, and nobody else's.
func TestStreamEnds(t *testing.T) {
	t.Parallel()
	h := slowHouse(t, v1.Options{}, surface.Options{KeepAlive: 50 * time.Millisecond})
	h.App(t, "acme", slow)
	listen := func(user string, life time.Duration) *http.Response {
		token := h.Token(t, "acme", authz.TokenSpec{Subject: user, TTL: life})
		return h.Open(t, http.MethodPost, agent+"/message:stream", token, say("never", ""))
	}
	ana, ben, cat := listen("ana", time.Hour), listen("ben", time.Hour), listen("cat", 3*time.Second)
	defer ana.Body.Close()
	if err := h.Apps.Revoke(t.Context(), "test", "acme", "ben"); err != nil {
		t.Fatal(err)
	}
	for user, resp := range map[string]*http.Response{"ben, revoked": ben, "cat, expired": cat} {
		rest, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(rest), `"UNAUTHENTICATED"`) || strings.Contains(string(rest), "event: done") {
			t.Errorf("%s: the stream ends with %q, %v", user, rest, err)
		}
	}
	if n := h.Server.Streams(); n != 1 {
		t.Errorf("%d streams are open, want ana's", n)
	}
}
