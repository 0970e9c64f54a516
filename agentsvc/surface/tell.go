package surface

import "stoa/agentsvc"

// Teller tells what an agent says on one stream. Its texts follow on each other: of a message that was told in chunks it
// adds only what the chunks left out. The zero value has told nothing.
type Teller struct {
	told map[agentsvc.MessageID]int // bytes of a message's text that chunks have told
}

// Message returns what ev adds to what the agent has said, a chunk as a message of its own, and false where that is
// nothing. What a sub-agent says is told as far as its text has been told already: else it is for the agent above it, and
// only the tools it calls are told.
func (t *Teller) Message(ev agentsvc.Event) (agentsvc.Message, bool) {
	switch {
	case ev.Chunk != nil:
		if t.told == nil {
			t.told = map[agentsvc.MessageID]int{}
		}
		t.told[ev.Chunk.Message] = ev.Chunk.Offset + len(ev.Chunk.Text)
		return agentsvc.Message{ID: ev.Chunk.Message, Role: agentsvc.RoleAgent, Parts: []agentsvc.Part{agentsvc.TextPart(ev.Chunk.Text)}}, true
	case ev.Message == nil || ev.Message.Role != agentsvc.RoleAgent:
		return agentsvc.Message{}, false
	case ev.Frame == "":
		return t.Rest(*ev.Message), true
	}
	m := *ev.Message
	m.Metadata = nil
	if _, begun := t.told[m.ID]; begun {
		m = t.Rest(m)
	} else {
		m.Parts = nil
	}
	return m, len(m.Parts) > 0 || len(m.ToolCalls) > 0
}

// Rest returns m without the text that was told of it.
func (t *Teller) Rest(m agentsvc.Message) agentsvc.Message {
	told := t.told[m.ID]
	delete(t.told, m.ID)
	if told == 0 {
		return m
	}
	parts := []agentsvc.Part{}
	for _, p := range m.Parts {
		if n := min(told, len(p.Text)); n > 0 {
			told -= n
			if p.Text = p.Text[n:]; p.Text == "" {
				continue
			}
		}
		parts = append(parts, p)
	}
	m.Parts = parts
	return m
}
