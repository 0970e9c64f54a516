package stream

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
)

// TestNextMessage checks what each event adds to the agent's text. The end of a message that deltas have shown is reported,
// also of a sub-agent: clients discard the text of a message whose end never comes.
func TestNextMessage(t *testing.T) {
	t.Parallel()
	chunk := func(id agentsvc.MessageID, offset int, text string) agentsvc.Event {
		return agentsvc.Event{Chunk: &agentsvc.Chunk{Message: id, Offset: offset, Text: text}}
	}
	message := func(frame string, id agentsvc.MessageID, text string, calls ...agentsvc.ToolCall) agentsvc.Event {
		return agentsvc.Event{Frame: frame, Message: &agentsvc.Message{ID: id, Role: agentsvc.RoleAgent, Parts: []agentsvc.Part{agentsvc.TextPart(text)}, ToolCalls: calls}}
	}
	call := agentsvc.ToolCall{ID: "c", Name: "calc"}
	for _, tt := range []struct {
		name   string
		events []agentsvc.Event
		want   []string
	}{
		{"a message without deltas", []agentsvc.Event{message("", "m", "one two")}, []string{"m: one two"}},
		{"a message that deltas have shown", []agentsvc.Event{chunk("m", 0, "one "), chunk("m", 4, "two"), message("", "m", "one two")}, []string{"m: one ", "m: two", "m: "}},
		{"the rest of a message", []agentsvc.Event{chunk("m", 0, "one "), message("", "m", "one two")}, []string{"m: one ", "m: two"}},
		{"a sub-agent's message without deltas", []agentsvc.Event{message("f", "m", "one two")}, []string{"nothing"}},
		{"a sub-agent's calls", []agentsvc.Event{message("f", "m", "one two", call)}, []string{"m: , calc"}},
		{"a sub-agent's message that deltas have shown", []agentsvc.Event{chunk("m", 0, "one two"), message("f", "m", "one two")}, []string{"m: one two", "m: "}},
		{"another message under the id of an ended one", []agentsvc.Event{chunk("m", 0, "one"), message("f", "m", "one"), message("f", "m", "one")}, []string{"m: one", "m: ", "nothing"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var tracker DeltaTracker
			var got []string
			for _, ev := range tt.events {
				m, ok := tracker.NextMessage(ev)
				if !ok {
					got = append(got, "nothing")
					continue
				}
				line := string(m.ID) + ": " + m.Text()
				for _, c := range m.ToolCalls {
					line += ", " + c.Name
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
