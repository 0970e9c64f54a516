package mcp

import (
	"encoding/json"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// teller tells of one call on a stream.
type teller struct {
	surface.Teller
	rpc   *surface.RPC
	task  agentsvc.Task
	token json.RawMessage // of progress, nil = the client does not want to be told
	last  int64           // the progress that was told
	whole completion      // what the result has beside what came of the call
}

// event returns what tells of ev: the result where the call comes to its end, else progress where the agent begins or says
// something.
func (t *teller) event(ev agentsvc.Event) any {
	if ev.Seq == 0 {
		return nil
	}
	t.task.Apply(ev)
	switch {
	case ev.Status != nil && (ev.Status.State.Terminal() || ev.Status.State.Interrupted()):
		return t.rpc.Envelope(newResult(t.task, t.whole))
	case len(t.token) == 0 || ev.Seq <= t.last:
		return nil
	case ev.Status != nil:
		return t.progress(ev, string(ev.Status.State))
	}
	if m, ok := t.Message(ev); ok && m.Text() != "" {
		return t.progress(ev, m.Text())
	}
	return nil
}

func (t *teller) progress(ev agentsvc.Event, message string) notification {
	t.last = ev.Seq
	return notification{"2.0", "notifications/progress", progress{t.token, ev.Seq, message}}
}

// newResult returns what came of a call, as its task tells. A task that waits for somebody is no error: its result is what is
// asked.
func newResult(t agentsvc.Task, whole completion) callResult {
	out := outcome{TaskID: string(t.ID), ContextID: string(t.Context), State: string(t.Status.State)}
	res := callResult{completion: whole, Structured: &out, Content: []content{}}
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
	res.Content = append(res.Content, textContent(out.Text))
	for _, p := range parts {
		res.Content = append(res.Content, newContent(out.TaskID, p))
	}
	return res
}

func textContent(text string) content { return content{Type: "text", Text: &text} }

// newContent returns a part of a task's result.
func newContent(task string, p agentsvc.Part) content {
	f := p.File
	switch {
	case p.Data != nil:
		raw, _ := json.Marshal(p.Data.Value)
		return textContent(string(raw))
	case f == nil:
		return textContent(p.Text)
	case f.URI != "":
		return content{Type: "resource_link", URI: f.URI, Name: nameOf(f), MimeType: f.MediaType}
	case strings.HasPrefix(f.MediaType, "image/"):
		return content{Type: "image", Data: f.Bytes, MimeType: f.MediaType}
	case strings.HasPrefix(f.MediaType, "audio/"):
		return content{Type: "audio", Data: f.Bytes, MimeType: f.MediaType}
	}
	return content{Type: "resource", Resource: &resource{"task:" + task + "/" + nameOf(f), f.MediaType, f.Bytes}}
}

func nameOf(f *agentsvc.File) string {
	if f.Name == "" {
		return "file"
	}
	return f.Name
}
