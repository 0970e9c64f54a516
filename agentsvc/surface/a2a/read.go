package a2a

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
)

// roles are the spellings of a sender's role, numbers of the enumeration included.
var roles = map[string]spec.MessageRole{
	"": spec.MessageRoleUnspecified, `""`: spec.MessageRoleUnspecified, "null": spec.MessageRoleUnspecified,
	"0": spec.MessageRoleUnspecified, `"ROLE_UNSPECIFIED"`: spec.MessageRoleUnspecified,
	"1": spec.MessageRoleUser, `"ROLE_USER"`: spec.MessageRoleUser, `"user"`: spec.MessageRoleUser,
	"2": spec.MessageRoleAgent, `"ROLE_AGENT"`: spec.MessageRoleAgent, `"agent"`: spec.MessageRoleAgent,
}

// read returns m as the protocol's library has it, or what is wrong with a part and where.
func (m *message) read(as *vocabulary) (*spec.Message, error) {
	if m == nil {
		return nil, nil
	}
	role, known := roles[string(m.Role)]
	if !known {
		role = spec.MessageRole(strings.Trim(string(m.Role), `"`))
	}
	out := &spec.Message{
		ID: cmp.Or(m.MessageID, m.MessageIDSnake), ContextID: cmp.Or(m.ContextID, m.ContextIDSnake),
		TaskID: spec.TaskID(cmp.Or(m.TaskID, m.TaskIDSnake)), Role: role, Metadata: m.Metadata,
	}
	parts := m.Parts
	if parts == nil {
		parts = m.Content
	}
	if len(parts) > surface.MaxParts {
		out.Parts = make(spec.ContentParts, len(parts)) // refused as too many
		return out, nil
	}
	for i, p := range parts {
		part, err := p.read(as, "message.parts["+strconv.Itoa(i)+"]")
		if err != nil {
			return out, err
		}
		out.Parts = append(out.Parts, part)
	}
	return out, nil
}

// given reports whether a member is there.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// first returns the first of some members that is there, nil where none is.
func first(members ...json.RawMessage) json.RawMessage {
	for _, raw := range members {
		if given(raw) {
			return raw
		}
	}
	return nil
}

// read returns p, which stands at the given place, as the protocol's library has it.
func (p *part) read(as *vocabulary, at string) (*spec.Part, error) {
	n := 0
	for _, there := range []bool{p.Text != nil, p.Raw != nil, p.URL != nil, p.File != nil, given(p.Data)} {
		if there {
			n++
		}
	}
	if n != 1 {
		return nil, agentsvc.Invalid(at, "must have exactly one of %s", as.contents)
	}
	out := &spec.Part{Filename: p.Filename, MediaType: cmp.Or(p.MediaType, p.MediaTypeSnake)}
	kind := "file"
	var err error
	switch {
	case p.Text != nil:
		kind, out.Content = "text", spec.Text(*p.Text)
	case p.Raw != nil:
		out.Content, err = decoded(at+".raw", *p.Raw)
	case p.URL != nil:
		out.Content = spec.URL(*p.URL)
	case p.File != nil:
		err = p.File.read(as, at+".file", out)
	default:
		kind = "data"
		out.Content, err = as.data(p.Data, at+".data")
	}
	if err == nil && p.Kind != "" && p.Kind != kind {
		err = agentsvc.Invalid(at+".kind", "is %.40q, but the part holds %s", p.Kind, kind)
	}
	return out, err
}

// read fills out with f.
func (f *file) read(as *vocabulary, at string, out *spec.Part) (err error) {
	out.Filename, out.MediaType = f.Name, cmp.Or(f.MediaType, f.MediaTypeSnake)
	bytes, uri := cmp.Or(f.Bytes, f.BytesLong, f.BytesSnake), cmp.Or(f.URI, f.URILong, f.URISnake)
	if (bytes == "") == (uri == "") {
		return agentsvc.Invalid(at, "a file has either %s", as.file)
	}
	if uri != "" {
		out.Content = spec.URL(uri)
		return nil
	}
	raw, err := decoded(at, bytes)
	if inner, wrong := base64.StdEncoding.Strict().DecodeString(string(raw)); as.twice && wrong == nil && len(inner) > 0 {
		raw = inner
	}
	out.Content = raw
	return err
}

func decoded(at, text string) (spec.Raw, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, agentsvc.Invalid(at, "must be the file's bytes in base64")
	}
	return raw, nil
}

// immediately reports whether the caller does not want to wait.
func (c *configuration) immediately() bool {
	for _, now := range []*bool{c.ReturnImmediately, c.ReturnImmediatelySnake} {
		if now != nil {
			return *now
		}
	}
	return c.Blocking != nil && !*c.Blocking
}

// length is how much of a history is asked for, nil where that is not said.
func length(field string, of ...*int) (*int, error) {
	for _, n := range of {
		if n != nil {
			return n, surface.CheckLength(field, *n)
		}
	}
	return nil, nil
}

// query returns which tasks are asked for and how much of their history.
func (p *params) query() (q task.Query, history int, err error) {
	n, err := length("historyLength", p.HistoryLength, p.HistoryLengthSnake)
	if err != nil {
		return q, 0, err
	}
	if n != nil {
		history = *n
	}
	q = task.Query{Context: agentsvc.ContextID(cmp.Or(p.ContextID, p.ContextIDSnake)), Token: cmp.Or(p.PageToken, p.PageTokenSnake), Size: task.DefaultPage}
	if err := surface.CheckID("contextId", string(q.Context)); err != nil {
		return q, 0, err
	}
	if q.State, err = StateOf(p.Status); err != nil {
		return q, 0, err
	}
	for _, size := range []*int{p.PageSize, p.PageSizeSnake} {
		if size != nil {
			q.Size = *size
			if err := surface.CheckPageSize(q.Size, task.MaxPage); err != nil {
				return q, 0, err
			}
		}
	}
	for _, since := range []struct {
		field string
		raw   json.RawMessage
	}{
		{"statusTimestampAfter", first(p.StatusAfter, p.StatusAfterSnake)}, {"lastUpdatedAfter", first(p.UpdatedAfter, p.UpdatedAfterSnake)},
		{"lastUpdatedTime", first(p.UpdatedTime, p.UpdatedTimeSnake)},
	} {
		if since.raw == nil {
			continue
		}
		if q.After, err = moment(since.raw); err != nil {
			return q, 0, agentsvc.Invalid(since.field, "must be a time such as 2026-01-31T12:00:00Z")
		}
	}
	q.With = store.With{History: history > 0, Artifacts: p.IncludeArtifacts || p.IncludeArtifactsSnake}
	return q, history, nil
}

// lastMilli is the last one of the year 9999, beyond which no text goes.
const lastMilli = 253_402_300_799_999

// moment reads a time: a text, or the milliseconds since 1970 that version 0.3 has, in a query as text.
func moment(raw json.RawMessage) (at time.Time, err error) {
	millis, err := strconv.ParseInt(strings.Trim(string(raw), `"`), 10, 64)
	switch {
	case err != nil:
		return at, json.Unmarshal(raw, &at)
	case millis < 0 || millis > lastMilli:
		return at, strconv.ErrRange
	}
	return time.UnixMilli(millis), nil
}

// named returns the id of the task that params name.
func (p *params) named() (agentsvc.TaskID, error) {
	id, err := p.id("must be the id of a task, as text")
	if id = cmp.Or(p.path.task, id); err == nil && id == "" {
		err = agentsvc.Invalid("id", "is missing: the id of a task")
	}
	return agentsvc.TaskID(id), cmp.Or(err, surface.CheckID("id", id))
}

// id returns the member of that name, "" where there is none.
func (p *params) id(wanted string) (id string, err error) {
	if given(p.ID) && json.Unmarshal(p.ID, &id) != nil {
		err = agentsvc.Invalid("id", "%s", wanted)
	}
	return id, err
}
