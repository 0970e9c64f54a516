package v1

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// eventEncoder tells the events of one task.
type eventEncoder struct {
	surface.DeltaTracker
	r       *http.Request
	context agentsvc.ContextID
}

// encodeEvent returns the body that tells of ev in the first shape, nil for what this surface does not tell: a status with the
// whole of its message, or what an agent has said since the event before.
func (t *eventEncoder) encodeEvent(ev agentsvc.Event) any {
	switch {
	case ev.Status != nil:
		return event{Task: &taskBody{ID: string(ev.Task), ContextID: string(t.context), Status: newStatus(*ev.Status)}}
	case ev.Artifact != nil:
		return event{Artifact: t.newArtifactUpdate(ev)}
	}
	m, ok := t.NextMessage(ev)
	if !ok {
		return nil
	}
	out := newMessage(m)
	out.TaskID, out.ContextID = string(ev.Task), string(t.context)
	return event{Msg: &out}
}

// encodeFrame returns what tells of ev in the second shape, nil for what this surface does not tell. The contents of all frames
// together are the answer: nothing is told twice.
func (t *eventEncoder) encodeFrame(ev agentsvc.Event) *frame {
	f := &frame{
		Response: &response{Content: []part{}}, Task: &taskRef{ID: string(ev.Task), ContextID: string(t.context)}, EventID: ev.Seq,
	}
	var m agentsvc.Message
	switch {
	case ev.Status != nil:
		st := newStatus(*ev.Status)
		if f.Task.Status = &st; st.Update != nil {
			m, st.Update = t.TrimSent(*ev.Status.Message), nil
		}
	case ev.Artifact != nil:
		f.Artifact = t.newArtifactUpdate(ev)
	default:
		var ok bool
		if m, ok = t.NextMessage(ev); !ok {
			return nil
		}
	}
	f.Response = &response{newParts(m.Parts), surface.NewToolCallRecords(m.ToolCalls), m.Metadata}
	return f
}

func (t *eventEncoder) newArtifactUpdate(ev agentsvc.Event) *artifactUpdate {
	a := ev.Artifact
	return &artifactUpdate{string(ev.Task), string(t.context), newArtifact(a.Artifact), a.Append, a.Last}
}

// messageFormat is the first shape of streams: events called message, and done at the end.
func (t *eventEncoder) messageFormat() surface.StreamEncoder {
	fault := func(err error) any { return event{Error: t.newErrorRecord(err)} }
	reply := func(m agentsvc.Message) any { return event{Msg: newReply(m, t.context)} }
	return surface.StreamEncoder{EncodeEvent: t.encodeEvent, EncodeReply: reply, EncodeError: fault, EventName: "message", DoneBody: struct{}{}}
}

// responseFormat is the second shape of streams: pieces of a response, and [DONE] at the end.
func (t *eventEncoder) responseFormat() surface.StreamEncoder {
	d := t.frameFormat("")
	d.DoneBody = surface.PlainBody("[DONE]")
	return d
}

// frameFormat is how the WebSocket sounds: pieces of the response to a message, and a last frame that says so.
func (t *eventEncoder) frameFormat(message string) surface.StreamEncoder {
	encode := func(ev agentsvc.Event) any {
		f := t.encodeFrame(ev)
		if f == nil {
			return nil
		}
		f.MessageID = message
		return f
	}
	return surface.StreamEncoder{
		EncodeEvent: encode, EndsWhenSettled: true, DoneBody: frame{Response: &response{Content: []part{}}, MessageID: message, Done: true},
		EncodeError: func(err error) any { return frame{MessageID: message, Done: true, Error: t.newErrorRecord(err)} },
	}
}

func (t *eventEncoder) newErrorRecord(err error) *surface.ErrorRecord {
	record := surface.NewErrorRecord(t.r, err)
	return &record
}
