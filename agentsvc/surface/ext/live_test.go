package ext_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

const slowConfig = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^slow$"}
        then: [{say: "one ", pause: 1s}, {say: "two"}]
      - when: {text: "^never$"}
        then: [{say: "wait ", pause: 10m}, {say: "for it"}]
      - then: [{say: "You said: {{text}}"}]
agents: {assistant: {llm: demo}}
`

func newSlowFixture(t *testing.T, o ext.Options) *surfacetest.Fixture {
	t.Helper()
	return surfacetest.New(t, surfacetest.Options{Default: slowConfig}, func(*surfacetest.Fixture) []surface.Route { return ext.Routes(o) })
}

func newRPCBody(method string, params string) string {
	return `{"jsonrpc": "2.0", "id": 1, "method": "` + method + `", "params": ` + params + `}`
}

func newMessageParams(text, more string) string {
	return `{"message": {"role": "user", "parts": [{"type": "text", "text": "` + text + `"}]}` + more + `}`
}

// callForTask makes a JSON-RPC call and returns the task in its result.
func callForTask(t *testing.T, h *surfacetest.Fixture, body string) (task struct {
	TaskID string `json:"task_id"`
	Status struct{ State string }
}) {
	t.Helper()
	resp, answer := h.Do(t, http.MethodPost, "/agents/assistant", "", body)
	var out struct{ Result any }
	out.Result = &task
	if err := json.Unmarshal([]byte(answer), &out); err != nil || resp.StatusCode != http.StatusOK || task.TaskID == "" {
		t.Fatalf("%d %s: %v", resp.StatusCode, answer, err)
	}
	return task
}

func eventState(ev surfacetest.Event) string {
	status, _ := ev.Data["status"].(map[string]any)
	s, _ := status["state"].(string)
	return s
}

func eventText(ev surfacetest.Event) string {
	raw, _ := json.Marshal(ev.Data["status"])
	var s struct {
		Message struct{ Parts []struct{ Text string } }
	}
	_ = json.Unmarshal(raw, &s)
	var b strings.Builder
	for _, p := range s.Message.Parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// TestStreamIsLive reads the first delta while the model is still writing, closes the stream and resumes it after
// the last event.
func TestStreamIsLive(t *testing.T) {
	t.Parallel()
	config, goOn := surfacetest.NewHaltingModel(t)
	h := surfacetest.New(t, surfacetest.Options{Default: config}, func(*surfacetest.Fixture) []surface.Route { return ext.Routes(ext.Options{}) })
	resp := h.OpenResponse(t, http.MethodPost, "/agents/assistant", "", newRPCBody("message:stream", newMessageParams("hello", "")), "Accept", "text/event-stream")
	next := surfacetest.ReadEvents(t, resp)
	task, last, received := "", "", ""
	for received == "" {
		ev, ok := next()
		if !ok {
			t.Fatal("the stream ended before the first words")
		}
		task = ev.Data["task_id"].(string)
		if ev.ID != "" {
			last = ev.ID
		}
		received += eventText(ev)
	}
	resp.Body.Close()
	if !goOn() {
		t.Error("the first words came when the model had gone on, want them before")
	}
	if received != "one " || last != "2" {
		t.Errorf("heard %q up to event %s, want %q up to 2", received, last, "one ")
	}

	resp = h.OpenResponse(t, http.MethodPost, "/agents/assistant", "", newRPCBody("tasks/subscribe", `{"id": "`+task+`"}`), "Last-Event-ID", last)
	defer resp.Body.Close()
	next = surfacetest.ReadEvents(t, resp)
	var ev surfacetest.Event
	for {
		more, ok := next()
		if !ok {
			break
		}
		if ev = more; ev.ID == "1" || ev.ID == "2" {
			t.Errorf("event %s came again", ev.ID)
		}
	}
	if eventState(ev) != "completed" || eventText(ev) != "one two" {
		t.Errorf("the stream ended with %s %q, want completed with the whole text", eventState(ev), eventText(ev))
	}
}

// TestSubscribe subscribes to a task that was sent without waiting, from its snapshot to its cancellation.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, ext.Options{})
	task := callForTask(t, h, newRPCBody("message:send", newMessageParams("never", `, "configuration": {"blocking": false}`)))
	if task.Status.State != "submitted" {
		t.Errorf("a call that does not wait answers %s", task.Status.State)
	}
	resp := h.OpenResponse(t, http.MethodPost, "/agents/assistant", "", newRPCBody("tasks/subscribe", `{"task_id": "`+task.TaskID+`"}`))
	defer resp.Body.Close()
	next := surfacetest.ReadEvents(t, resp)
	if first, ok := next(); !ok || first.ID == "" || eventState(first) == "" {
		t.Errorf("the first event is %+v, want the task as it stands", first)
	}
	if got := callForTask(t, h, newRPCBody("tasks/cancel", `{"id": "`+task.TaskID+`"}`)); got.Status.State != "cancelled" {
		t.Errorf("cancel answers %s", got.Status.State)
	}
	var last surfacetest.Event
	for ev, ok := next(); ok; ev, ok = next() {
		last = ev
	}
	if eventState(last) != "cancelled" {
		t.Errorf("the stream ended with %s", eventState(last))
	}
	_, answer := h.Do(t, http.MethodPost, "/agents/assistant", "", newRPCBody("tasks/subscribe", `{"id": "`+task.TaskID+`", "after": 99}`))
	if !strings.Contains(answer, "the task has no event 99 yet") {
		t.Errorf("an event that is not there yet: %s", answer)
	}
}

// TestNotification sends messages without an id: the task runs, and the response neither waits for it nor has a body.
func TestNotification(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, ext.Options{})
	for _, method := range []string{"message:send", "message:stream"} {
		body := strings.Replace(newRPCBody(method, newMessageParams("never", "")), `"id": 1, `, "", 1)
		resp, answer := h.Do(t, http.MethodPost, "/agents/assistant", "", body, "Accept", "text/event-stream")
		if resp.StatusCode != http.StatusNoContent || answer != "" {
			t.Errorf("%s is answered %d %q, want 204 without a body", method, resp.StatusCode, answer)
		}
	}
	var list struct {
		Result struct {
			Tasks []struct {
				TaskID string `json:"task_id"`
			}
		}
	}
	_, answer := h.Do(t, http.MethodPost, "/agents/assistant", "", newRPCBody("tasks/list", "{}"))
	if err := json.Unmarshal([]byte(answer), &list); err != nil || len(list.Result.Tasks) != 2 {
		t.Fatalf("the tasks are %s, %v, want both", answer, err)
	}
	for _, task := range list.Result.Tasks {
		if got := callForTask(t, h, newRPCBody("tasks/cancel", `{"id": "`+task.TaskID+`"}`)); got.Status.State != "cancelled" {
			t.Errorf("cancel answers %s", got.Status.State)
		}
	}
}

// TestBlockingGivesUp checks that a blocking call returns the unfinished task after BlockFor.
func TestBlockingGivesUp(t *testing.T) {
	t.Parallel()
	state := ""
	for _, wait := range surfacetest.WaitTimes {
		h := newSlowFixture(t, ext.Options{BlockFor: wait})
		task := callForTask(t, h, newRPCBody("message:send", newMessageParams("never", "")))
		callForTask(t, h, newRPCBody("tasks/cancel", `{"id": "`+task.TaskID+`"}`))
		if state = task.Status.State; state == "working" {
			return
		}
	}
	t.Errorf("after the longest wait the task is %s, want working", state)
}

// TestShutdown checks that a shutdown ends streams with a retry hint and blocking calls with the task.
func TestShutdown(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, ext.Options{})
	resp := h.OpenResponse(t, http.MethodPost, "/agents/assistant", "", newRPCBody("message:stream", newMessageParams("never", "")))
	defer resp.Body.Close()
	blocked := make(chan string, 1)
	go func() {
		blocked <- callForTask(t, h, newRPCBody("message:send", newMessageParams("never", ""))).Status.State
	}()
	h.WaitForWorking(t, 2)
	h.Server.EndStreams()
	remaining, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(remaining), "retry: 1000\n\n") {
		t.Errorf("the stream ended with %q, %v, want a hint to come back", remaining, err)
	}
	if got := <-blocked; got != "working" {
		t.Errorf("the blocking call answers %s, want working", got)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var broken, full, busy atomic.Bool
	failing := func(b *atomic.Bool) func(context.Context) error {
		return func(context.Context) error {
			switch {
			case full.Load():
				return fmt.Errorf("ping: %w", db.ErrDiskFull)
			case b.Load():
				return context.DeadlineExceeded
			}
			return nil
		}
	}
	h := newSlowFixture(t, ext.Options{
		Version: "v1.2.3", Database: failing(&broken), Ready: failing(&busy),
	})
	check := func(path string, status int, want string) {
		t.Helper()
		resp, body := h.Do(t, http.MethodGet, path, "", nil)
		if resp.StatusCode != status || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %d with %s", path, resp.StatusCode, body, status, want)
		}
	}
	check("/ready", http.StatusOK, `"ready"`)
	busy.Store(true)
	check("/ready", http.StatusServiceUnavailable, `"UNAVAILABLE"`)
	check("/health", http.StatusOK, `"database":"connected"`)
	busy.Store(false)
	broken.Store(true)
	dbtest.WaitUntil(t, "the database is unreachable", func() bool { // it is pinged once a second at most
		_, body := h.Do(t, http.MethodGet, "/health", "", nil)
		return strings.Contains(body, `"database":"unreachable"`)
	})
	check("/health", http.StatusOK, `"database":"unreachable","database_error":"the database does not answer"`)
	check("/ready", http.StatusServiceUnavailable, `: the database does not answer"`)
	full.Store(true)
	dbtest.WaitUntil(t, "the disk is full", func() bool {
		_, body := h.Do(t, http.MethodGet, "/health", "", nil)
		return strings.Contains(body, `"database":"disk_full"`)
	})
	check("/health", http.StatusOK, `"database":"disk_full","database_error":"the disk of the database is full"`)
	check("/ready", http.StatusServiceUnavailable, `: the disk of the database is full"`)
}
