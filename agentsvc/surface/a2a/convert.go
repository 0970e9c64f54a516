package a2a

import (
	"iter"
	"maps"
	"strings"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
)

// states maps the domain's task states to those of version 1.0. It must list every agentsvc.State: a missing one
// would be sent as the unspecified state.
var states = map[agentsvc.State]spec.TaskState{
	agentsvc.Submitted: spec.TaskStateSubmitted, agentsvc.Working: spec.TaskStateWorking, agentsvc.Completed: spec.TaskStateCompleted,
	agentsvc.Failed: spec.TaskStateFailed, agentsvc.Cancelled: spec.TaskStateCanceled, agentsvc.InputRequired: spec.TaskStateInputRequired,
	agentsvc.Rejected: spec.TaskStateRejected, agentsvc.AuthRequired: spec.TaskStateAuthRequired,
}

// NewTask returns t as the library's type, with the last *length messages of its history (all if length is nil) and
// with its artifacts if artifacts is set. The result shares metadata and data values with t.
func NewTask(t agentsvc.Task, length *int, artifacts bool) *spec.Task {
	out := &spec.Task{ID: spec.TaskID(t.ID), ContextID: string(t.Context), Status: newStatus(t, t.Status)}
	history := t.History
	if length != nil {
		history = history[max(0, len(history)-*length):]
	}
	for _, m := range history {
		out.History = append(out.History, newMessage(t, m))
	}
	if artifacts {
		for _, a := range t.Artifacts {
			out.Artifacts = append(out.Artifacts, newArtifact(a))
		}
	}
	return out
}

// newStatus returns a status of t. Only a message of the agent becomes the status message: a user message that
// caused the status is in the history. Times are truncated to milliseconds, the precision of the protocol.
func newStatus(t agentsvc.Task, s agentsvc.Status) spec.TaskStatus {
	at := s.At.UTC().Truncate(time.Millisecond)
	out := spec.TaskStatus{State: states[s.State], Timestamp: &at}
	if s.Message != nil && s.Message.Role == agentsvc.RoleAgent {
		out.Message = newMessage(t, *s.Message)
	}
	return out
}

// newMessage returns a message of t. Its tool calls go into the metadata under tool_calls, because the protocol has
// no type for them; the metadata is cloned first, since m may be shared with other streams.
func newMessage(t agentsvc.Task, m agentsvc.Message) *spec.Message {
	out := &spec.Message{
		ID: string(m.ID), ContextID: string(t.Context), TaskID: spec.TaskID(t.ID), Role: spec.MessageRoleUser, Parts: nonEmptyParts(newParts(m.Parts)), Metadata: m.Metadata,
	}
	if m.Role == agentsvc.RoleAgent {
		out.Role = spec.MessageRoleAgent
	}
	if calls := newToolCalls(m.ToolCalls); calls != nil {
		out.Metadata = maps.Clone(m.Metadata)
		out.SetMeta("tool_calls", calls)
	}
	return out
}

// NewReply returns a message that the agent sent instead of a task: it has a context ID but no task ID.
func NewReply(m agentsvc.Message, context agentsvc.ContextID) *spec.Message {
	return newMessage(agentsvc.Task{Context: context}, m)
}

// newToolCalls returns tool calls in the shape that every surface has for them. It uses maps and not structs:
// metadata is also encoded as a google.protobuf.Struct (gRPC), which takes only JSON types.
func newToolCalls(calls []agentsvc.ToolCall) (out []any) {
	for _, c := range encode.NewToolCallRecords(calls) {
		out = append(out, map[string]any{"id": c.ID, "type": c.Type, "function": map[string]any{"name": c.Function.Name, "arguments": c.Function.Arguments}})
	}
	return out
}

// nonEmptyParts returns parts, or one empty text part if there is none, because the protocol requires at least one.
func nonEmptyParts(parts spec.ContentParts) spec.ContentParts {
	if len(parts) == 0 {
		return spec.ContentParts{spec.NewTextPart("")}
	}
	return parts
}

func newArtifact(a agentsvc.Artifact) *spec.Artifact {
	return &spec.Artifact{ID: spec.ArtifactID(a.ID), Name: a.Name, Description: a.Description, Parts: nonEmptyParts(newParts(a.Parts)), Metadata: a.Metadata}
}

// newParts converts the parts of a message or artifact. A file is sent by its URL if it has one, else with its
// bytes.
func newParts(source []agentsvc.Part) spec.ContentParts {
	parts := make(spec.ContentParts, len(source))
	for i, p := range source {
		switch {
		case p.File != nil && p.File.URI != "":
			parts[i] = &spec.Part{Content: spec.URL(p.File.URI), Filename: p.File.Name, MediaType: p.File.MediaType}
		case p.File != nil:
			parts[i] = &spec.Part{Content: spec.Raw(p.File.Bytes), Filename: p.File.Name, MediaType: p.File.MediaType}
		case p.Data != nil:
			parts[i] = &spec.Part{Content: spec.Data{Value: p.Data.Value}, MediaType: p.Data.MediaType}
		default:
			parts[i] = &spec.Part{Content: spec.Text(p.Text), MediaType: p.TextType}
		}
	}
	return parts
}

// AllParts returns the parts of every message and artifact in ev. The parts are those of ev itself, so that a
// caller may change them in place.
func AllParts(ev spec.Event) iter.Seq[*spec.Part] {
	return func(yield func(*spec.Part) bool) {
		for _, parts := range collectParts(ev) {
			for _, p := range parts {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// collectParts returns the part lists of ev: those of its status message, history and artifacts.
func collectParts(ev spec.Event) (all []spec.ContentParts) {
	addMessage := func(m *spec.Message) {
		if m != nil {
			all = append(all, m.Parts)
		}
	}
	switch ev := ev.(type) {
	case *spec.Message:
		addMessage(ev)
	case *spec.Task:
		addMessage(ev.Status.Message)
		for _, m := range ev.History {
			addMessage(m)
		}
		for _, a := range ev.Artifacts {
			all = append(all, a.Parts)
		}
	case *spec.TaskStatusUpdateEvent:
		addMessage(ev.Status.Message)
	case *spec.TaskArtifactUpdateEvent:
		all = append(all, ev.Artifact.Parts)
	}
	return all
}

// ToDomainMessage returns a client's message as the domain's type. An [agentsvc.CodeInvalid] names the field that
// is wrong; the message is then returned as far as it was converted. Only users may send messages; role is required, and
// with idRequired messageId as well.
//
// A2A requires it, so the endpoints of A2A do. The root endpoints and the service a2a.v1 over gRPC are surfaces of Stoa's
// own specification, whose messages have role and parts; there and on the other surfaces a message without an id gets
// one.
func ToDomainMessage(m *spec.Message, idRequired bool) (agentsvc.Message, error) {
	if m == nil {
		return agentsvc.Message{}, agentsvc.NewInvalidError("message", "is missing")
	}
	converted := agentsvc.Message{
		ID: agentsvc.MessageID(m.ID), Context: agentsvc.ContextID(m.ContextID), Task: agentsvc.TaskID(m.TaskID), Metadata: m.Metadata,
	}
	switch m.Role {
	case spec.MessageRoleUser:
	case spec.MessageRoleUnspecified:
		return converted, agentsvc.NewInvalidError("message.role", "is missing: ROLE_USER, or user in version 0.3")
	case spec.MessageRoleAgent:
		return converted, agentsvc.NewInvalidError("message.role", "only users send messages")
	default:
		return converted, agentsvc.NewInvalidError("message.role", "unknown role %.40q: ROLE_USER, or user in version 0.3", string(m.Role))
	}
	if m.ID == "" && idRequired {
		return converted, agentsvc.NewInvalidError("message.messageId", "is missing")
	}
	names := decode.MessageFields{Message: "messageId", Context: "contextId", Task: "taskId"}
	return converted, names.CompleteMessage(&converted, len(m.Parts), func(i int, at string) (agentsvc.Part, error) { return toDomainPart(m.Parts[i], at) })
}

// toDomainPart returns p as the domain's type; at is the path of the part for errors. Bytes must not be empty and a
// URL must be absolute. The server never fetches the URL here.
func toDomainPart(p *spec.Part, at string) (agentsvc.Part, error) {
	if p == nil {
		return agentsvc.Part{}, agentsvc.NewInvalidError(at, "is empty")
	}
	file := agentsvc.File{Name: p.Filename, MediaType: p.MediaType}
	switch c := p.Content.(type) {
	case spec.Text:
		return agentsvc.Part{Text: string(c), TextType: p.MediaType}, nil
	case spec.Data:
		return agentsvc.Part{Data: &agentsvc.Data{MediaType: p.MediaType, Value: c.Value}}, nil
	case spec.Raw:
		if file.Bytes = c; len(c) == 0 {
			return agentsvc.Part{}, agentsvc.NewInvalidError(at+".raw", "holds no bytes")
		}
		return agentsvc.Part{File: &file}, nil
	case spec.URL:
		file.URI = string(c)
		return agentsvc.Part{File: &file}, decode.CheckURI(at+".url", file.URI)
	}
	return agentsvc.Part{}, agentsvc.NewInvalidError(at, "must have exactly one of text, raw, url and data")
}

// ParseState returns the state of a name in the spelling of any version (TASK_STATE_INPUT_REQUIRED,
// input-required). An empty or unspecified name is "", which means no filter.
func ParseState(name string) (agentsvc.State, error) {
	plain := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "TASK_STATE_")), "-", "_")
	if plain == "canceled" {
		plain = string(agentsvc.Cancelled)
	}
	s := agentsvc.State(plain)
	switch {
	case plain == "" || plain == "unspecified":
		return "", nil
	case !s.IsValid():
		return "", agentsvc.NewInvalidError("status", "unknown state %.40q: one such as TASK_STATE_WORKING, or working in version 0.3", name)
	}
	return s, nil
}
