package a2agrpc_test

import (
	"testing"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
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
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	h.CreateApp(t, "terse", terseConfig)
	for _, v := range versions {
		t.Run(string(v.name), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			c := h.newClient(t, v.name, h.mintToken(t, "terse", "ana "+string(v.name)), "")
			answer, err := c.SendMessage(ctx, textRequest("hello"))
			if m, ok := answer.(*spec.Message); err != nil || !ok || messageText(m) != "You said: hello" || m.TaskID != "" || m.ContextID == "" {
				t.Fatalf("send answers %T %+v, %v", answer, answer, err)
			}
			var reported []spec.Event
			for ev, err := range c.SendStreamingMessage(ctx, textRequest("again")) {
				if err != nil {
					t.Fatal(err)
				}
				reported = append(reported, ev)
			}
			if len(reported) != 1 {
				t.Fatalf("the stream has %d events", len(reported))
			}
			if m, ok := reported[0].(*spec.Message); !ok || messageText(m) != "You said: again" || m.TaskID != "" {
				t.Errorf("the stream has %T %+v", reported[0], reported[0])
			}
			if work := readStream(t, c.SendStreamingMessage(ctx, textRequest("task please"))); work.id == "" || work.text != "one two" || len(work.states) != 3 {
				t.Errorf("the stream of a task has %+v", work)
			}
			answer, err = c.SendMessage(ctx, &spec.SendMessageRequest{Message: textRequest("later").Message, Config: &spec.SendMessageConfig{ReturnImmediately: true}})
			if later, ok := answer.(*spec.Task); err != nil || !ok || later.ID == "" {
				t.Errorf("who does not wait gets %T %+v, %v", answer, answer, err)
			}
		})
	}
}
