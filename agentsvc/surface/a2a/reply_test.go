package a2a_test

import (
	"testing"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
)

// terseConfig is an app whose agent answers with a message instead of a task.
const terseConfig = `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^task"}
        then: [{say: "one ", pause: 20ms}, {say: "two"}]
      - when: {text: "^ask$"}
        then: [{ask: "Which city?"}]
      - reply: message
        then: [{say: "You said: {{text}}"}]
agents: {brief: {llm: demo}}
`

// TestReply calls an agent that answers with a message instead of a task, with the official client.
func TestReply(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.CreateApp(t, "terse", terseConfig)
	for _, b := range bindings {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			c := newClient(t, h, "brief", b.version, b.binding, mintToken(t, h, "terse", "ana "+b.name))
			answer, err := c.SendMessage(ctx, &spec.SendMessageRequest{Message: textMessage("hello")})
			m, alone := answer.(*spec.Message)
			if err != nil || !alone || messageText(m) != "You said: hello" || m.Role != spec.MessageRoleAgent || m.TaskID != "" || m.ContextID == "" || m.ID == "" {
				t.Fatalf("send answers %T %+v, %v", answer, answer, err)
			}
			next := textMessage("again")
			next.ContextID = m.ContextID
			var reported []spec.Event
			for ev, err := range c.SendStreamingMessage(ctx, &spec.SendMessageRequest{Message: next}) {
				if err != nil {
					t.Fatal(err)
				}
				reported = append(reported, ev)
			}
			if len(reported) != 1 {
				t.Fatalf("the stream has %d events", len(reported))
			}
			if m, ok := reported[0].(*spec.Message); !ok || messageText(m) != "You said: again" || m.TaskID != "" || m.ContextID != next.ContextID {
				t.Errorf("the stream has %T %+v", reported[0], reported[0])
			}
			work := readStream(t, c.SendStreamingMessage(ctx, &spec.SendMessageRequest{Message: textMessage("task please")}))
			if work.first != "task" || work.deltas != "one two" || work.last != "one two" || len(work.states) != 3 {
				t.Errorf("the stream of a task has %+v", work)
			}
			checkInputRequired(t, c)
			once := textMessage("later")
			now := func(wait bool) spec.SendMessageResult {
				t.Helper()
				answer, err := c.SendMessage(ctx, &spec.SendMessageRequest{Message: once, Config: &spec.SendMessageConfig{ReturnImmediately: !wait}})
				if err != nil {
					t.Fatal(err)
				}
				return answer
			}
			accepted, isTask := now(false).(*spec.Task)
			if !isTask {
				t.Fatal("who does not wait gets no task")
			}
			if m, ok := now(true).(*spec.Message); !ok || messageText(m) != "You said: later" {
				t.Errorf("sent again, the same message is answered with %+v", m)
			}
			if repeated, ok := now(false).(*spec.Task); !ok || repeated.ID != accepted.ID || repeated.Status.State != spec.TaskStateCompleted {
				t.Errorf("and to who does not wait with %+v", repeated)
			}
			if got, err := c.GetTask(ctx, &spec.GetTaskRequest{ID: accepted.ID}); err != nil || got.Status.State != spec.TaskStateCompleted || messageText(got.Status.Message) != "You said: later" {
				t.Errorf("its task is %+v, %v", got, err)
			}
		})
	}
}
