package v1

import (
	"cmp"
	"encoding/json"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
)

// roles maps the JSON text of a sender's role to the domain's. Clients send the name of the Protocol Buffers
// enumeration, its number or the short name. Only users send messages, so a missing role means the user.
var roles = map[string]agentsvc.Role{
	"": agentsvc.RoleUser, `""`: agentsvc.RoleUser, "null": agentsvc.RoleUser,
	`"ROLE_UNSPECIFIED"`: agentsvc.RoleUser, "0": agentsvc.RoleUser,
	`"ROLE_USER"`: agentsvc.RoleUser, `"user"`: agentsvc.RoleUser, "1": agentsvc.RoleUser,
	`"ROLE_AGENT"`: agentsvc.RoleAgent, `"agent"`: agentsvc.RoleAgent, "2": agentsvc.RoleAgent,
}

// Prefixes of the enumeration names in Protocol Buffers.
const (
	rolePrefix  = "ROLE_"
	statePrefix = "TASK_STATE_"
)

// toDomain returns m as a domain message, or an error with [agentsvc.CodeInvalid] that names the field that is wrong; m is
// then returned as far as it was converted.
func (m *inMessage) toDomain() (agentsvc.Message, error) {
	converted := agentsvc.Message{
		ID:      agentsvc.MessageID(cmp.Or(m.MessageID, m.MessageIDSnake)),
		Context: agentsvc.ContextID(cmp.Or(m.ContextID, m.ContextIDSnake)),
		Task:    agentsvc.TaskID(cmp.Or(m.TaskID, m.TaskIDSnake)), Metadata: m.Metadata,
	}
	switch roles[string(m.Role)] {
	case agentsvc.RoleUser:
	case agentsvc.RoleAgent:
		return converted, agentsvc.NewInvalidError("message.role", "must be ROLE_USER: only users send messages")
	default:
		return converted, agentsvc.NewInvalidError("message.role", "unknown role %.40s: ROLE_USER or user", m.Role)
	}
	names := decode.MessageFields{Message: "messageId", Context: "contextId", Task: "taskId"}
	return converted, names.CompleteMessage(&converted, len(m.Parts), func(i int, at string) (agentsvc.Part, error) { return m.Parts[i].toDomain(at) })
}

// toDomain returns p as a domain part; at is its path in the request, such as message.parts[0], for errors. A part
// has exactly one of text, file and data. A file is given by an absolute URL or by bytes in base64; the server does
// not fetch the URL.
func (p *inPart) toDomain(at string) (agentsvc.Part, error) {
	hasData := len(p.Data) > 0 && string(p.Data) != "null"
	given := 0
	for _, there := range []bool{p.Text != nil, p.File != nil, hasData} {
		if there {
			given++
		}
	}
	switch {
	case given != 1:
		return agentsvc.Part{}, agentsvc.NewInvalidError(at, "must have exactly one of text, file and data")
	case p.Text != nil:
		return agentsvc.TextPart(*p.Text), nil
	case p.File != nil:
		f := &agentsvc.File{Name: p.File.Name, MediaType: cmp.Or(p.File.MediaType, p.File.MediaTypeCamel)}
		names := decode.FileFields{URI: "file_with_uri", Bytes: "file_with_bytes"}
		return agentsvc.Part{File: f}, names.CompleteFile(f, at+".file", cmp.Or(p.File.URI, p.File.URICamel), cmp.Or(p.File.Bytes, p.File.BytesCamel))
	}
	var value map[string]any
	if json.Unmarshal(p.Data, &value) != nil || value == nil {
		return agentsvc.Part{}, agentsvc.NewInvalidError(at+".data", "must be a JSON object")
	}
	return agentsvc.Part{Data: &agentsvc.Data{Value: value}}, nil
}

// stateName returns the name of a state in the Protocol Buffers enumeration.
func stateName(s agentsvc.State) string { return statePrefix + strings.ToUpper(string(s)) }

// newTask returns t with the last *length messages of its history (all if length is nil), and with its artifacts if
// artifacts is set.
func newTask(t agentsvc.Task, length *int, artifacts bool) taskBody {
	out := taskBody{ID: string(t.ID), ContextID: string(t.Context), Status: newStatus(t.Status)}
	history := t.History
	if length != nil {
		history = history[max(0, len(history)-*length):]
	}
	for _, m := range history {
		out.History = append(out.History, newMessage(m))
	}
	if artifacts {
		for _, a := range t.Artifacts {
			out.Artifacts = append(out.Artifacts, newArtifact(a))
		}
	}
	return out
}

// newStatus returns s. Only a message of the agent becomes the update: a user message that caused the status is in
// the history.
func newStatus(s agentsvc.Status) status {
	out := status{State: stateName(s.State), Timestamp: encode.FormatTime(s.At)}
	if s.Message != nil && s.Message.Role == agentsvc.RoleAgent {
		m := newMessage(*s.Message)
		out.Update = &m
	}
	return out
}

// newMessage returns m without the IDs of its task and context; the caller sets them where the shape needs them.
func newMessage(m agentsvc.Message) message {
	return message{
		MessageID: string(m.ID), Role: rolePrefix + strings.ToUpper(string(m.Role)), Parts: newParts(m.Parts),
		ToolCalls: encode.NewToolCallRecords(m.ToolCalls), Metadata: m.Metadata,
	}
}

// newReply returns a message that the agent sent instead of a task: it has a context ID but no task ID.
func newReply(m agentsvc.Message, context agentsvc.ContextID) *message {
	out := newMessage(m)
	out.ContextID = string(context)
	return &out
}

func newArtifact(a agentsvc.Artifact) artifact {
	return artifact{a.ID, a.Name, a.Description, newParts(a.Parts), a.Metadata}
}

// newParts returns the parts of a message or artifact, never nil, so that the JSON is a list.
func newParts(source []agentsvc.Part) []part {
	parts := make([]part, len(source))
	for i, p := range source {
		switch {
		case p.File != nil:
			parts[i].File = &file{p.File.URI, p.File.Bytes, p.File.MediaType, p.File.Name}
		case p.Data != nil:
			parts[i].Data = p.Data.Value
		default:
			parts[i].Text = &p.Text
		}
	}
	return parts
}
