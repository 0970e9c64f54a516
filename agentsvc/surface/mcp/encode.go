package mcp

import (
	"encoding/json"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// eventEncoder tells of one call on a stream.
type eventEncoder struct {
	surface.DeltaTracker
	rpc           *surface.RPC
	task          agentsvc.Task
	progressToken json.RawMessage // of progress, nil = the client does not want to be told
	lastProgress  int64           // the progress that was told
	base          resultBase      // what the result has beside what came of the call
}

// encodeEvent returns what tells of ev: the result where the call comes to its end, else progress where the agent begins or says
// something.
func (t *eventEncoder) encodeEvent(ev agentsvc.Event) any {
	if ev.Seq == 0 {
		return nil
	}
	t.task.ApplyEvent(ev)
	switch {
	case ev.Status != nil && (ev.Status.State.IsTerminal() || ev.Status.State.IsInterrupted()):
		return t.rpc.EncodeResult(newCallResult(t.task, t.base))
	case len(t.progressToken) == 0 || ev.Seq <= t.lastProgress:
		return nil
	case ev.Status != nil:
		return t.newProgress(ev, string(ev.Status.State))
	}
	if m, ok := t.NextMessage(ev); ok && m.Text() != "" {
		return t.newProgress(ev, m.Text())
	}
	return nil
}

func (t *eventEncoder) newProgress(ev agentsvc.Event, message string) notification {
	t.lastProgress = ev.Seq
	return notification{"2.0", "notifications/progress", progress{t.progressToken, ev.Seq, message}}
}

// newCallResult returns what came of a call, as its task tells. A task that waits for somebody is no error: its result is what is
// asked.
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
		out.Text = m.Text()
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

// newContent returns a part of a task's result.
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

func fileName(f *agentsvc.File) string {
	if f.Name == "" {
		return "file"
	}
	return f.Name
}
