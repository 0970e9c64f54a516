package store

import (
	"encoding/json"
	"fmt"

	"stoa/agentsvc"
)

// The shapes of bodies in the database. They outlive any release: fields are added, never renamed.
type (
	eventBody struct {
		Frame    string        `json:"frame,omitempty"`
		State    string        `json:"state,omitempty"`
		Message  *messageBody  `json:"message,omitempty"`
		Artifact *artifactBody `json:"artifact,omitempty"`
		Result   *resultBody   `json:"result,omitempty"`
		Usage    *usageBody    `json:"usage,omitempty"`
	}
	messageBody struct {
		ID       string         `json:"id,omitempty"`
		Role     string         `json:"role"`
		Parts    []partBody     `json:"parts,omitempty"`
		Calls    []callBody     `json:"calls,omitempty"`
		Metadata map[string]any `json:"metadata,omitempty"`
	}
	partBody struct {
		Text string    `json:"text,omitempty"`
		File *fileBody `json:"file,omitempty"`
		Data *dataBody `json:"data,omitempty"`
	}
	fileBody struct {
		Name      string `json:"name,omitempty"`
		MediaType string `json:"media_type,omitempty"`
		URI       string `json:"uri,omitempty"`
		Bytes     []byte `json:"bytes,omitempty"`
	}
	dataBody struct {
		MediaType string `json:"media_type,omitempty"`
		Value     any    `json:"value"`
	}
	callBody struct {
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
	}
	artifactBody struct {
		ID          string         `json:"id"`
		Name        string         `json:"name,omitempty"`
		Description string         `json:"description,omitempty"`
		Parts       []partBody     `json:"parts,omitempty"`
		Metadata    map[string]any `json:"metadata,omitempty"`
		Append      bool           `json:"append,omitempty"`
		Last        bool           `json:"last,omitempty"`
	}
	resultBody struct {
		Call   string `json:"call"`
		Name   string `json:"name"`
		Text   string `json:"text"`
		Failed bool   `json:"failed,omitempty"`
	}
	usageBody struct {
		Provider   string `json:"provider"`
		Model      string `json:"model"`
		Input      int64  `json:"input,omitempty"`
		Output     int64  `json:"output,omitempty"`
		CacheRead  int64  `json:"cache_read,omitempty"`
		CacheWrite int64  `json:"cache_write,omitempty"`
		Reasoning  int64  `json:"reasoning,omitempty"`
	}
	entryBody struct {
		Message *messageBody `json:"message,omitempty"`
		Result  *resultBody  `json:"result,omitempty"`
	}
)

// kinds of events, as their column has them.
const (
	kindStatus   = "status"
	kindMessage  = "message"
	kindArtifact = "artifact"
	kindResult   = "result"
	kindUsage    = "usage"
)

func encodeEvent(ev agentsvc.Event) (kind, body string, err error) {
	b := eventBody{Frame: ev.Frame}
	switch {
	case ev.Status != nil:
		kind, b.State, b.Message = kindStatus, string(ev.Status.State), fromMessage(ev.Status.Message)
	case ev.Message != nil:
		kind, b.Message = kindMessage, fromMessage(ev.Message)
	case ev.Artifact != nil:
		a := ev.Artifact.Artifact
		kind, b.Artifact = kindArtifact, &artifactBody{a.ID, a.Name, a.Description, fromParts(a.Parts), a.Metadata, ev.Artifact.Append, ev.Artifact.Last}
	case ev.Result != nil:
		kind, b.Result = kindResult, fromResult(ev.Result)
	case ev.Usage != nil:
		u := ev.Usage
		kind, b.Usage = kindUsage, &usageBody{u.Provider, u.Model, u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheWriteTokens, u.ReasoningTokens}
	default:
		return "", "", fmt.Errorf("event %d of task %s holds no fact", ev.Seq, ev.Task)
	}
	raw, err := json.Marshal(b)
	return kind, string(raw), err
}

func decodeEvent(ev *agentsvc.Event, body []byte) error {
	var b eventBody
	if err := json.Unmarshal(body, &b); err != nil {
		return fmt.Errorf("decode event %d of task %s: %w", ev.Seq, ev.Task, err)
	}
	ev.Frame = b.Frame
	m := toMessage(b.Message)
	if m != nil {
		m.Task = ev.Task
	}
	switch {
	case b.State != "":
		ev.Status = &agentsvc.Status{State: agentsvc.State(b.State), Message: m, At: ev.At}
	case m != nil:
		ev.Message = m
	case b.Artifact != nil:
		a := b.Artifact
		ev.Artifact = &agentsvc.ArtifactUpdate{
			Artifact: agentsvc.Artifact{ID: a.ID, Name: a.Name, Description: a.Description, Parts: toParts(a.Parts), Metadata: a.Metadata},
			Append:   a.Append, Last: a.Last,
		}
	case b.Result != nil:
		ev.Result = toResult(b.Result)
	case b.Usage != nil:
		u := b.Usage
		ev.Usage = &agentsvc.Usage{
			Provider: u.Provider, Model: u.Model, InputTokens: u.Input, OutputTokens: u.Output,
			CacheReadTokens: u.CacheRead, CacheWriteTokens: u.CacheWrite, ReasoningTokens: u.Reasoning,
		}
	}
	return nil
}

func encodeEntries(entries []agentsvc.Entry) (string, error) {
	out := make([]entryBody, len(entries))
	for i, e := range entries {
		out[i] = entryBody{fromMessage(e.Message), fromResult(e.Result)}
	}
	raw, err := json.Marshal(out)
	return string(raw), err
}

func decodeEntries(body []byte) ([]agentsvc.Entry, error) {
	var in []entryBody
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("decode session: %w", err)
	}
	out := make([]agentsvc.Entry, len(in))
	for i, e := range in {
		out[i] = agentsvc.Entry{Message: toMessage(e.Message), Result: toResult(e.Result)}
	}
	return out, nil
}

func fromMessage(m *agentsvc.Message) *messageBody {
	if m == nil {
		return nil
	}
	b := &messageBody{ID: string(m.ID), Role: string(m.Role), Parts: fromParts(m.Parts), Metadata: m.Metadata}
	for _, c := range m.ToolCalls {
		b.Calls = append(b.Calls, callBody{string(c.ID), c.Name, c.Arguments})
	}
	return b
}

func toMessage(b *messageBody) *agentsvc.Message {
	if b == nil {
		return nil
	}
	m := &agentsvc.Message{ID: agentsvc.MessageID(b.ID), Role: agentsvc.Role(b.Role), Parts: toParts(b.Parts), Metadata: b.Metadata}
	for _, c := range b.Calls {
		m.ToolCalls = append(m.ToolCalls, agentsvc.ToolCall{ID: agentsvc.CallID(c.ID), Name: c.Name, Arguments: c.Arguments})
	}
	return m
}

func fromParts(parts []agentsvc.Part) []partBody {
	out := make([]partBody, len(parts))
	for i, p := range parts {
		out[i].Text = p.Text
		if f := p.File; f != nil {
			out[i].File = &fileBody{f.Name, f.MediaType, f.URI, f.Bytes}
		}
		if d := p.Data; d != nil {
			out[i].Data = &dataBody{d.MediaType, d.Value}
		}
	}
	return out
}

func toParts(parts []partBody) []agentsvc.Part {
	if len(parts) == 0 {
		return nil
	}
	out := make([]agentsvc.Part, len(parts))
	for i, p := range parts {
		out[i].Text = p.Text
		if f := p.File; f != nil {
			out[i].File = &agentsvc.File{Name: f.Name, MediaType: f.MediaType, URI: f.URI, Bytes: f.Bytes}
		}
		if d := p.Data; d != nil {
			out[i].Data = &agentsvc.Data{MediaType: d.MediaType, Value: d.Value}
		}
	}
	return out
}

func fromResult(r *agentsvc.ToolResult) *resultBody {
	if r == nil {
		return nil
	}
	return &resultBody{string(r.Call), r.Name, r.Text, r.Failed}
}

func toResult(b *resultBody) *agentsvc.ToolResult {
	if b == nil {
		return nil
	}
	return &agentsvc.ToolResult{Call: agentsvc.CallID(b.Call), Name: b.Name, Text: b.Text, Failed: b.Failed}
}
