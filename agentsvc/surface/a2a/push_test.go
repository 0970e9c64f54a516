package a2a_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/surfacetest"
)

// TestPushWithAnswer sends a push notification config with a message that continues a task. The config must receive
// the events of that turn, replace the one with the same ID, count towards the configs that a task may have, and be
// refused together with a decision.
func TestPushWithAnswer(t *testing.T) {
	t.Parallel()
	reported := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		reported <- string(body)
	}))
	t.Cleanup(receiver.Close)
	h := surfacetest.New(t, surfacetest.Options{
		Default: surfacetest.Script + "server: {push_notifications: true}\n", Formats: a2a.Formats, Surface: surface.Options{Timeouts: surface.Timeouts{KeepAlive: time.Minute}},
	}, newRoutes)
	ctx, c := t.Context(), newClient(t, h, "assistant", "1.0", spec.TransportProtocolJSONRPC, "")
	answer := func(task *spec.Task, id string, part *spec.Part) (spec.SendMessageResult, error) {
		return c.SendMessage(ctx, &spec.SendMessageRequest{
			Message: spec.NewMessageForTask(spec.MessageRoleUser, task, part),
			Config:  &spec.SendMessageConfig{PushConfig: &spec.PushConfig{ID: id, URL: receiver.URL}},
		})
	}
	waiting := sendMessage(t, c, textMessage("ask"))
	for i := range 10 {
		if _, err := c.CreateTaskPushConfig(ctx, &spec.PushConfig{TaskID: waiting.ID, ID: fmt.Sprint(i), URL: "https://receiver.invalid"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := answer(waiting, "one more", spec.NewTextPart("Rome")); !errors.Is(err, spec.ErrInvalidParams) {
		t.Errorf("one more with an answer: %v", err)
	}
	if _, err := c.CreateTaskPushConfig(ctx, &spec.PushConfig{TaskID: waiting.ID, ID: "one more", URL: receiver.URL}); !errors.Is(err, spec.ErrInvalidParams) {
		t.Errorf("one more: %v", err)
	}
	if _, err := answer(waiting, "7", spec.NewTextPart("Rome")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 2 {
		select {
		case body := <-reported:
			var ev spec.StreamResponse
			if err := ev.UnmarshalJSON([]byte(body)); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			u, ok := ev.Event.(*spec.TaskStatusUpdateEvent)
			if !ok || u.TaskID != waiting.ID {
				t.Fatalf("got %s", body)
			}
			got = append(got, string(u.Status.State)+" "+messageText(u.Status.Message))
		case <-time.After(time.Minute):
			t.Fatalf("got %q and no more", got)
		}
	}
	if diff := cmp.Diff([]string{"TASK_STATE_WORKING ", "TASK_STATE_COMPLETED You said: Rome"}, got); diff != "" {
		t.Error(diff)
	}
	pendingApproval := sendMessage(t, c, textMessage("sum"))
	decision := &spec.Part{Content: spec.Data{Value: map[string]any{"type": "tool_approval", "decision": "approve"}}}
	if _, err := answer(pendingApproval, "x", decision); !errors.Is(err, spec.ErrInvalidParams) {
		t.Errorf("with a decision: %v", err)
	}
}
