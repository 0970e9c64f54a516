package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	grpcstatus "google.golang.org/grpc/status"

	"stoa/agentsvc"
	"stoa/agentsvc/task"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db/dbtest"
)

// TestReadersAfterTheEnd subscribes with readers that were admitted before their app was suspended or deleted, after
// the subscriptions of that time were ended: theirs end as well. Once the app is active again, subscriptions work.
func TestReadersAfterTheEnd(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{
			"name":   "acme",
			"config": "llms: {demo: {provider: scripted, script: [{then: [{say: slow, pause: 1m}]}]}}\nagents: {assistant: {llm: demo}}",
		})
		app, err := h.apps.LoadApp(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		a, _, release, err := h.runtimes.Acquire(t.Context(), app.ID)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		sub := task.Submission{Agent: "assistant", Owner: agentsvc.Owner{Issuer: "stoa", Subject: "ana"}, Message: agentsvc.Message{Parts: []agentsvc.Part{agentsvc.TextPart("hello")}}}
		opened, err := a.Tasks().Messages.Submit(t.Context(), sub)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			change func() error
			want   error
		}{
			{func() error {
				_, err := h.apps.SuspendApp(t.Context(), audit.Actor{Name: "ops"}, "acme", "")
				return err
			}, tenancy.ErrSuspended},
			{func() error {
				_, err := h.apps.ResumeApp(t.Context(), audit.Actor{Name: "ops"}, "acme", "")
				return err
			}, nil},
			{func() error { return h.apps.DeleteApp(t.Context(), audit.Actor{Name: "ops"}, "acme") }, agentsvc.CodeNotFound},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, evs, err := a.Tasks().Reader.Follow(ctx, task.Visibility{}, opened.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.change(); err != nil {
				t.Fatal(err)
			}
			for !errors.Is(h.tryAcquireApp(t, app), c.want) { // each waits for the check in progress
				if t.Context().Err() != nil {
					t.Fatal("the change is not seen")
				}
			}
			want := c.want
			// it is admitted, reads until it disconnects, and is not ended
			if want == nil {
				cancel()
				want = context.Canceled
			}
			var got error
			for _, err := range evs {
				got = err
			}
			if !errors.Is(got, want) {
				t.Errorf("the reader ended with %v, want %v", got, want)
			}
		}
	})
}

// TestStreamsOfDeletedApps deletes an app while streams of every protocol are open: each ends with the error for a task
// that does not exist, and none with an internal one.
func TestStreamsOfDeletedApps(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, newSQLiteURL(t))
	h.createApp(t, "acme", "llms: {demo: {provider: scripted, script: [{then: [{say: slow, pause: 10m}]}]}}\nagents: {assistant: {llm: demo}}")
	app, err := h.apps.LoadApp(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	token, conn := h.createToken(t, "acme", "ana", nil), h.dialGRPC(t)
	newA2AMessage := func(id string) map[string]any {
		return map[string]any{"message": map[string]any{"messageId": id, "role": "ROLE_USER", "parts": []any{map[string]any{"text": "hi"}}}}
	}
	old := map[string]any{"message": map[string]any{"kind": "message", "messageId": "m0", "role": "user", "parts": []any{map[string]any{"kind": "text", "text": "hi"}}}}
	post := func(path string, body any) func() string {
		return func() string { _, text := h.doRequest(t, "POST", path, token, body); return text }
	}
	streams := []struct {
		name string
		read func() string
		want string
	}{
		{"extension", post("/agents/assistant", newRPCCall("message/stream", newTextMessage("hi"))), `"code":-32001`},
		{"versioned", post("/v1/agents/assistant/message:stream", newA2AMessage("m2")), `"NOT_FOUND"`},
		{"A2A 1.0, JSON-RPC", post("/a2a/assistant", newRPCCall("SendStreamingMessage", newA2AMessage("m1"))), `"code":-32001`},
		{"A2A 0.3, JSON-RPC", post("/a2a/assistant", newRPCCall("message/stream", old)), `"code":-32001`},
		{"A2A 1.0, REST", post("/a2a/assistant/message:stream", newA2AMessage("m4")), `"TASK_NOT_FOUND"`},
		{"A2A 1.0, gRPC", func() string {
			answers, err := callGRPC(t, conn, token, service10+"SendStreamingMessage", `{"message": {"messageId": "m3", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}`, "assistant")
			return answers + grpcstatus.Convert(err).Code().String()
		}, "NotFound"},
		{"OpenAI, completions", post("/openai/v1/chat/completions", map[string]any{"model": "assistant", "stream": true, "messages": []any{map[string]any{"role": "user", "content": "hi"}}}), `"code":"not_found"`},
		{"OpenAI, responses", post("/openai/v1/responses", map[string]any{"model": "assistant", "stream": true, "input": "hi"}), `"code":"not_found"`},
	}
	ended := make([]chan string, len(streams))
	for i, s := range streams {
		ended[i] = make(chan string, 1)
		go func() { ended[i] <- s.read() }()
	}
	dbtest.WaitUntil(t, "every stream has a task", func() bool { return countRows(t, h.db, app.ID, "task") == len(streams) })
	if err := h.apps.DeleteApp(t.Context(), audit.Actor{Name: "ops"}, "acme"); err != nil {
		t.Fatal(err)
	}
	for i, s := range streams {
		got := <-ended[i]
		if !strings.Contains(got, s.want) || strings.Contains(strings.ToLower(got), "internal") {
			t.Errorf("%s: the stream does not end with %s:\n%s", s.name, s.want, got)
		}
	}
}

func (ts *testServer) tryAcquireApp(t *testing.T, app tenancy.App) error {
	t.Helper()
	_, _, release, err := ts.runtimes.Acquire(t.Context(), app.ID)
	release()
	return err
}
