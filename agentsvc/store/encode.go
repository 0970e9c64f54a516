package store

import (
	"encoding/json"
	"fmt"
	"time"

	"stoa/agentsvc"
)

// The JSON bodies in the database. Rows outlive releases: fields are added, and never renamed or given another
// meaning. The names are shorter or older than those of the domain types, which is why the domain types have no JSON
// tags and are converted here. A body has no field for what its row's columns hold: tenant, task, sequence and time.
type (
	// eventBody is the body of an event. Besides frame it has one of: state, with message where the status has one;
	// message alone; or one of the other fields.
	eventBody struct {
		Frame    string        `json:"frame,omitempty"`
		State    string        `json:"state,omitempty"`
		Message  *messageBody  `json:"message,omitempty"`
		Artifact *artifactBody `json:"artifact,omitempty"`
		Call     *callBody     `json:"call,omitempty"`
		Result   *resultBody   `json:"result,omitempty"`
		Approval *approvalBody `json:"approval,omitempty"`
		Decision *decisionBody `json:"decision,omitempty"`
		Usage    *usageBody    `json:"usage,omitempty"`
		Finding  *findingBody  `json:"finding,omitempty"`
		Sources  *sourcesBody  `json:"sources,omitempty"`

		Checkpoint *checkpointBody `json:"checkpoint,omitempty"`
		Attempt    *attemptBody    `json:"attempt,omitempty"`
	}
	// messageBody is a message without its task and context, which are the row's.
	messageBody struct {
		ID            string         `json:"id,omitempty"`
		Role          string         `json:"role"`
		Parts         []partBody     `json:"parts,omitempty"`
		Calls         []callBody     `json:"calls,omitempty"`
		Metadata      map[string]any `json:"metadata,omitempty"`
		PriorMessages []*messageBody `json:"earlier,omitempty"`
		Standalone    bool           `json:"alone,omitempty"`
	}
	// partBody is a part. Text is the kind of a part without file and data.
	partBody struct {
		Text     string    `json:"text,omitempty"`
		TextType string    `json:"text_type,omitempty"`
		File     *fileBody `json:"file,omitempty"`
		Data     *dataBody `json:"data,omitempty"`
	}
	// fileBody is a file; encoding/json writes Bytes as base64.
	fileBody struct {
		Name      string `json:"name,omitempty"`
		MediaType string `json:"media_type,omitempty"`
		URI       string `json:"uri,omitempty"`
		Bytes     []byte `json:"bytes,omitempty"`
	}
	// dataBody is a JSON value. It has no omitempty: null is a value.
	dataBody struct {
		MediaType string `json:"media_type,omitempty"`
		Value     any    `json:"value"`
	}
	// callBody is a tool call. Arguments are stored as the model wrote them, even where they are not valid for the
	// tool.
	callBody struct {
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
		Thought   string          `json:"thought,omitempty"`
	}
	// artifactBody is an artifact update.
	artifactBody struct {
		ID          string         `json:"id"`
		Name        string         `json:"name,omitempty"`
		Description string         `json:"description,omitempty"`
		Parts       []partBody     `json:"parts,omitempty"`
		Metadata    map[string]any `json:"metadata,omitempty"`
		Append      bool           `json:"append,omitempty"`
		Last        bool           `json:"last,omitempty"`
	}
	// resultBody is a tool result.
	resultBody struct {
		Call   string `json:"call"`
		Name   string `json:"name"`
		Text   string `json:"text"`
		Failed bool   `json:"failed,omitempty"`
		Took   int64  `json:"took,omitempty"` // microseconds
	}
	// approvalBody is an open approval as it was requested. When it expires is in the table approval.
	approvalBody struct {
		Call    callBody `json:"call"`
		Kind    string   `json:"kind"`
		Prompt  string   `json:"prompt"`
		Timeout int64    `json:"timeout,omitempty"` // microseconds
		Tool    string   `json:"tool,omitempty"`    // of the requested credential
		Header  string   `json:"header,omitempty"`
		Server  string   `json:"server,omitempty"`
	}
	// decisionBody is a decision; verdict is its outcome.
	decisionBody struct {
		Call      string          `json:"call"`
		Outcome   string          `json:"verdict"`
		Issuer    string          `json:"issuer,omitempty"`
		Subject   string          `json:"subject,omitempty"`
		Message   string          `json:"message,omitempty"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
		Hash      string          `json:"hash,omitempty"`
		Comment   string          `json:"comment,omitempty"`
	}
	// usageBody is the usage of one model call, in tokens.
	usageBody struct {
		Provider   string `json:"provider"`
		Model      string `json:"model"`
		Input      int64  `json:"input,omitempty"`
		Output     int64  `json:"output,omitempty"`
		CacheRead  int64  `json:"cache_read,omitempty"`
		CacheWrite int64  `json:"cache_write,omitempty"`
		Reasoning  int64  `json:"reasoning,omitempty"`
		Call       string `json:"call,omitempty"`
		StartedAt  int64  `json:"began,omitempty"` // microseconds since 1970
		Estimated  bool   `json:"estimated,omitempty"`
		Took       int64  `json:"took,omitempty"` // microseconds
		Retries    int64  `json:"retries,omitempty"`
		Fallback   bool   `json:"fallback,omitempty"`
	}
	// findingBody has the fields of agentsvc.Finding in the same order, so that one converts to the other.
	findingBody struct {
		Guardrail string `json:"guardrail"`
		Phase     string `json:"phase"`
		Rule      string `json:"rule"`
		Action    string `json:"action"`
		Severity  string `json:"severity"`
		Shadow    bool   `json:"shadow,omitempty"`
	}
	// checkpointBody is a restore point.
	checkpointBody struct {
		Reason string `json:"reason"`
		Step   int    `json:"step"`
	}
	// attemptBody is a further attempt of a run.
	attemptBody struct {
		Number int64  `json:"number"`
		Reason string `json:"reason"`
		CutOff bool   `json:"interrupted,omitempty"`
		Delay  int64  `json:"delay,omitempty"` // microseconds
	}
	// entryBody is an entry of a session's turn. Position and turn are columns of its row.
	entryBody struct {
		Message *messageBody `json:"message,omitempty"`
		Result  *resultBody  `json:"result,omitempty"`
	}
)

// Kinds of events, the values of the column kind. Queries select by it, so that they do not need to read bodies.
const (
	kindStatus   = "status"
	kindMessage  = "message"
	kindArtifact = "artifact"
	kindCall     = "call"
	kindResult   = "result"
	kindApproval = "approval"
	kindDecision = "decision"
	kindUsage    = "usage"
	kindFinding  = "finding"
	kindSources  = "sources"

	kindCheckpoint = "checkpoint"
	kindAttempt    = "attempt"
)

// encodeEvent returns kind and body of an event's row. It fails for an event without a fact, such as a chunk, and for
// values that have no JSON form.
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
	case ev.Call != nil:
		call := fromCall(*ev.Call)
		kind, b.Call = kindCall, &call
	case ev.Result != nil:
		kind, b.Result = kindResult, fromResult(ev.Result)
	case ev.Approval != nil:
		a := ev.Approval
		kind = kindApproval
		b.Approval = &approvalBody{
			fromCall(a.Call), string(a.Kind), a.Prompt, a.Timeout.Microseconds(), a.Credential.Tool, a.Credential.Header, a.Credential.Server,
		}
	case ev.Decision != nil:
		d := ev.Decision
		kind = kindDecision
		b.Decision = &decisionBody{
			string(d.Call), string(d.Outcome), d.By.Issuer, d.By.Subject, string(d.Message), d.Arguments, d.Hash, d.Comment,
		}
	case ev.Usage != nil:
		kind, b.Usage = kindUsage, fromUsage(*ev.Usage)
	case ev.Finding != nil:
		f := findingBody(*ev.Finding)
		kind, b.Finding = kindFinding, &f
	case ev.Sources != nil:
		kind, b.Sources = kindSources, fromSources(ev.Sources)
	case ev.Checkpoint != nil:
		kind, b.Checkpoint = kindCheckpoint, &checkpointBody{string(ev.Checkpoint.Reason), ev.Checkpoint.Step}
	case ev.Attempt != nil:
		a := ev.Attempt
		kind, b.Attempt = kindAttempt, &attemptBody{a.Number, a.Reason, a.CutOff, a.Delay.Microseconds()}
	default:
		return "", "", fmt.Errorf("event %d of task %s holds no fact", ev.Seq, ev.Task)
	}
	size := encodedSize(ev.Message)
	if ev.Status != nil {
		size = encodedSize(ev.Status.Message)
	}
	body, err = encodeJSON(b, size)
	return kind, body, err
}

// decodeEvent sets the fact of ev from the body of its row. Task, Seq and At must be set, because facts repeat them.
// A body of an unknown kind, of a newer release, leaves ev without a fact.
func decodeEvent(ev *agentsvc.Event, body []byte) error {
	var b eventBody
	if err := decodeJSON(body, &b); err != nil {
		return fmt.Errorf("decode event %d of task %s: %w", ev.Seq, ev.Task, err)
	}
	ev.Frame = b.Frame
	m := toMessage(b.Message)
	if m != nil {
		m.Task = ev.Task
	}
	// State decides first: a status may contain a message as well.
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
	case b.Call != nil:
		call := toCall(*b.Call)
		ev.Call = &call
	case b.Result != nil:
		ev.Result = toResult(b.Result)
	case b.Approval != nil:
		a := b.Approval
		ev.Approval = &agentsvc.Approval{
			Call: toCall(a.Call), Kind: agentsvc.ApprovalKind(a.Kind), Prompt: a.Prompt, Timeout: time.Duration(a.Timeout) * time.Microsecond,
			Credential: agentsvc.Credential{Tool: a.Tool, Header: a.Header, Server: a.Server},
			Seq:        ev.Seq, Frame: ev.Frame, At: ev.At,
		}
	case b.Decision != nil:
		d := b.Decision
		ev.Decision = &agentsvc.Decision{
			Call: agentsvc.CallID(d.Call), Outcome: agentsvc.DecisionOutcome(d.Outcome), By: agentsvc.Owner{Issuer: d.Issuer, Subject: d.Subject},
			Message: agentsvc.MessageID(d.Message), Arguments: d.Arguments, Hash: d.Hash, Comment: d.Comment,
		}
	case b.Usage != nil:
		ev.Usage = toUsage(*b.Usage)
	case b.Finding != nil:
		f := agentsvc.Finding(*b.Finding)
		ev.Finding = &f
	case b.Sources != nil:
		ev.Sources = toSources(b.Sources)
	case b.Checkpoint != nil:
		ev.Checkpoint = &agentsvc.Checkpoint{Reason: agentsvc.CheckpointReason(b.Checkpoint.Reason), Step: b.Checkpoint.Step}
	case b.Attempt != nil:
		a := b.Attempt
		ev.Attempt = &agentsvc.Attempt{Number: a.Number, Reason: a.Reason, CutOff: a.CutOff, Delay: time.Duration(a.Delay) * time.Microsecond}
	}
	return nil
}

// fromUsage returns the body of a usage; a zero StartedAt is left out.
func fromUsage(u agentsvc.Usage) *usageBody {
	b := &usageBody{
		u.Provider, u.Model, u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheWriteTokens, u.ReasoningTokens, u.Call, 0, u.Estimated,
		u.Took.Microseconds(), u.Retries, u.Fallback,
	}
	if !u.StartedAt.IsZero() {
		b.StartedAt = u.StartedAt.UnixMicro()
	}
	return b
}

// toUsage is the inverse of fromUsage.
func toUsage(b usageBody) *agentsvc.Usage {
	u := &agentsvc.Usage{
		Provider: b.Provider, Model: b.Model, InputTokens: b.Input, OutputTokens: b.Output, CacheReadTokens: b.CacheRead,
		CacheWriteTokens: b.CacheWrite, ReasoningTokens: b.Reasoning, Call: b.Call, Estimated: b.Estimated,
		Took: time.Duration(b.Took) * time.Microsecond, Retries: b.Retries, Fallback: b.Fallback,
	}
	if b.StartedAt != 0 {
		u.StartedAt = time.UnixMicro(b.StartedAt).UTC()
	}
	return u
}

// encodeEntries returns the body of a session's turn.
func encodeEntries(entries []agentsvc.Entry) (string, error) {
	out, size := make([]entryBody, len(entries)), 0
	for i, e := range entries {
		out[i] = entryBody{fromMessage(e.Message), fromResult(e.Result)}
		size += encodedSize(e.Message)
	}
	return encodeJSON(out, size)
}

// decodeEntries is the inverse of encodeEntries. The entries' Turn is set by the caller, from the row.
func decodeEntries(body []byte) ([]agentsvc.Entry, error) {
	var in []entryBody
	if err := decodeJSON(body, &in); err != nil {
		return nil, fmt.Errorf("decode session: %w", err)
	}
	out := make([]agentsvc.Entry, len(in))
	for i, e := range in {
		out[i] = agentsvc.Entry{Message: toMessage(e.Message), Result: toResult(e.Result)}
	}
	return out, nil
}

// fromMessage returns the body of a message, nil for nil.
func fromMessage(m *agentsvc.Message) *messageBody {
	if m == nil {
		return nil
	}
	b := &messageBody{ID: string(m.ID), Role: string(m.Role), Parts: fromParts(m.Parts), Metadata: m.Metadata, Standalone: m.Standalone}
	for _, c := range m.ToolCalls {
		b.Calls = append(b.Calls, fromCall(c))
	}
	for i := range m.PriorMessages {
		b.PriorMessages = append(b.PriorMessages, fromMessage(&m.PriorMessages[i]))
	}
	return b
}

// toMessage is the inverse of fromMessage. Task is set by the caller, from the row.
func toMessage(b *messageBody) *agentsvc.Message {
	if b == nil {
		return nil
	}
	m := &agentsvc.Message{ID: agentsvc.MessageID(b.ID), Role: agentsvc.Role(b.Role), Parts: toParts(b.Parts), Metadata: b.Metadata, Standalone: b.Standalone}
	for _, c := range b.Calls {
		m.ToolCalls = append(m.ToolCalls, toCall(c))
	}
	for _, e := range b.PriorMessages {
		m.PriorMessages = append(m.PriorMessages, *toMessage(e))
	}
	return m
}

// fromCall and the following functions convert between domain types and bodies; the pairs are inverse.
func fromCall(c agentsvc.ToolCall) callBody {
	return callBody{string(c.ID), c.Name, c.Arguments, c.Thought}
}

func toCall(b callBody) agentsvc.ToolCall {
	return agentsvc.ToolCall{ID: agentsvc.CallID(b.ID), Name: b.Name, Arguments: b.Arguments, Thought: b.Thought}
}

// fromParts returns the bodies of parts, in order.
func fromParts(parts []agentsvc.Part) []partBody {
	out := make([]partBody, len(parts))
	for i, p := range parts {
		out[i].Text, out[i].TextType = p.Text, p.TextType
		if f := p.File; f != nil {
			out[i].File = &fileBody{f.Name, f.MediaType, f.URI, f.Bytes}
		}
		if d := p.Data; d != nil {
			out[i].Data = &dataBody{d.MediaType, d.Value}
		}
	}
	return out
}

// toParts is the inverse of fromParts. No parts are nil, as before encoding.
func toParts(parts []partBody) []agentsvc.Part {
	if len(parts) == 0 {
		return nil
	}
	out := make([]agentsvc.Part, len(parts))
	for i, p := range parts {
		out[i].Text, out[i].TextType = p.Text, p.TextType
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
	return &resultBody{string(r.Call), r.Name, r.Text, r.Failed, r.Took.Microseconds()}
}

func toResult(b *resultBody) *agentsvc.ToolResult {
	if b == nil {
		return nil
	}
	return &agentsvc.ToolResult{Call: agentsvc.CallID(b.Call), Name: b.Name, Text: b.Text, Failed: b.Failed, Took: time.Duration(b.Took) * time.Microsecond}
}
