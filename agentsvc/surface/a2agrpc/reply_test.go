package a2agrpc_test

import (
	"testing"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
)

// terse is an app whose agent answers without a task where it can.
const terse = `
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

// TestReply has the official client ask an agent that answers without a task where it can.
func TestReply(t *testing.T) {
	t.Parallel()
	h := newHouse(t, surface.Options{}, a2agrpc.Options{})
	h.App(t, "terse", terse)
	for _, v := range versions {
		t.Run(string(v.name), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			c := h.client(t, v.name, h.token(t, "terse", "ana "+string(v.name)), "")
			answer, err := c.SendMessage(ctx, says("hello"))
			if m, ok := answer.(*spec.Message); err != nil || !ok || text(m) != "You said: hello" || m.TaskID != "" || m.ContextID == "" {
				t.Fatalf("send answers %T %+v, %v", answer, answer, err)
			}
			var told []spec.Event
			for ev, err := range c.SendStreamingMessage(ctx, says("again")) {
				if err != nil {
					t.Fatal(err)
				}
				told = append(told, ev)
			}
			if len(told) != 1 {
				t.Fatalf("the stream tells %d events", len(told))
			}
			if m, ok := told[0].(*spec.Message); !ok || text(m) != "You said: again" || m.TaskID != "" {
				t.Errorf("the stream tells %T %+v", told[0], told[0])
			}
			if work := listen(t, c.SendStreamingMessage(ctx, says("task please"))); work.id == "" || work.said != "one two" || len(work.states) != 3 {
				t.Errorf("the stream of a task tells %+v", work)
			}
			answer, err = c.SendMessage(ctx, &spec.SendMessageRequest{Message: says("later").Message, Config: &spec.SendMessageConfig{ReturnImmediately: true}})
			if later, ok := answer.(*spec.Task); err != nil || !ok || later.ID == "" {
				t.Errorf("who does not wait is told %T %+v, %v", answer, answer, err)
			}
		})
	}
}
