package v1

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// teller tells the events of one task.
type teller struct {
	surface.Teller
	r       *http.Request
	context agentsvc.ContextID
}

// event returns the body that tells of ev in the first shape, nil for what this surface does not tell: a status with the
// whole of its message, or what an agent has said since the event before.
func (t *teller) event(ev agentsvc.Event) any {
	switch {
	case ev.Status != nil:
		return event{Task: &taskBody{ID: string(ev.Task), ContextID: string(t.context), Status: newStatus(*ev.Status)}}
	case ev.Artifact != nil:
		return event{Artifact: t.artifact(ev)}
	}
	m, ok := t.Message(ev)
	if !ok {
		return nil
	}
	out := newMessage(m)
	out.TaskID, out.ContextID = string(ev.Task), string(t.context)
	return event{Msg: &out}
}

// frame returns what tells of ev in the second shape, nil for what this surface does not tell. The contents of all frames
// together are the answer: nothing is told twice.
func (t *teller) frame(ev agentsvc.Event) *frame {
	f := &frame{
		Response: &response{Content: []part{}}, Task: &taskRef{ID: string(ev.Task), ContextID: string(t.context)}, EventID: ev.Seq,
	}
	var m agentsvc.Message
	switch {
	case ev.Status != nil:
		st := newStatus(*ev.Status)
		if f.Task.Status = &st; st.Update != nil {
			m, st.Update = t.Rest(*ev.Status.Message), nil
		}
	case ev.Artifact != nil:
		f.Artifact = t.artifact(ev)
	default:
		var ok bool
		if m, ok = t.Message(ev); !ok {
			return nil
		}
	}
	f.Response = &response{newParts(m.Parts), surface.NewToolCallRecords(m.ToolCalls), m.Metadata}
	return f
}

func (t *teller) artifact(ev agentsvc.Event) *artifactUpdate {
	a := ev.Artifact
	return &artifactUpdate{string(ev.Task), string(t.context), newArtifact(a.Artifact), a.Append, a.Last}
}

// messages is the first shape of streams: events called message, and done at the end.
func (t *teller) messages() surface.Dialect {
	fault := func(err error) any { return event{Error: t.fault(err)} }
	reply := func(m agentsvc.Message) any { return event{Msg: newReply(m, t.context)} }
	return surface.Dialect{Event: t.event, Reply: reply, Fault: fault, Name: "message", Done: struct{}{}}
}

// responses is the second shape of streams: pieces of a response, and [DONE] at the end.
func (t *teller) responses() surface.Dialect {
	d := t.frames("")
	d.Done = surface.Plain("[DONE]")
	return d
}

// frames is how the WebSocket sounds: pieces of the response to a message, and a last frame that says so.
func (t *teller) frames(message string) surface.Dialect {
	tell := func(ev agentsvc.Event) any {
		f := t.frame(ev)
		if f == nil {
			return nil
		}
		f.MessageID = message
		return f
	}
	return surface.Dialect{
		Event: tell, Rests: true, Done: frame{Response: &response{Content: []part{}}, MessageID: message, Done: true},
		Fault: func(err error) any { return frame{MessageID: message, Done: true, Error: t.fault(err)} },
	}
}

func (t *teller) fault(err error) *surface.ErrorRecord {
	record := surface.NewErrorRecord(t.r, err)
	return &record
}
