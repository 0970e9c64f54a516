package encode

import (
	"cmp"
	"encoding/json"

	"stoa/agentsvc"
)

// The JSON forms of tasks, messages and artifacts with names in snake_case, for protocols that
// have such names.
type (
	// TaskRecord is a task. Agent and Opening are set in lists of tasks of several agents. Own is set where one task is read: whether
	// it is the caller's.
	TaskRecord struct {
		TaskID      string             `json:"task_id"`
		ContextID   string             `json:"context_id"`
		Agent       string             `json:"agent,omitempty"`
		Own         *bool              `json:"own,omitempty"`
		Opening     string             `json:"opening,omitempty"`
		Status      StatusRecord       `json:"status"`
		History     []MessageRecord    `json:"history,omitempty"`
		Artifacts   []ArtifactRecord   `json:"artifacts,omitempty"`
		Approvals   []ApprovalRecord   `json:"approvals,omitempty"`
		Credentials []CredentialRecord `json:"credentials,omitempty"`
	}
	// CredentialRecord is a credential for a tool that a task waits for its owner to supply.
	CredentialRecord struct {
		Tool        string `json:"tool"`
		Header      string `json:"header"`
		Server      string `json:"server"`
		Prompt      string `json:"prompt"`
		RequestedAt string `json:"requested_at"`
	}
	// ApprovalRecord is a tool call that waits for a decision. Agent is the path of the sub-agent that made the call,
	// "" = the task's own agent.
	ApprovalRecord struct {
		CallID      string          `json:"call_id"`
		Tool        string          `json:"tool"`
		Arguments   json.RawMessage `json:"arguments"`
		Prompt      string          `json:"prompt"`
		Kind        string          `json:"kind"`
		Agent       string          `json:"agent,omitempty"`
		RequestedAt string          `json:"requested_at"`
		ExpiresAt   string          `json:"expires_at,omitempty"`
	}
	// StatusRecord is the state of a task. Message is the agent's, if the state has one.
	StatusRecord struct {
		State     string         `json:"state"`
		Message   *MessageRecord `json:"message,omitempty"`
		Timestamp string         `json:"timestamp"`
	}
	// MessageRecord is a message of a user or an agent.
	MessageRecord struct {
		MessageID string           `json:"message_id,omitempty"`
		Role      string           `json:"role"`
		Parts     []PartRecord     `json:"parts"`
		ToolCalls []ToolCallRecord `json:"tool_calls,omitempty"`
		Metadata  map[string]any   `json:"metadata,omitempty"`
	}
	// PartRecord is a part of a message or an artifact. Type is text, file or data. Data is the bytes of a file, in
	// base64, or a JSON value. A data part always has a MimeType.
	PartRecord struct {
		Type     string  `json:"type"`
		Text     *string `json:"text,omitempty"`
		Name     string  `json:"name,omitempty"`
		MimeType string  `json:"mime_type,omitempty"`
		URL      string  `json:"url,omitempty"`
		Data     any     `json:"data,omitempty"`
	}
	// ToolCallRecord is a tool call in an agent's message, in the form of OpenAI's API. Type is always function.
	ToolCallRecord struct {
		ID       string         `json:"id"`
		Type     string         `json:"type"`
		Function FunctionRecord `json:"function"`
	}
	// FunctionRecord is the tool of a call. Arguments is a JSON object as text.
	FunctionRecord struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	// ArtifactRecord is an artifact.
	ArtifactRecord struct {
		ArtifactID  string         `json:"artifact_id"`
		Name        string         `json:"name,omitempty"`
		Description string         `json:"description,omitempty"`
		Parts       []PartRecord   `json:"parts"`
		Metadata    map[string]any `json:"metadata,omitempty"`
	}
)

// NewTaskRecord returns the record of t with at most the last *length messages of its history, nil = all. A credential
// that several calls wait for is listed once.
func NewTaskRecord(t agentsvc.Task, length *int) TaskRecord {
	r := TaskRecord{TaskID: string(t.ID), ContextID: string(t.Context), Opening: t.Opening, Status: NewStatusRecord(t.Status)}
	history := t.History
	if length != nil {
		history = history[max(0, len(history)-*length):]
	}
	for _, m := range history {
		r.History = append(r.History, *NewMessageRecord(&m))
	}
	for _, a := range t.Artifacts {
		r.Artifacts = append(r.Artifacts, NewArtifactRecord(a))
	}
	wanted := map[agentsvc.Credential]bool{}
	for _, a := range t.Approvals {
		switch {
		case a.NeedsDecision():
			r.Approvals = append(r.Approvals, NewApprovalRecord(a))
		case a.Kind == agentsvc.AwaitBudget: // the task's status reports it
		case !wanted[a.Credential]:
			wanted[a.Credential] = true
			r.Credentials = append(r.Credentials, CredentialRecord{a.Credential.Tool, a.Credential.Header, a.Credential.Server, a.Prompt, FormatTime(a.At)})
		}
	}
	return r
}

// NewApprovalRecord returns the record of a. Missing arguments become {}.
func NewApprovalRecord(a agentsvc.Approval) ApprovalRecord {
	r := ApprovalRecord{
		CallID: string(a.Call.ID), Tool: a.Call.Name, Arguments: a.Call.Arguments, Prompt: a.Prompt, Kind: string(a.Kind), Agent: a.Frame,
		RequestedAt: FormatTime(a.At),
	}
	if len(r.Arguments) == 0 {
		r.Arguments = json.RawMessage("{}")
	}
	if a.Timeout > 0 {
		r.ExpiresAt = FormatTime(a.At.Add(a.Timeout))
	}
	return r
}

// NewStatusRecord returns the record of s. The message of a user, which may have caused the status, is left out.
func NewStatusRecord(s agentsvc.Status) StatusRecord {
	r := StatusRecord{State: string(s.State), Timestamp: FormatTime(s.At)}
	if s.Message != nil && s.Message.Role == agentsvc.RoleAgent {
		r.Message = NewMessageRecord(s.Message)
	}
	return r
}

// NewMessageRecord returns the record of m.
func NewMessageRecord(m *agentsvc.Message) *MessageRecord {
	return &MessageRecord{
		MessageID: string(m.ID), Role: string(m.Role), Parts: newPartRecords(m.Parts), ToolCalls: NewToolCallRecords(m.ToolCalls), Metadata: m.Metadata,
	}
}

// NewToolCallRecords returns the records of calls, nil if there are none. Missing arguments become {}.
func NewToolCallRecords(calls []agentsvc.ToolCall) (records []ToolCallRecord) {
	for _, c := range calls {
		arguments := string(c.Arguments)
		if arguments == "" {
			arguments = "{}"
		}
		records = append(records, ToolCallRecord{string(c.ID), "function", FunctionRecord{c.Name, arguments}})
	}
	return records
}

// NewArtifactRecord returns the record of a.
func NewArtifactRecord(a agentsvc.Artifact) ArtifactRecord {
	return ArtifactRecord{a.ID, a.Name, a.Description, newPartRecords(a.Parts), a.Metadata}
}

// newPartRecords returns the records of parts, in their order. It is never nil, so that an empty list is [] in JSON.
func newPartRecords(parts []agentsvc.Part) []PartRecord {
	records := make([]PartRecord, len(parts))
	for i, p := range parts {
		switch {
		case p.File != nil && p.File.URI != "":
			records[i] = PartRecord{Type: "file", Name: p.File.Name, MimeType: p.File.MediaType, URL: p.File.URI}
		case p.File != nil:
			records[i] = PartRecord{Type: "file", Name: p.File.Name, MimeType: p.File.MediaType, Data: p.File.Bytes}
		case p.Data != nil:
			records[i] = PartRecord{Type: "data", MimeType: cmp.Or(p.Data.MediaType, "application/json"), Data: p.Data.Value}
		default:
			records[i] = PartRecord{Type: "text", Text: &p.Text}
		}
	}
	return records
}
