package ext

import (
	"cmp"
	"encoding/json"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/stream"
)

// toDomain returns m as a domain message, or an error with [agentsvc.CodeInvalid] that names the field that is wrong; m is
// then returned as far as it was converted.
func (m *message) toDomain() (agentsvc.Message, error) {
	converted := agentsvc.Message{
		ID:      agentsvc.MessageID(cmp.Or(m.MessageID, m.MessageIDCamel)),
		Context: agentsvc.ContextID(cmp.Or(m.ContextID, m.ContextIDCamel)),
		Task:    agentsvc.TaskID(cmp.Or(m.TaskID, m.TaskIDCamel)), Metadata: m.Metadata,
	}
	if m.Role != "" && m.Role != string(agentsvc.RoleUser) {
		return converted, agentsvc.NewInvalidError("message.role", `must be "user": only users send messages`)
	}
	names := decode.MessageFields{Message: "message_id", Context: "context_id", Task: "task_id"}
	return converted, names.CompleteMessage(&converted, len(m.Parts), func(i int, at string) (agentsvc.Part, error) { return m.Parts[i].toDomain(at) })
}

// toDomain returns p as a domain part; at is its path in the request, such as message.parts[0], for errors. A
// member of another part type is refused: ignoring it would lose content that the client meant to send.
func (p *part) toDomain(at string) (agentsvc.Part, error) {
	kind := cmp.Or(p.Type, p.Kind)
	converted, err := p.toContent(kind, at)
	if other := p.misplacedMember(kind); err == nil && other != "" {
		err = agentsvc.NewInvalidError(at+"."+other, "does not belong to a part of type %s: it would be lost; make it a part of its own", kind)
	}
	return converted, err
}

// misplacedMember returns the name of a member that belongs to another part type than kind, "" if there is none.
// data belongs to two types: base64 in a file, an object in a data part.
func (p *part) misplacedMember(kind string) string {
	switch {
	case kind != "text" && p.Text != nil:
		return "text"
	case kind != "file" && p.URL != "":
		return "url"
	case kind == "text" && len(p.Data) > 0 && string(p.Data) != "null":
		return "data"
	}
	return ""
}

// toContent decodes the members that belong to the part type kind.
func (p *part) toContent(kind, at string) (agentsvc.Part, error) {
	switch kind {
	case "text":
		if p.Text == nil {
			return agentsvc.Part{}, agentsvc.NewInvalidError(at+".text", "is missing")
		}
		return agentsvc.TextPart(*p.Text), nil
	case "file":
		file, err := p.toFile(at)
		return agentsvc.Part{File: file}, err
	case "data":
		var value map[string]any
		if json.Unmarshal(p.Data, &value) != nil || value == nil {
			return agentsvc.Part{}, agentsvc.NewInvalidError(at+".data", "must be a JSON object")
		}
		return agentsvc.Part{Data: &agentsvc.Data{MediaType: cmp.Or(p.MimeType, p.MimeTypeCamel), Value: value}}, nil
	case "":
		return agentsvc.Part{}, agentsvc.NewInvalidError(at+".type", "is missing: text, file or data")
	default:
		return agentsvc.Part{}, agentsvc.NewInvalidError(at+".type", "unknown type %.40q: text, file or data", kind)
	}
}

// toFile returns the file of a part of type file: an absolute URL, or bytes in base64 in data.
func (p *part) toFile(at string) (*agentsvc.File, error) {
	f := &agentsvc.File{Name: p.Name, MediaType: cmp.Or(p.MimeType, p.MimeTypeCamel)}
	encoded := ""
	if len(p.Data) > 0 && json.Unmarshal(p.Data, &encoded) != nil {
		return nil, agentsvc.NewInvalidError(at+".data", "must be the file's bytes in base64")
	}
	return f, decode.FileFields{URI: "url", Bytes: "data"}.CompleteFile(f, at, p.URL, encoded)
}

// The types of the events of streams.
const (
	eventStatus     = "task.status_update"
	eventArtifact   = "task.artifact_update"
	eventToolResult = "task.tool_result"
)

// EventTypes are all of them, for the test that compares them with the OpenAPI document.
var EventTypes = []string{eventStatus, eventArtifact, eventToolResult}

// eventEncoder encodes the events of one stream. The embedded tracker remembers how much text was sent.
type eventEncoder struct {
	stream.DeltaTracker
	context     agentsvc.ContextID // of the task
	toolResults bool               // send what tools answered
}

// newStreamEncoder returns the encoder of the events of task t; fault encodes the error that ends the stream. With
// toolResults the stream has the results of tools as well, see [sendsToolResults].
func newStreamEncoder(t agentsvc.Task, toolResults bool, fault func(error) any) stream.Encoder {
	e := &eventEncoder{context: t.Context, toolResults: toolResults}
	return stream.Encoder{EncodeEvent: e.encodeEvent, EncodeError: fault}
}

// encodeEvent returns the update for ev, or nil for an event that this surface does not send, such as usage.
// Messages and deltas are status updates in the state working.
func (e *eventEncoder) encodeEvent(ev agentsvc.Event) any {
	switch {
	case ev.Status != nil:
		return e.newStatusUpdate(ev, *ev.Status)
	case ev.Artifact != nil:
		a := ev.Artifact
		return artifactUpdate{eventArtifact, string(ev.Task), string(e.context), encode.NewArtifactRecord(a.Artifact), a.Append, a.Last}
	case ev.Result != nil && e.toolResults:
		res := ev.Result
		return toolResult{eventToolResult, string(ev.Task), string(e.context), string(res.Call), res.Name, res.Text, res.Failed, ev.Frame}
	}
	m, ok := e.NextMessage(ev)
	if !ok {
		return nil
	}
	at := ev.At
	if at.IsZero() { // deltas have no time
		at = time.Now()
	}
	return e.newStatusUpdate(ev, agentsvc.Status{State: agentsvc.Working, Message: &m, At: at})
}

func (e *eventEncoder) newStatusUpdate(ev agentsvc.Event, s agentsvc.Status) statusUpdate {
	return statusUpdate{eventStatus, string(ev.Task), string(e.context), encode.NewStatusRecord(s)}
}
