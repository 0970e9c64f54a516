package ext

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// word returns m as the words have it, or what is wrong with it and where.
func (m *message) word() (agentsvc.Message, error) {
	if m.Role != "" && m.Role != string(agentsvc.RoleUser) {
		return agentsvc.Message{}, agentsvc.Invalid("message.role", `must be "user": only users send messages`)
	}
	ids := []struct{ field, id string }{
		{"message.message_id", cmp.Or(m.MessageID, m.MessageIDCamel)},
		{"message.context_id", cmp.Or(m.ContextID, m.ContextIDCamel)},
		{"message.task_id", cmp.Or(m.TaskID, m.TaskIDCamel)},
	}
	for _, x := range ids {
		if err := surface.CheckID(x.field, x.id); err != nil {
			return agentsvc.Message{}, err
		}
	}
	if len(m.Parts) == 0 {
		return agentsvc.Message{}, agentsvc.Invalid("message.parts", "a message needs at least one part")
	}
	word := agentsvc.Message{
		ID: agentsvc.MessageID(ids[0].id), Context: agentsvc.ContextID(ids[1].id), Task: agentsvc.TaskID(ids[2].id),
		Role: agentsvc.RoleUser, Parts: make([]agentsvc.Part, len(m.Parts)), Metadata: m.Metadata,
	}
	for i := range m.Parts {
		var err error
		if word.Parts[i], err = m.Parts[i].word(fmt.Sprintf("message.parts[%d]", i)); err != nil {
			return agentsvc.Message{}, err
		}
	}
	return word, nil
}

// word returns p, which stands at the given place, as the words have it.
func (p *part) word(at string) (agentsvc.Part, error) {
	switch kind := cmp.Or(p.Type, p.Kind); kind {
	case "text":
		if p.Text == nil {
			return agentsvc.Part{}, agentsvc.Invalid(at+".text", "is missing")
		}
		return agentsvc.TextPart(*p.Text), nil
	case "file":
		file, err := p.file(at)
		return agentsvc.Part{File: file}, err
	case "data":
		var value map[string]any
		if json.Unmarshal(p.Data, &value) != nil || value == nil {
			return agentsvc.Part{}, agentsvc.Invalid(at+".data", "must be a JSON object")
		}
		return agentsvc.Part{Data: &agentsvc.Data{MediaType: cmp.Or(p.MimeType, p.MimeTypeCamel), Value: value}}, nil
	case "":
		return agentsvc.Part{}, agentsvc.Invalid(at+".type", "is missing: text, file or data")
	default:
		return agentsvc.Part{}, agentsvc.Invalid(at+".type", "unknown type %.40q: text, file or data", kind)
	}
}

func (p *part) file(at string) (*agentsvc.File, error) {
	f := &agentsvc.File{Name: p.Name, MediaType: cmp.Or(p.MimeType, p.MimeTypeCamel), URI: p.URL}
	hasData := len(p.Data) > 0 && !bytes.Equal(p.Data, []byte("null"))
	switch {
	case hasData == (p.URL != ""):
		return nil, agentsvc.Invalid(at, "a file has either url or data")
	case !hasData:
		if u, err := url.Parse(p.URL); err != nil || u.Scheme == "" || u.Host == "" {
			return nil, agentsvc.Invalid(at+".url", "must be an absolute URL")
		}
		return f, nil
	}
	var text string
	err := json.Unmarshal(p.Data, &text)
	if err == nil {
		f.Bytes, err = base64.StdEncoding.DecodeString(text)
	}
	if err != nil || len(f.Bytes) == 0 {
		return nil, agentsvc.Invalid(at+".data", "must be the file's bytes in base64")
	}
	return f, nil
}

// teller tells the events of one stream. Texts of working updates follow on each other: a message that was told in
// chunks adds only what the chunks left out.
type teller struct {
	told map[agentsvc.MessageID]int // bytes of a message's text that chunks have told
}

// event returns the update that tells of ev, nil for what this surface does not tell.
func (t *teller) event(ev agentsvc.Event) any {
	switch {
	case ev.Status != nil:
		return statusUpdate{"task.status_update", string(ev.Task), surface.NewStatusRecord(*ev.Status)}
	case ev.Chunk != nil:
		if t.told == nil {
			t.told = map[agentsvc.MessageID]int{}
		}
		t.told[ev.Chunk.Message] = ev.Chunk.Offset + len(ev.Chunk.Text)
		return working(ev, agentsvc.Message{
			ID: ev.Chunk.Message, Role: agentsvc.RoleAgent, Parts: []agentsvc.Part{agentsvc.TextPart(ev.Chunk.Text)},
		})
	case ev.Message != nil && ev.Message.Role == agentsvc.RoleAgent:
		return t.message(ev)
	case ev.Artifact != nil:
		a := ev.Artifact
		return artifactUpdate{"task.artifact_update", string(ev.Task), surface.NewArtifactRecord(a.Artifact), a.Append, a.Last}
	}
	return nil
}

// message returns the update that tells of an agent's message. What a sub-agent says is told as far as its text has
// been told already: else it is for the agent above it, and only the tools it calls are told.
func (t *teller) message(ev agentsvc.Event) any {
	m := *ev.Message
	if ev.Frame == "" {
		return working(ev, t.rest(m))
	}
	m.Metadata = nil
	if _, begun := t.told[m.ID]; begun {
		m = t.rest(m)
	} else {
		m.Parts = nil
	}
	if len(m.Parts) == 0 && len(m.ToolCalls) == 0 {
		return nil
	}
	return working(ev, m)
}

// rest returns m without the text that was told of it.
func (t *teller) rest(m agentsvc.Message) agentsvc.Message {
	told := t.told[m.ID]
	delete(t.told, m.ID)
	if told == 0 {
		return m
	}
	parts := []agentsvc.Part{}
	for _, p := range m.Parts {
		if n := min(told, len(p.Text)); n > 0 {
			told -= n
			if p.Text = p.Text[n:]; p.Text == "" {
				continue
			}
		}
		parts = append(parts, p)
	}
	m.Parts = parts
	return m
}

func working(ev agentsvc.Event, m agentsvc.Message) statusUpdate {
	at := ev.At
	if at.IsZero() { // a chunk has no time of its own
		at = time.Now()
	}
	return statusUpdate{"task.status_update", string(ev.Task), surface.NewStatusRecord(agentsvc.Status{State: agentsvc.Working, Message: &m, At: at})}
}
