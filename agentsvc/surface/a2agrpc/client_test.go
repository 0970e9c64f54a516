package a2agrpc_test

import (
	"errors"
	"iter"
	"strings"
	"testing"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
)

func textRequest(text string) *spec.SendMessageRequest {
	return &spec.SendMessageRequest{Message: spec.NewMessage(spec.MessageRoleUser, spec.NewTextPart(text))}
}

// taskRequest returns a request with a message that continues a task.
func taskRequest(id spec.TaskID, parts ...*spec.Part) *spec.SendMessageRequest {
	m := spec.NewMessage(spec.MessageRoleUser, parts...)
	m.TaskID = id
	return &spec.SendMessageRequest{Message: m}
}

func messageText(m *spec.Message) string {
	if m == nil {
		return ""
	}
	var b strings.Builder
	for _, p := range m.Parts {
		b.WriteString(p.Text())
	}
	return b.String()
}

func sendMessage(t *testing.T, c *a2aclient.Client, req *spec.SendMessageRequest) *spec.Task {
	t.Helper()
	answer, err := c.SendMessage(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	task, ok := answer.(*spec.Task)
	if !ok {
		t.Fatalf("send answers a %T", answer)
	}
	return task
}

// streamSummary is what a client has read of a stream.
type streamSummary struct {
	id     spec.TaskID
	states []spec.TaskState
	text   string // texts in the state working, joined
	last   string
	files  []string
}

func readStream(t *testing.T, events iter.Seq2[spec.Event, error]) (out streamSummary) {
	t.Helper()
	note := func(s spec.TaskStatus) {
		if n := len(out.states); n == 0 || out.states[n-1] != s.State {
			out.states = append(out.states, s.State)
		}
		if out.last = messageText(s.Message); s.State == spec.TaskStateWorking {
			out.text += out.last
		}
	}
	for ev, err := range events {
		if err != nil {
			t.Fatalf("the stream ends with %v", err)
		}
		switch ev := ev.(type) {
		case *spec.Task:
			out.id = ev.ID
			note(ev.Status)
		case *spec.TaskStatusUpdateEvent:
			note(ev.Status)
		case *spec.TaskArtifactUpdateEvent:
			out.files = append(out.files, ev.Artifact.Name)
		}
	}
	return out
}

// TestClients runs every method with the official client in both versions.
func TestClients(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	for _, v := range versions {
		t.Run(string(v.name), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			c := h.newClient(t, v.name, h.mintToken(t, "acme", "ana "+string(v.name)), "")
			done := sendMessage(t, c, textRequest("hello"))
			if done.Status.State != spec.TaskStateCompleted || messageText(done.Status.Message) != "You said: hello" || done.ContextID == "" || done.Status.Timestamp == nil {
				t.Errorf("send answers %+v", done)
			}

			streamed := readStream(t, c.SendStreamingMessage(ctx, textRequest("weather Rome")))
			want := []spec.TaskState{spec.TaskStateSubmitted, spec.TaskStateWorking, spec.TaskStateCompleted}
			if diff := cmp.Diff(want, streamed.states); diff != "" || streamed.last != "It is 21 degrees." || streamed.text != "Let me see."+streamed.last {
				t.Errorf("the stream has %+v: %s", streamed, diff)
			}
			if files := readStream(t, c.SendStreamingMessage(ctx, textRequest("file"))).files; len(files) != 1 || files[0] != "out.txt" {
				t.Errorf("the stream has the files %v", files)
			}
			one := 1
			got, err := c.GetTask(ctx, &spec.GetTaskRequest{ID: streamed.id, HistoryLength: &one})
			if err != nil || len(got.History) != 1 || messageText(got.History[0]) != "It is 21 degrees." || got.Status.State != spec.TaskStateCompleted {
				t.Errorf("get answers %+v, %v", got, err)
			}

			asked := sendMessage(t, c, textRequest("ask"))
			if asked.Status.State != spec.TaskStateInputRequired {
				t.Errorf("asking, the task is %s", asked.Status.State)
			}
			if resumed := sendMessage(t, c, taskRequest(asked.ID, spec.NewTextPart("Rome"))); resumed.ID != asked.ID || resumed.Status.State != spec.TaskStateCompleted {
				t.Errorf("answered, the task is %+v", resumed)
			}

			pendingApproval := sendMessage(t, c, textRequest("sum"))
			if pendingApproval.Status.State != spec.TaskStateInputRequired {
				t.Fatalf("a call that needs approval: %+v", pendingApproval)
			}
			decision := map[string]any{"type": "tool_approval", "decision": "approve", "call_id": pendingCallID(t, pendingApproval)}
			if approved := sendMessage(t, c, taskRequest(pendingApproval.ID, spec.NewDataPart(decision))); messageText(approved.Status.Message) != "It is 2." {
				t.Errorf("approved, the task is %+v", approved)
			}

			long := sendMessage(t, c, &spec.SendMessageRequest{Message: textRequest("never").Message, Config: &spec.SendMessageConfig{ReturnImmediately: true}})
			if long.Status.State.Terminal() {
				t.Errorf("not waited for, the task is %s", long.Status.State)
			}
			next, stop := iter.Pull2(c.SubscribeToTask(ctx, &spec.SubscribeToTaskRequest{ID: long.ID}))
			if ev, err, _ := next(); err != nil || ev.TaskInfo().TaskID != long.ID {
				t.Errorf("subscribe begins with %+v, %v", ev, err)
			}
			cancelled, err := c.CancelTask(ctx, &spec.CancelTaskRequest{ID: long.ID})
			if err != nil || cancelled.Status.State != spec.TaskStateCanceled {
				t.Errorf("cancel answers %+v, %v", cancelled, err)
			}
			var last spec.Event
			for ev, err, ok := next(); ok; ev, err, ok = next() {
				if last = ev; err != nil {
					t.Errorf("the subscription ends with %v", err)
				}
			}
			if u, ok := last.(*spec.TaskStatusUpdateEvent); !ok || u.Status.State != spec.TaskStateCanceled {
				t.Errorf("the subscription's last event is %+v", last)
			}
			stop()

			page, err := c.ListTasks(ctx, &spec.ListTasksRequest{PageSize: 2})
			if err != nil || len(page.Tasks) != 2 || page.TotalSize != 6 || page.NextPageToken == "" {
				t.Errorf("list answers %+v, %v", page, err)
			}
			if page, err = c.ListTasks(ctx, &spec.ListTasksRequest{Status: spec.TaskStateCanceled}); err != nil || len(page.Tasks) != 1 || page.Tasks[0].ID != long.ID {
				t.Errorf("list of cancelled ones answers %+v, %v", page, err)
			}
			card, err := c.GetExtendedAgentCard(ctx, &spec.GetExtendedAgentCardRequest{})
			if err != nil || card.Name != "assistant" || !card.Capabilities.Streaming {
				t.Errorf("the card is %+v, %v", card, err)
			}
			for what, err := range map[error]error{
				spec.ErrTaskNotFound:                 errorOf(c.GetTask(ctx, &spec.GetTaskRequest{ID: "none"})),
				spec.ErrTaskNotCancelable:            errorOf(c.CancelTask(ctx, &spec.CancelTaskRequest{ID: done.ID})),
				spec.ErrUnsupportedOperation:         errorOf(c.SendMessage(ctx, taskRequest(done.ID, spec.NewTextPart("more")))),
				spec.ErrPushNotificationNotSupported: errorOf(c.GetTaskPushConfig(ctx, &spec.GetTaskPushConfigRequest{TaskID: done.ID, ID: "x"})),
			} {
				if !errors.Is(err, what) {
					t.Errorf("%v is reported as %v", what, err)
				}
			}
		})
	}
}

func errorOf[T any](_ T, err error) error { return err }

// pendingCallID returns the ID of the tool call that a task waits for.
func pendingCallID(t *testing.T, task *spec.Task) string {
	t.Helper()
	for _, m := range append(task.History, task.Status.Message) {
		if m == nil {
			continue
		}
		for _, p := range m.Parts {
			if data, ok := p.Data().(map[string]any); ok {
				if id, ok := data["call_id"].(string); ok {
					return id
				}
			}
		}
	}
	t.Fatalf("%+v names no call", task)
	return ""
}
