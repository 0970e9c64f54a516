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
	maxName     = 256  // bytes of user and safety_identifier; decode.CheckID has the same bound and checks it
)

// toDomain returns the request as a message to its agent, or an error with [agentsvc.CodeInvalid] that names the member
// that is wrong. The last message must be the user's. user, safety_identifier and metadata are stored with the message;
// they do not decide whose task it is, which is the credential's principal.
func (r *chatRequest) toDomain() (agentsvc.Message, error) {
	var m agentsvc.Message
	if err := r.checkSupported(); err != nil {
		return m, err
	}
	if n := len(r.Messages); n == 0 || n > maxMessages {
		return m, agentsvc.NewInvalidError("messages", "must have between 1 and %d of them", maxMessages)
	}
	conversation, parts := make([]agentsvc.Message, len(r.Messages)), 0
	for i, in := range r.Messages {
		var err error
		if conversation[i], err = in.toDomain(fmt.Sprintf("messages[%d]", i)); err != nil {
			return m, err
		}
		// Counted over all messages: a thousand messages of a thousand parts would pass a bound per message.
		if parts += len(conversation[i].Parts); parts > maxParts {
			return m, agentsvc.NewInvalidError("messages", "may have at most %d parts together", maxParts)
		}
	}
	last := len(conversation) - 1
	if r.Messages[last].Role != "user" {
		return m, agentsvc.NewInvalidError("messages", "must end with one whose role is user: what the agent is asked")
	}
	m = conversation[last]
	// The capacity is limited so that an append cannot overwrite the last message.
	m.PriorMessages = conversation[:last:last]
	m.Metadata = r.Metadata
	// Metadata that the client sent under the same names is overwritten.
	for name, value := range map[string]string{"user": r.User, "safety_identifier": r.SafetyIdentifier} {
		switch err := decode.CheckID(name, value); {
		case err != nil:
			return m, err
		case value != "" && m.Metadata == nil:
			m.Metadata = map[string]any{name: value}
		case value != "":
			m.Metadata[name] = value
		}
	}
	return m, nil
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

// toDomain returns m as a domain message; at is its path for errors. The roles system and developer become user
// messages: only the agent's configuration can instruct the agent, so that a caller cannot override it.
func (m *message) toDomain(at string) (agentsvc.Message, error) {
	converted := agentsvc.Message{Role: agentsvc.RoleUser}
	switch m.Role {
	case "user", "system", "developer":
	case "assistant":
		converted.Role = agentsvc.RoleAgent
	case "tool", "function":
		return converted, agentsvc.NewInvalidError(at+".role", "must not be %s: an agent has tools of its own", m.Role)
	default:
		return converted, agentsvc.NewInvalidError(at+".role", "unknown role %.40q: user, assistant, system or developer", m.Role)
	}
	if len(m.ToolCalls) > 0 {
		return converted, agentsvc.NewInvalidError(at+".tool_calls", "must be left out: an agent has tools of its own")
	}
	var text string
	var parts []part
	switch {
	// Content may be missing only in an assistant message with a refusal.
	case len(m.Content) == 0 || string(m.Content) == "null":
		// An assistant message may consist of a refusal alone.
		if converted.Role != agentsvc.RoleAgent || m.Refusal == "" {
			return converted, agentsvc.NewInvalidError(at+".content", "is missing")
		}
		converted.Parts = []agentsvc.Part{agentsvc.TextPart(m.Refusal)}
		return converted, nil
	case json.Unmarshal(m.Content, &text) == nil:
		converted.Parts = []agentsvc.Part{agentsvc.TextPart(text)}
		return converted, nil
	case json.Unmarshal(m.Content, &parts) != nil || len(parts) == 0:
		return converted, agentsvc.NewInvalidError(at+".content", "must be a text or a list of parts")
	}
	for i, p := range parts {
		read, err := p.toDomain(fmt.Sprintf("%s.content[%d]", at, i))
		if err != nil {
			return converted, err
		}
		converted.Parts = append(converted.Parts, read)
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
		a := p.InputAudio
		return newFilePart(at+".input_audio", "data", "data:audio/"+strings.ToLower(a.Format)+";base64,"+a.Data, "", "")
	}
	return agentsvc.Part{}, agentsvc.NewInvalidError(at+".type", "unknown type %.40q: text, image_url, input_audio or file", p.Type)
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
