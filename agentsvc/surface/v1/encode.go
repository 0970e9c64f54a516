package v1

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/sse"
	"stoa/agentsvc/surface/stream"
)

// eventEncoder encodes the events of one task for one stream. The embedded tracker remembers how much text of each
// message was sent. It belongs to the goroutine that writes the stream.
type eventEncoder struct {
	stream.DeltaTracker
	r       *http.Request      // its request ID is part of errors
	context agentsvc.ContextID // of the task; set when the subscription is known
}

// encodeEvent returns the body for ev in the format message, or nil for an event that this surface does not send,
// such as usage. A status carries its whole message; a message carries only the text since the event before.
func (e *eventEncoder) encodeEvent(ev agentsvc.Event) any {
	switch {
	case ev.Status != nil:
		return event{Task: &taskBody{ID: string(ev.Task), ContextID: string(e.context), Status: newStatus(*ev.Status)}}
	case ev.Artifact != nil:
		return event{Artifact: e.newArtifactUpdate(ev)}
	}
	m, ok := e.NextMessage(ev)
	if !ok {
		return nil
	}
	out := newMessage(m)
	out.TaskID, out.ContextID = string(ev.Task), string(e.context)
	return event{Msg: &out}
}

// encodeFrame returns the frame for ev in the format response, or nil for an event that this surface does not send.
// The contents of all frames, joined, are the answer: no text is sent twice. A message of a status is therefore
// trimmed by what deltas have sent, and removed from the status.
func (e *eventEncoder) encodeFrame(ev agentsvc.Event) *frame {
	f := &frame{
		Response: &responseContent{Content: []part{}}, Task: &taskRef{ID: string(ev.Task), ContextID: string(e.context)}, EventID: ev.Seq,
	}
	var m agentsvc.Message
	switch {
	case ev.Status != nil:
		st := newStatus(*ev.Status)
		// The status repeats the message that deltas have sent already: only the remainder becomes content.
		if f.Task.Status = &st; st.Update != nil {
			m, st.Update = e.TrimSent(*ev.Status.Message), nil
		}
	case ev.Artifact != nil:
		f.Artifact = e.newArtifactUpdate(ev)
	default:
		var ok bool
		if m, ok = e.NextMessage(ev); !ok {
			return nil
		}
	}
	f.Response = &responseContent{newParts(m.Parts), encode.NewToolCallRecords(m.ToolCalls), m.Metadata}
	return f
}

// newArtifactUpdate requires that ev.Artifact is set.
func (e *eventEncoder) newArtifactUpdate(ev agentsvc.Event) *artifactUpdate {
	a := ev.Artifact
	return &artifactUpdate{string(ev.Task), string(e.context), newArtifact(a.Artifact), a.Append, a.Last}
}

// messageFormat is the format message: events named message, and a last event named done. A stream that breaks off
// has no done event, so that a client can see the difference.
func (e *eventEncoder) messageFormat() stream.Encoder {
	fault := func(err error) any { return event{Error: e.newErrorRecord(err)} }
	reply := func(m agentsvc.Message) any { return event{Msg: newReply(m, e.context)} }
	return stream.Encoder{EncodeEvent: e.encodeEvent, EncodeReply: reply, EncodeError: fault, EventName: "message", DoneBody: struct{}{}}
}

// responseFormat is the format response: unnamed events with pieces of the answer, and the line [DONE] at the end,
// as clients of OpenAI's API expect it.
func (e *eventEncoder) responseFormat() stream.Encoder {
	d := e.frameFormat("")
	d.DoneBody = sse.PlainBody("[DONE]")
	return d
}

// frameFormat is the format of the WebSocket: frames of the format response that name the client message that they
// answer, and a last frame with done. message is the ID of that client message, "" if it has none.
func (e *eventEncoder) frameFormat(message string) stream.Encoder {
	encode := func(ev agentsvc.Event) any {
		f := e.encodeFrame(ev)
		if f == nil {
			return nil
		}
		f.MessageID = message
		return f
	}
	return stream.Encoder{
		EncodeEvent: encode, EndsWhenSettled: true, DoneBody: frame{Response: &responseContent{Content: []part{}}, MessageID: message, Done: true},
		EncodeError: func(err error) any { return frame{MessageID: message, Done: true, Error: e.newErrorRecord(err)} },
	}
}

// newErrorRecord returns err as callers may see it: internal details are replaced by the request ID.
func (e *eventEncoder) newErrorRecord(err error) *apierror.Record {
	record := apierror.NewRecord(surface.RequestID(e.r), err)
	return &record
}
