package stream

import "stoa/agentsvc"

// DeltaTracker turns the events of a stream into pieces of text for protocols that stream text (OpenAI, MCP and
// others): each piece continues the last one. A message that was sent as deltas is reduced to what the deltas did not
// contain. The zero value has seen nothing. One goroutine uses it.
type DeltaTracker struct {
	// sentBytes is how many bytes of a message's text its deltas have contained. TrimSent removes the entry.
	sentBytes map[agentsvc.MessageID]int
}

// NextMessage returns what ev adds to the agent's text, a delta as a message with one part, and false if it adds
// nothing. A message of a sub-agent (ev.Frame is not "") is addressed to the agent that called it: only its tool calls
// are returned, and its text only if deltas have already begun to show it.
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
	_, started := t.sentBytes[m.ID]
	if started {
		m = t.TrimSent(m)
	} else {
		m.Parts = nil
	}
	// A message that deltas have shown as a whole is returned too: clients discard the text of one whose end never comes.
	return m, started || len(m.ToolCalls) > 0
}

// TrimSent returns m without the text that its deltas contained. The task service yields the deltas of a message
// without gaps from its first byte, so cutting off the first bytes is enough.
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
