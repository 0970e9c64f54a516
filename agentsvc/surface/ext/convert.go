package ext

import (
	"cmp"
	"encoding/json"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// toDomain returns m as the words have it, or what is wrong with it and where.
func (m *message) toDomain() (agentsvc.Message, error) {
	converted := agentsvc.Message{
		ID:      agentsvc.MessageID(cmp.Or(m.MessageID, m.MessageIDCamel)),
		Context: agentsvc.ContextID(cmp.Or(m.ContextID, m.ContextIDCamel)),
		Task:    agentsvc.TaskID(cmp.Or(m.TaskID, m.TaskIDCamel)), Metadata: m.Metadata,
	}
	if m.Role != "" && m.Role != string(agentsvc.RoleUser) {
		return converted, agentsvc.NewInvalidError("message.role", `must be "user": only users send messages`)
	}
	names := surface.MessageFields{Message: "message_id", Context: "context_id", Task: "task_id"}
	return converted, names.CompleteMessage(&converted, len(m.Parts), func(i int, at string) (agentsvc.Part, error) { return m.Parts[i].toDomain(at) })
}

// toDomain returns p, which stands at the given place, as the words have it.
func (p *part) toDomain(at string) (agentsvc.Part, error) {
	kind := cmp.Or(p.Type, p.Kind)
	converted, err := p.toContent(kind, at)
	if other := p.misplacedMember(kind); err == nil && other != "" {
		err = agentsvc.NewInvalidError(at+"."+other, "does not belong to a part of type %s: it would be lost; make it a part of its own", kind)
	}
	return converted, err
}

// misplacedMember returns a member that only parts of another type have, "" where there is none.
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

func (p *part) toFile(at string) (*agentsvc.File, error) {
	f := &agentsvc.File{Name: p.Name, MediaType: cmp.Or(p.MimeType, p.MimeTypeCamel)}
	encoded := ""
	if len(p.Data) > 0 && json.Unmarshal(p.Data, &encoded) != nil {
		return nil, agentsvc.NewInvalidError(at+".data", "must be the file's bytes in base64")
	}
	return f, surface.FileFields{URI: "url", Bytes: "data"}.CompleteFile(f, at, p.URL, encoded)
}

// eventEncoder tells the events of one stream.
type eventEncoder struct{ surface.DeltaTracker }

// encodeEvent returns the update that tells of ev, nil for what this surface does not tell.
func (t *eventEncoder) encodeEvent(ev agentsvc.Event) any {
	switch {
	case ev.Status != nil:
		return statusUpdate{"task.status_update", string(ev.Task), surface.NewStatusRecord(*ev.Status)}
	case ev.Artifact != nil:
		a := ev.Artifact
		return artifactUpdate{"task.artifact_update", string(ev.Task), surface.NewArtifactRecord(a.Artifact), a.Append, a.Last}
	}
	if m, ok := t.NextMessage(ev); ok {
		return newWorkingUpdate(ev, m)
	}
	return nil
}

func newWorkingUpdate(ev agentsvc.Event, m agentsvc.Message) statusUpdate {
	at := ev.At
	if at.IsZero() { // a chunk has no time of its own
		at = time.Now()
	}
	return statusUpdate{"task.status_update", string(ev.Task), surface.NewStatusRecord(agentsvc.Status{State: agentsvc.Working, Message: &m, At: at})}
}
