package surface

import "stoa/agentsvc"

// DeltaTracker tells what an agent says on one stream. Its texts follow on each other: of a message that was told in chunks it
// adds only what the chunks left out. The zero value has told nothing.
type DeltaTracker struct {
	sentBytes map[agentsvc.MessageID]int // bytes of a message's text that chunks have told
}

// NextMessage returns what ev adds to what the agent has said, a chunk as a message of its own, and false where that is
// nothing. What a sub-agent says is told as far as its text has been told already: else it is for the agent above it, and
// only the tools it calls are told.
func (t *DeltaTracker) NextMessage(ev agentsvc.Event) (agentsvc.Message, bool) {
	switch {
	case ev.Chunk != nil:
		if t.sentBytes == nil {
			t.sentBytes = map[agentsvc.MessageID]int{}
		}
		t.sentBytes[ev.Chunk.Message] = ev.Chunk.Offset + len(ev.Chunk.Text)
		return agentsvc.Message{ID: ev.Chunk.Message, Role: agentsvc.RoleAgent, Parts: []agentsvc.Part{agentsvc.TextPart(ev.Chunk.Text)}}, true
	case ev.Message == nil || ev.Message.Role != agentsvc.RoleAgent:
		return agentsvc.Message{}, false
	case ev.Frame == "":
		return t.TrimSent(*ev.Message), true
	}
	m := *ev.Message
	m.Metadata = nil
	if _, started := t.sentBytes[m.ID]; started {
		m = t.TrimSent(m)
	} else {
		m.Parts = nil
	}
	return m, len(m.Parts) > 0 || len(m.ToolCalls) > 0
}

// TrimSent returns m without the text that was told of it.
func (t *DeltaTracker) TrimSent(m agentsvc.Message) agentsvc.Message {
	reported := t.sentBytes[m.ID]
	delete(t.sentBytes, m.ID)
	if reported == 0 {
		return m
	}
	parts := []agentsvc.Part{}
	for _, p := range m.Parts {
		if n := min(reported, len(p.Text)); n > 0 {
			reported -= n
			if p.Text = p.Text[n:]; p.Text == "" {
				continue
			}
		}
		parts = append(parts, p)
	}
	m.Parts = parts
	return m
}
