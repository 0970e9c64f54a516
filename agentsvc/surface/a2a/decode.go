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
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/task"
)

// roles maps the JSON text of a sender's role to the library's constant: the names of 1.0 and 0.3 and the numbers
// of the Protocol Buffers enumeration. The keys are raw JSON, so texts have their quotes.
var roles = map[string]spec.MessageRole{
	"": spec.MessageRoleUnspecified, `""`: spec.MessageRoleUnspecified, "null": spec.MessageRoleUnspecified,
	"0": spec.MessageRoleUnspecified, `"ROLE_UNSPECIFIED"`: spec.MessageRoleUnspecified,
	"1": spec.MessageRoleUser, `"ROLE_USER"`: spec.MessageRoleUser, `"user"`: spec.MessageRoleUser,
	"2": spec.MessageRoleAgent, `"ROLE_AGENT"`: spec.MessageRoleAgent, `"agent"`: spec.MessageRoleAgent,
}

// toProtocol returns m as the library's type, nil for a missing message. An [agentsvc.CodeInvalid] names the part
// that is wrong; the message is returned with it as far as it was decoded. IDs and the role are validated later, by
// [ToDomainMessage].
func (m *message) toProtocol(codec *versionCodec) (*spec.Message, error) {
	if m == nil {
		return nil, nil
	}
	role, known := roles[string(m.Role)]
	if !known {
		// An unknown role is passed on so that the later error can name it.
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
	if len(parts) > decode.MaxParts {
		// Not decoded: CompleteMessage refuses the number of parts before it reads any.
		out.Parts = make(spec.ContentParts, len(parts))
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

// isGiven reports whether a JSON member is present and not null.
func isGiven(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// firstGiven returns the first member that is present and not null, or nil.
func firstGiven(members ...json.RawMessage) json.RawMessage {
	for _, raw := range members {
		if isGiven(raw) {
			return raw
		}
	}
	return nil
}

// toProtocol returns p as the library's type. at is the path of the part in the request, such as message.parts[0],
// for errors. A part must have exactly one content, and kind (version 0.3) must agree with it where it is needed or
// present.
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
	switch {
	case err != nil || p.Kind == kind:
	case p.Kind != "":
		err = agentsvc.NewInvalidError(at+".kind", "is %.40q, but the part holds %s", p.Kind, kind)
	case codec.needsKind:
		err = agentsvc.NewInvalidError(at+".kind", "is missing: %s for this part in version 0.3", kind)
	}
	return out, err
}

// fillPart sets the content, name and media type of out from f, the file of version 0.3.
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
	// The clients of 0.3 over REST encode the bytes in base64 twice (their Protocol Buffers JSON encodes bytes that
	// are already base64 text). Bytes that decode strictly a second time are therefore taken as encoded twice; all
	// others as encoded once (docs/api/a2a.md).
	if inner, wrong := base64.StdEncoding.Strict().DecodeString(string(raw)); codec.doubleBase64 && wrong == nil && len(inner) > 0 {
		raw = inner
	}
	out.Content = raw
	return err
}

// decodeBase64 decodes a file's bytes; at is the path of the member for the error.
func decodeBase64(at, text string) (spec.Raw, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, agentsvc.NewInvalidError(at, "must be the file's bytes in base64")
	}
	return raw, nil
}

// returnsImmediately reports whether the client does not want to wait for the task. returnImmediately (1.0) takes
// precedence over blocking (0.3); the default is to wait, except with omitsFalse, where a configuration without
// blocking is one whose blocking is false.
func (c *configuration) returnsImmediately(omitsFalse bool) bool {
	if c == nil {
		return false
	}
	for _, now := range []*bool{c.ReturnImmediately, c.ReturnImmediatelySnake} {
		if now != nil {
			return *now
		}
	}
	if c.Blocking == nil {
		return omitsFalse
	}
	return !*c.Blocking
}

// historyLength returns the first of the given lengths that is set, or nil if none is, which means the whole
// history for a single task. field is the name for the error.
func historyLength(field string, of ...*int) (*int, error) {
	for _, n := range of {
		if n != nil {
			return n, decode.CheckHistoryLength(field, *n)
		}
	}
	return nil, nil
}

// toQuery returns the query of ListTasks and the number of messages of each history, 0 if it is not given.
func (p *params) toQuery() (q task.Query, history int, err error) {
	n, err := historyLength("historyLength", p.HistoryLength, p.HistoryLengthSnake)
	if err != nil {
		return q, 0, err
	}
	if n != nil {
		history = *n
	}
	q = task.Query{Context: agentsvc.ContextID(cmp.Or(p.ContextID, p.ContextIDSnake)), Token: cmp.Or(p.PageToken, p.PageTokenSnake), Size: task.DefaultPageSize}
	if err := decode.CheckID("contextId", string(q.Context)); err != nil {
		return q, 0, err
	}
	if q.State, err = ParseState(p.Status); err != nil {
		return q, 0, err
	}
	for _, size := range []*int{p.PageSize, p.PageSizeSnake} {
		if size != nil {
			q.Size = *size
			if err := decode.CheckPageSize(q.Size, task.MaxPageSize); err != nil {
				return q, 0, err
			}
		}
	}
	// Three names for one filter: statusTimestampAfter is that of 1.0, lastUpdatedAfter that of 0.3,
	// lastUpdatedTime another name that clients use. The last one in this list that is given wins.
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

// maxMillis is 9999-12-31T23:59:59.999Z in milliseconds since 1970: RFC 3339 has four digits for the year.
const maxMillis = 253_402_300_799_999

// parseTime parses a time in RFC 3339, or milliseconds since 1970 as version 0.3 has them. In a query the number
// arrives as a JSON text, so quotes are removed first.
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

// resolveTaskID returns the ID of the task that the request names, in the path or in the member id. An empty ID or
// one that cannot be an identifier is an error with [agentsvc.CodeInvalid].
func (p *params) resolveTaskID() (agentsvc.TaskID, error) {
	id, err := p.decodeID("must be the id of a task, as text")
	if id = cmp.Or(p.path.task, id); err == nil && id == "" {
		err = agentsvc.NewInvalidError("id", "is missing: the id of a task")
	}
	return agentsvc.TaskID(id), cmp.Or(err, decode.CheckID("id", id))
}

// decodeID returns the member id, "" if it is missing. JSON-RPC clients may send a number; that is an error with
// the text wanted.
func (p *params) decodeID(wanted string) (id string, err error) {
	if isGiven(p.ID) && json.Unmarshal(p.ID, &id) != nil {
		err = agentsvc.NewInvalidError("id", "%s", wanted)
	}
	return id, err
}
