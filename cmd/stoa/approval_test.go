package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"stoa/tenancy/db/dbtest"
)

// TestCallPromptsForDecisions checks that stoa call asks at the terminal for decisions about tool calls.
func TestCallPromptsForDecisions(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, dbtest.NewSQLiteURL(t))
	h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": fmt.Sprintf(tenantConfig, "other")})
	token := h.createToken(t, "acme", "ana", map[string]any{"roles": []string{"operator"}})
	for name, c := range map[string]struct {
		typed   string
		alone   bool
		code    int
		out, on string
	}{
		"yes":            {typed: "what?\n\nY\n", out: "You said: sum\n", on: "May calc run?\ncalc({\"expression\":\"1+1\"}) [y/n] calc("},
		"no":             {typed: "no\n", code: exitRejected, on: "calc({\"expression\":\"1+1\"}) [y/n] "},
		"nobody answers": {typed: "", code: exitWaiting, on: "waits for an approval: stoa task approve "},
		"no terminal":    {typed: "y\n", alone: true, code: exitWaiting, on: "waits for an approval"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, both bytes.Buffer
			con := &console{in: strings.NewReader(c.typed), out: &teeWriter{&out, &both}, err: &both, interactive: !c.alone}
			cmd := &callCmd{tenantFlags: h.newTenantFlags(token), Agent: "assistant", Text: "sum"}
			err := cmd.Run(t.Context(), con)
			code := 0
			if err != nil {
				var e *exitError
				if code = exitFailed; errors.As(err, &e) {
					code = e.code
				}
			}
			if code != c.code || !strings.Contains(both.String(), c.on) || !strings.HasSuffix(out.String(), c.out) {
				t.Errorf("exit %d (%v), out %q, all %q", code, err, out.String(), both.String())
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	never := &console{in: blockedReader{t.Context()}, err: &bytes.Buffer{}}
	if got := never.promptYesNo(ctx, "?"); got != "" {
		t.Errorf("interrupted: %q", got)
	}
}

// TestCallPromptNamesAgent checks that a question names the agent whose call it is about, and that the end of the
// input ends the question.
func TestCallPromptNamesAgent(t *testing.T) {
	t.Parallel()
	var asked bytes.Buffer
	con := &console{in: strings.NewReader("y\n"), err: &asked, interactive: true}
	v := &conversation{console: con, asks: true}
	v.shown = &transcript{conversation: v, state: "input_required", approvals: []approval{
		{CallID: "1", Tool: "pay", Arguments: []byte(`{"sum":1}`), Agent: "readers/facts"}, {CallID: "2", Tool: "pay", Arguments: []byte(`{}`)},
	}}
	if parts := v.promptForRequests(t.Context()); parts != nil {
		t.Errorf("half of the decisions are sent: %v", parts)
	}
	if want := "readers/facts: pay({\"sum\":1}) [y/n] pay({}) [y/n] \n"; asked.String() != want {
		t.Errorf("asked %q, want %q", asked.String(), want)
	}
}

// TestCallInterrupted checks that an interrupted stoa call reports that the task continues.
func TestCallInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"task_id\":\"t-1\",\"status\":{\"state\":\"working\",\"message\":{\"parts\":[{\"type\":\"text\",\"text\":\"Well\"}]}}}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(srv.Close)
	var out, reported bytes.Buffer
	seen := writerFunc(func(p []byte) (int, error) {
		defer cancel()
		return out.Write(p)
	})
	err := (&callCmd{tenantFlags: (&testServer{url: srv.URL}).newTenantFlags(""), Agent: "a", Text: "hi"}).Run(ctx, &console{in: strings.NewReader(""), out: seen, err: &reported})
	if err == nil || out.String() != "Well\n" || reported.String() != "the task t-1 goes on without us\n" {
		t.Errorf("%v, wrote %q, sent %q", err, out.String(), reported.String())
	}
}

type writerFunc func(p []byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

type teeWriter struct{ a, b *bytes.Buffer }

func (w *teeWriter) Write(p []byte) (int, error) { w.a.Write(p); return w.b.Write(p) }

// blockedReader is a terminal without input.
type blockedReader struct{ ctx context.Context }

func (b blockedReader) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

const hangingConfig = `
llms:
  m:
    provider: scripted
    script:
      - when: {tool_result: fetch}
        then: [{say: "It says: {{result}}"}]
      - then: [{call: {tool: fetch, arguments: {url: "%s"}}}]
tools: {fetch: {type: function, handler: http_request}}
agents: {assistant: {llm: m, tools: [fetch]}}
`

// TestCancelCall checks that a hanging tool call can be cancelled by its owner and by an operator, and by no other
// caller.
func TestCancelCall(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		begun, done := make(chan struct{}, 1), make(chan struct{})
		slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			begun <- struct{}{}
			select {
			case <-r.Context().Done():
			case <-done:
			}
		}))
		defer slow.Close()
		defer close(done)
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret,
			map[string]any{"name": "acme", "config": fmt.Sprintf(hangingConfig, slow.URL), "grants": []string{"private_network"}})
		ana, eve := h.createToken(t, "acme", "ana", nil), h.createToken(t, "acme", "eve", nil)
		viewer := h.createToken(t, "acme", "vic", map[string]any{"roles": []string{"viewer"}})
		for _, who := range []string{ana, h.createToken(t, "acme", "otto", map[string]any{"roles": []string{"operator"}})} {
			var sent struct {
				Result struct {
					TaskID string `json:"task_id"`
				}
			}
			params := newTextMessage("go")
			params["configuration"] = map[string]any{"blocking": false}
			h.requireStatus(t, http.StatusOK, &sent, "POST", "/agents/assistant", ana, newRPCCall("message:send", params))
			<-begun
			id := sent.Result.TaskID
			var got struct {
				Result struct {
					History []struct {
						ToolCalls []struct{ ID string } `json:"tool_calls"`
					}
				}
			}
			h.requireStatus(t, http.StatusOK, &got, "POST", "/agents/assistant", ana, newRPCCall("tasks/get", map[string]any{"id": id}))
			call := got.Result.History[len(got.Result.History)-1].ToolCalls[0].ID
			path := "/api/tasks/" + id + "/toolCalls/" + call + "/cancel"
			h.requireStatus(t, http.StatusNotFound, nil, "POST", path, eve, nil)
			h.requireStatus(t, http.StatusForbidden, nil, "POST", path, viewer, nil)
			h.requireStatus(t, http.StatusBadRequest, nil, "POST", path, who, map[string]any{"why": "?"})
			h.requireStatus(t, http.StatusNotFound, nil, "POST", "/api/tasks/"+id+"/toolCalls/nosuchcall/cancel", who, nil)
			var answer struct {
				Cancelled bool
				TaskID    string `json:"task_id"`
				CallID    string `json:"call_id"`
			}
			h.requireStatus(t, http.StatusOK, &answer, "POST", path, who, map[string]any{"reason": "too slow"})
			if !answer.Cancelled || answer.TaskID != id || answer.CallID != call {
				t.Errorf("%+v", answer)
			}
			_, stream := h.doRequest(t, "POST", "/agents/assistant", ana, newRPCCall("tasks/subscribe", map[string]any{"id": id, "after": 0}))
			if !strings.Contains(stream, "It says: cancelled by user: too slow") || !strings.Contains(stream, `"state":"completed"`) {
				t.Errorf("%s", stream)
			}
			h.requireStatus(t, http.StatusNotFound, nil, "POST", path, who, nil)
		}
	})
}
