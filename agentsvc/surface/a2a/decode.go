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

// toProtocol returns m as the protocol's library has it, or what is wrong with a part and where.
func (m *message) toProtocol(codec *versionCodec) (*spec.Message, error) {
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
		part, err := p.toProtocol(codec, "message.parts["+strconv.Itoa(i)+"]")
		if err != nil {
			return out, err
		}
		out.Parts = append(out.Parts, part)
	}
	return out, nil
}

// isGiven reports whether a member is there.
func isGiven(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// firstGiven returns the first of some members that is there, nil where none is.
func firstGiven(members ...json.RawMessage) json.RawMessage {
	for _, raw := range members {
		if isGiven(raw) {
			return raw
		}
	}
	return nil
}

// toProtocol returns p, which stands at the given place, as the protocol's library has it.
func (p *part) toProtocol(codec *versionCodec, at string) (*spec.Part, error) {
	n := 0
	for _, there := range []bool{p.Text != nil, p.Raw != nil, p.URL != nil, p.File != nil, isGiven(p.Data)} {
		if there {
			n++
		}
	}
	if n != 1 {
		return nil, agentsvc.NewInvalidError(at, "must have exactly one of %s", codec.partKinds)
	}
	out := &spec.Part{Filename: p.Filename, MediaType: cmp.Or(p.MediaType, p.MediaTypeSnake)}
	kind := "file"
	var err error
	switch {
	case p.Text != nil:
		kind, out.Content = "text", spec.Text(*p.Text)
	case p.Raw != nil:
		out.Content, err = decodeBase64(at+".raw", *p.Raw)
	case p.URL != nil:
		out.Content = spec.URL(*p.URL)
	case p.File != nil:
		err = p.File.fillPart(codec, at+".file", out)
	default:
		kind = "data"
		out.Content, err = codec.decodeData(p.Data, at+".data")
	}
	if err == nil && p.Kind != "" && p.Kind != kind {
		err = agentsvc.NewInvalidError(at+".kind", "is %.40q, but the part holds %s", p.Kind, kind)
	}
	return out, err
}

// fillPart fills out with f.
func (f *file) fillPart(codec *versionCodec, at string, out *spec.Part) (err error) {
	out.Filename, out.MediaType = f.Name, cmp.Or(f.MediaType, f.MediaTypeSnake)
	bytes, uri := cmp.Or(f.Bytes, f.BytesLong, f.BytesSnake), cmp.Or(f.URI, f.URILong, f.URISnake)
	if (bytes == "") == (uri == "") {
		return agentsvc.NewInvalidError(at, "a file has either %s", codec.fileKinds)
	}
	if uri != "" {
		out.Content = spec.URL(uri)
		return nil
	}
	raw, err := decodeBase64(at, bytes)
	if inner, wrong := base64.StdEncoding.Strict().DecodeString(string(raw)); codec.doubleBase64 && wrong == nil && len(inner) > 0 {
		raw = inner
	}
	out.Content = raw
	return err
}

func decodeBase64(at, text string) (spec.Raw, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, agentsvc.NewInvalidError(at, "must be the file's bytes in base64")
	}
	return raw, nil
}

// returnsImmediately reports whether the caller does not want to wait.
func (c *configuration) returnsImmediately() bool {
	for _, now := range []*bool{c.ReturnImmediately, c.ReturnImmediatelySnake} {
		if now != nil {
			return *now
		}
	}
	return c.Blocking != nil && !*c.Blocking
}

// historyLength is how much of a history is asked for, nil where that is not said.
func historyLength(field string, of ...*int) (*int, error) {
	for _, n := range of {
		if n != nil {
			return n, surface.CheckHistoryLength(field, *n)
		}
	}
	return nil, nil
}

// toQuery returns which tasks are asked for and how much of their history.
func (p *params) toQuery() (q task.Query, history int, err error) {
	n, err := historyLength("historyLength", p.HistoryLength, p.HistoryLengthSnake)
	if err != nil {
		return q, 0, err
	}
	if n != nil {
		history = *n
	}
	q = task.Query{Context: agentsvc.ContextID(cmp.Or(p.ContextID, p.ContextIDSnake)), Token: cmp.Or(p.PageToken, p.PageTokenSnake), Size: task.DefaultPageSize}
	if err := surface.CheckID("contextId", string(q.Context)); err != nil {
		return q, 0, err
	}
	if q.State, err = ParseState(p.Status); err != nil {
		return q, 0, err
	}
	for _, size := range []*int{p.PageSize, p.PageSizeSnake} {
		if size != nil {
			q.Size = *size
			if err := surface.CheckPageSize(q.Size, task.MaxPageSize); err != nil {
				return q, 0, err
			}
		}
	}
	for _, since := range []struct {
		field string
		raw   json.RawMessage
	}{
		{"statusTimestampAfter", firstGiven(p.StatusAfter, p.StatusAfterSnake)}, {"lastUpdatedAfter", firstGiven(p.UpdatedAfter, p.UpdatedAfterSnake)},
		{"lastUpdatedTime", firstGiven(p.UpdatedTime, p.UpdatedTimeSnake)},
	} {
		if since.raw == nil {
			continue
		}
		if q.After, err = parseTime(since.raw); err != nil {
			return q, 0, agentsvc.NewInvalidError(since.field, "must be a time such as 2026-01-31T12:00:00Z")
		}
	}
	q.Parts = store.TaskParts{History: history > 0, Artifacts: p.IncludeArtifacts || p.IncludeArtifactsSnake}
	return q, history, nil
}

// maxMillis is the last one of the year 9999, beyond which no text goes.
const maxMillis = 253_402_300_799_999

// parseTime reads a time: a text, or the milliseconds since 1970 that version 0.3 has, in a query as text.
func parseTime(raw json.RawMessage) (at time.Time, err error) {
	millis, err := strconv.ParseInt(strings.Trim(string(raw), `"`), 10, 64)
	switch {
	case err != nil:
		return at, json.Unmarshal(raw, &at)
	case millis < 0 || millis > maxMillis:
		return at, strconv.ErrRange
	}
	return time.UnixMilli(millis), nil
}

// resolveTaskID returns the id of the task that params name.
func (p *params) resolveTaskID() (agentsvc.TaskID, error) {
	id, err := p.decodeID("must be the id of a task, as text")
	if id = cmp.Or(p.path.task, id); err == nil && id == "" {
		err = agentsvc.NewInvalidError("id", "is missing: the id of a task")
	}
	return agentsvc.TaskID(id), cmp.Or(err, surface.CheckID("id", id))
}

// decodeID returns the member of that name, "" where there is none.
func (p *params) decodeID(wanted string) (id string, err error) {
	if isGiven(p.ID) && json.Unmarshal(p.ID, &id) != nil {
		err = agentsvc.NewInvalidError("id", "%s", wanted)
	}
	return id, err
}
