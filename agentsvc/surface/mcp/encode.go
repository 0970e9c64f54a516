package mcp

import (
	"encoding/json"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/jsonrpc"
	"stoa/agentsvc/surface/stream"
)

// eventEncoder encodes the events of one call's stream.
type eventEncoder struct {
	stream.DeltaTracker
	rpc           *jsonrpc.Call
	task          agentsvc.Task   // the task with all events applied so far
	progressToken json.RawMessage // from the call's _meta; nil = the client wants no progress
	lastProgress  int64           // the progress value sent last
	base          resultBase      // members that the newest revision adds to every result
}

// encodeEvent returns the result for the event that ends the turn, a progress notification for statuses and for
// messages of the agent, else nil. Progress values are sequence numbers, because they must increase (MCP
// specification, Progress).
func (e *eventEncoder) encodeEvent(ev agentsvc.Event) any {
	// Deltas have no sequence number; the message that they belong to follows as an event.
	if ev.Seq == 0 {
		return nil
	}
	e.task.ApplyEvent(ev)
	switch {
	case ev.Status != nil && (ev.Status.State.IsTerminal() || ev.Status.State.IsInterrupted()):
		return e.rpc.EncodeResult(newCallResult(e.task, e.base))
	case len(e.progressToken) == 0 || ev.Seq <= e.lastProgress:
		return nil
	case ev.Status != nil:
		return e.newProgress(ev, string(ev.Status.State))
	}
	if m, ok := e.NextMessage(ev); ok && m.Text() != "" {
		return e.newProgress(ev, m.Text())
	}
	return nil
}

// newProgress returns a progress notification and remembers its value.
func (e *eventEncoder) newProgress(ev agentsvc.Event, message string) notification {
	e.lastProgress = ev.Seq
	return notification{"2.0", "notifications/progress", progress{e.progressToken, ev.Seq, message}}
}

// newCallResult returns the result of a call from its task: the answer's text first, then artifacts and files, and
// the same in structured form. A task that waits for input is no error: its text is the question, and task_id
// continues it.
func newCallResult(t agentsvc.Task, base resultBase) callResult {
	out := taskOutcome{TaskID: string(t.ID), ContextID: string(t.Context), State: string(t.Status.State)}
	res := callResult{resultBase: base, Structured: &out, Content: []content{}}
	switch t.Status.State {
	case agentsvc.Failed, agentsvc.Cancelled, agentsvc.Rejected:
		res.IsError = true
	case agentsvc.Submitted, agentsvc.Working:
		out.Text = "The agent is still at work."
	}
	var parts []agentsvc.Part
	for _, a := range t.Artifacts {
		parts = append(parts, a.Parts...)
	}
	if m := t.Status.Message; m != nil && m.Role == agentsvc.RoleAgent {
		out.Text, out.Citations, out.Error = m.Text(), m.Metadata[agentsvc.CitationsKey], m.Metadata[agentsvc.FailureKey]
		for _, p := range m.Parts {
			switch {
			case p.File != nil:
				parts = append(parts, p)
			case p.Data != nil:
				out.Data = p.Data.Value
			}
		}
	}
	if out.Text == "" && res.IsError {
		out.Text = "The task ended " + out.State + "."
	}
	res.Content = append(res.Content, newTextContent(out.Text))
	for _, p := range parts {
		res.Content = append(res.Content, newContent(out.TaskID, p))
	}
	return res
}

func newTextContent(text string) content { return content{Type: "text", Text: &text} }

// newContent returns a part of a result. A file is a link by its URL, an image or audio content by its media type,
// else an embedded resource with an invented URI, which the protocol requires.
func newContent(task string, p agentsvc.Part) content {
	f := p.File
	switch {
	case p.Data != nil:
		raw, _ := json.Marshal(p.Data.Value)
		return newTextContent(string(raw))
	case f == nil:
		return newTextContent(p.Text)
	case f.URI != "":
		return content{Type: "resource_link", URI: f.URI, Name: fileName(f), MimeType: f.MediaType}
	case strings.HasPrefix(f.MediaType, "image/"):
		return content{Type: "image", Data: f.Bytes, MimeType: f.MediaType}
	case strings.HasPrefix(f.MediaType, "audio/"):
		return content{Type: "audio", Data: f.Bytes, MimeType: f.MediaType}
	}
	return content{Type: "resource", Resource: &resource{"task:" + task + "/" + fileName(f), f.MediaType, f.Bytes}}
}

// fileName returns the name of f, "file" if it has none: the protocol requires one.
func fileName(f *agentsvc.File) string {
	if f.Name == "" {
		return "file"
	}
	return f.Name
}
