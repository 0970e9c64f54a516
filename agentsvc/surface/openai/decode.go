package openai

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"path"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/decode"
)

// Bounds of a request. They keep the work per request bounded; the size in bytes is bounded by package surface.
const (
	maxMessages = 1000 // messages of a conversation
	maxParts    = 1000 // parts of all messages together
)

// toDomain returns the request as a message to its agent, or an error with [agentsvc.CodeInvalid] that names the member
// that is wrong. The last message must be the user's, or decisions end the conversation.
func (r *chatRequest) toDomain() (agentsvc.Message, error) {
	var m agentsvc.Message
	if err := r.checkSupported(); err != nil {
		return m, err
	}
	if n := len(r.Messages); n == 0 || n > maxMessages {
		return m, agentsvc.NewInvalidError("messages", "must have between 1 and %d of them", maxMessages)
	}
	if m, ok, err := r.toDecisions(); ok || err != nil {
		return m, err
	}
	c := conversation{name: "messages"}
	for i, in := range r.Messages {
		at := fmt.Sprintf("messages[%d]", i)
		if in.isApproval() {
			continue
		}
		if err := c.add(in.toDomain(at)); err != nil {
			return m, err
		}
	}
	if r.Messages[len(r.Messages)-1].Role != "user" {
		return m, agentsvc.NewInvalidError("messages", "must end with one whose role is user: what the agent is asked")
	}
	m = c.toMessage()
	return m, r.clientFields.addTo(&m)
}

// toDecisions returns the message with the decisions that follow the last message of the assistant, and false if there
// are none. Decisions before it are past: the task has gone on after them.
func (r *chatRequest) toDecisions() (m agentsvc.Message, ok bool, err error) {
	first := len(r.Messages)
	for first > 0 && r.Messages[first-1].Role != "assistant" {
		first--
	}
	var decisions []decision
	other := -1
	for i, in := range r.Messages[first:] {
		if !in.isApproval() {
			other = first + i
			continue
		}
		content, err := in.toText()
		if err != nil {
			return m, false, err
		}
		d, err := parseDecision(in.ToolCallID, content)
		if err != nil {
			return m, false, agentsvc.NewInvalidError(fmt.Sprintf("messages[%d].content", first+i), "%s", err)
		}
		decisions = append(decisions, d)
	}
	switch {
	case len(decisions) == 0:
		return m, false, nil
	case other >= 0:
		return m, false, newMixedError(fmt.Sprintf("messages[%d]", other))
	}
	m, err = newDecisionMessage(decisions, "tool_call_id", func(i int) string { return fmt.Sprintf("messages[%d]", first+i) })
	return m, true, err
}

// newMixedError returns the error for a message next to decisions.
func newMixedError(at string) error {
	return agentsvc.NewInvalidError(at, "cannot be combined with a decision: send it when the agent has answered")
}

// conversation collects the messages of a request within the bounds.
type conversation struct {
	name     string // of the member that holds them, for errors
	messages []agentsvc.Message
	parts    int
}

// add appends a message that was decoded without an error. Parts are counted over all messages: a thousand messages of a
// thousand parts would pass a bound per message.
func (c *conversation) add(m agentsvc.Message, err error) error {
	if err != nil || len(m.Parts) == 0 {
		return err
	}
	if c.parts += len(m.Parts); c.parts > maxParts {
		return agentsvc.NewInvalidError(c.name, "may have at most %d parts together", maxParts)
	}
	c.messages = append(c.messages, m)
	return nil
}

// toMessage returns the last message, with the others as those before it.
func (c *conversation) toMessage() agentsvc.Message {
	last := len(c.messages) - 1
	m := c.messages[last]
	// The capacity is limited so that an append cannot overwrite the last message.
	m.PriorMessages = c.messages[:last:last]
	return m
}

// addTo sets the metadata of m. It does not decide whose task m is, which is the credential's principal. Metadata that the
// client sent under the same names is overwritten.
func (f clientFields) addTo(m *agentsvc.Message) error {
	m.Metadata = f.Metadata
	for name, value := range map[string]string{"user": f.User, "safety_identifier": f.SafetyIdentifier} {
		if err := decode.CheckID(name, value); err != nil {
			return err
		}
		setMetadata(m, name, value)
	}
	return nil
}

// setMetadata sets a member of m's metadata, unless value is "".
func setMetadata(m *agentsvc.Message, name, value string) {
	switch {
	case value != "" && m.Metadata == nil:
		m.Metadata = map[string]any{name: value}
	case value != "":
		m.Metadata[name] = value
	}
}

// checkSupported refuses options that would require another kind of answer. Options that only tune a model are
// ignored instead, see wire.go.
func (r *chatRequest) checkSupported() error {
	switch {
	case r.N != nil && *r.N != 1:
		return agentsvc.NewInvalidError("n", "must be 1: an agent gives one answer")
	case len(r.Tools) > 0:
		return agentsvc.NewInvalidError("tools", "must be left out: an agent has tools of its own")
	case len(r.Functions) > 0:
		return agentsvc.NewInvalidError("functions", "must be left out: an agent has tools of its own")
	case r.Logprobs:
		return agentsvc.NewInvalidError("logprobs", "must be false")
	case r.ResponseFormat.Type != "" && r.ResponseFormat.Type != "text":
		return agentsvc.NewInvalidError("response_format", "must be left out: the form of an answer is the agent's own")
	}
	for _, m := range r.Modalities {
		if m != "text" {
			return agentsvc.NewInvalidError("modalities", "must be text alone")
		}
	}
	return nil
}

// isApproval reports whether m is a result of approvalFunction.
func (m *message) isApproval() bool { return m.Role == "tool" && isApprovalID(m.ToolCallID) }

// toText returns the content of m, which must be text.
func (m *message) toText() (string, error) {
	converted, err := decodeContent("content", m.Content, (*part).toDomain)
	return agentsvc.Message{Parts: converted}.Text(), err
}

// toDomain returns m as a domain message; at is its path for errors. A message of the assistant may consist of a refusal
// or of approval requests alone; the latter has no parts.
func (m *message) toDomain(at string) (converted agentsvc.Message, err error) {
	if converted.Role, err = toRole(at, m.Role); err != nil {
		return converted, err
	}
	for _, c := range m.ToolCalls {
		if !isApprovalID(c.ID) {
			return converted, agentsvc.NewInvalidError(at+".tool_calls", "must be left out: an agent has tools of its own")
		}
	}
	if len(m.Content) == 0 || string(m.Content) == "null" {
		switch {
		case converted.Role == agentsvc.RoleAgent && m.Refusal != "":
			converted.Parts = []agentsvc.Part{agentsvc.TextPart(m.Refusal)}
		case len(m.ToolCalls) == 0:
			return converted, agentsvc.NewInvalidError(at+".content", "is missing")
		}
		return converted, nil
	}
	converted.Parts, err = decodeContent(at+".content", m.Content, (*part).toDomain)
	return converted, err
}

// toRole returns the role of a message; at is its path for errors. The roles system and developer become user messages:
// only the agent's configuration can instruct the agent, so that a caller cannot override it.
func toRole(at, role string) (agentsvc.Role, error) {
	switch role {
	case "user", "system", "developer":
		return agentsvc.RoleUser, nil
	case "assistant":
		return agentsvc.RoleAgent, nil
	case "tool", "function":
		return "", agentsvc.NewInvalidError(at+".role", "must not be %s: an agent has tools of its own", role)
	}
	return "", agentsvc.NewInvalidError(at+".role", "unknown role %.40q: user, assistant, system or developer", role)
}

// decodeContent returns the parts of a message's content, which is a text or a list of parts P; at is its path for
// errors.
func decodeContent[P any](at string, content []byte, toDomain func(p *P, at string) (agentsvc.Part, error)) ([]agentsvc.Part, error) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []agentsvc.Part{agentsvc.TextPart(text)}, nil
	}
	var parts []P
	if json.Unmarshal(content, &parts) != nil || len(parts) == 0 {
		return nil, agentsvc.NewInvalidError(at, "must be a text or a list of parts")
	}
	converted := make([]agentsvc.Part, len(parts))
	for i := range parts {
		var err error
		if converted[i], err = toDomain(&parts[i], fmt.Sprintf("%s[%d]", at, i)); err != nil {
			return nil, err
		}
	}
	return converted, nil
}

// toDomain returns p as a domain part; at is its path for errors. Audio becomes a data URL, so that all files take
// the same way.
func (p *part) toDomain(at string) (agentsvc.Part, error) {
	switch p.Type {
	case "text":
		if p.Text == nil {
			return agentsvc.Part{}, agentsvc.NewInvalidError(at+".text", "is missing")
		}
		return agentsvc.TextPart(*p.Text), nil
	case "refusal":
		return agentsvc.TextPart(p.Refusal), nil
	case "image_url":
		return newFilePart(at+".image_url", "url", p.ImageURL.URL, "image/jpeg", "")
	case "file":
		return newFilePart(at+".file", "file_data", p.File.Data, "application/octet-stream", p.File.Name)
	case "input_audio":
		return p.InputAudio.toDomain(at + ".input_audio")
	}
	return agentsvc.Part{}, agentsvc.NewInvalidError(at+".type", "unknown type %.40q: text, image_url, input_audio or file", p.Type)
}

// toDomain returns a as a file; at is its path for errors.
func (a inputAudio) toDomain(at string) (agentsvc.Part, error) {
	return newFilePart(at, "data", "data:audio/"+strings.ToLower(a.Format)+";base64,"+a.Data, "", "")
}

// newFilePart returns a file by its address: an absolute URL, which the server does not fetch, or a data URL with
// the bytes in base64 (RFC 2397). name is the member that holds the address. The media type is that of the data URL
// or of the path's extension, else defaultType.
func newFilePart(at, name, address, defaultType, fileName string) (agentsvc.Part, error) {
	f := &agentsvc.File{Name: fileName, MediaType: defaultType}
	if address == "" {
		return agentsvc.Part{}, agentsvc.NewInvalidError(at+"."+name, "is missing")
	}
	names := decode.FileFields{URI: name, Bytes: name}
	if remaining, ok := strings.CutPrefix(address, "data:"); ok {
		kind, encoded, _ := strings.Cut(remaining, ",")
		kind, ok = strings.CutSuffix(kind, ";base64")
		if !ok {
			return agentsvc.Part{}, agentsvc.NewInvalidError(at+"."+name, "must hold its bytes in base64")
		}
		if kind != "" {
			f.MediaType = kind
		}
		return agentsvc.Part{File: f}, names.CompleteFile(f, at, "", encoded)
	}
	if u, err := url.Parse(address); err == nil {
		if kind, _, err := mime.ParseMediaType(mime.TypeByExtension(path.Ext(u.Path))); err == nil {
			f.MediaType = kind
		}
	}
	return agentsvc.Part{File: f}, names.CompleteFile(f, at, address, "")
}
