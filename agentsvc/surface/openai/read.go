package openai

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"path"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// Bounds of a conversation.
const (
	maxMessages = 1000
	maxParts    = 1000 // of all messages together
	maxName     = 256  // bytes of what an application calls its user
)

// word returns the request as a message for its agent, or what is wrong with it and where.
func (b *request) word() (agentsvc.Message, error) {
	var m agentsvc.Message
	if err := b.possible(); err != nil {
		return m, err
	}
	if n := len(b.Messages); n == 0 || n > maxMessages {
		return m, agentsvc.Invalid("messages", "must have between 1 and %d of them", maxMessages)
	}
	talk, parts := make([]agentsvc.Message, len(b.Messages)), 0
	for i, in := range b.Messages {
		var err error
		if talk[i], err = in.word(fmt.Sprintf("messages[%d]", i)); err != nil {
			return m, err
		}
		if parts += len(talk[i].Parts); parts > maxParts {
			return m, agentsvc.Invalid("messages", "may have at most %d parts together", maxParts)
		}
	}
	last := len(talk) - 1
	if b.Messages[last].Role != "user" {
		return m, agentsvc.Invalid("messages", "must end with one whose role is user: what the agent is asked")
	}
	m = talk[last]
	m.Earlier = talk[:last:last]
	m.Metadata = b.Metadata
	for name, value := range map[string]string{"user": b.User, "safety_identifier": b.SafetyIdentifier} {
		switch err := surface.CheckID(name, value); {
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

// possible refuses what would make the answer another one than an agent gives.
func (b *request) possible() error {
	switch {
	case b.N != nil && *b.N != 1:
		return agentsvc.Invalid("n", "must be 1: an agent gives one answer")
	case len(b.Tools) > 0:
		return agentsvc.Invalid("tools", "must be left out: an agent has tools of its own")
	case len(b.Functions) > 0:
		return agentsvc.Invalid("functions", "must be left out: an agent has tools of its own")
	case b.Logprobs:
		return agentsvc.Invalid("logprobs", "must be false")
	case b.ResponseFormat.Type != "" && b.ResponseFormat.Type != "text":
		return agentsvc.Invalid("response_format", "must be left out: the form of an answer is the agent's own")
	}
	for _, m := range b.Modalities {
		if m != "text" {
			return agentsvc.Invalid("modalities", "must be text alone")
		}
	}
	return nil
}

// word returns m, which stands at the given place. What is called system or developer is said by the caller as all the rest:
// the instruction that goes before everything is the agent's own.
func (m *message) word(at string) (agentsvc.Message, error) {
	word := agentsvc.Message{Role: agentsvc.RoleUser}
	switch m.Role {
	case "user", "system", "developer":
	case "assistant":
		word.Role = agentsvc.RoleAgent
	case "tool", "function":
		return word, agentsvc.Invalid(at+".role", "must not be %s: an agent has tools of its own", m.Role)
	default:
		return word, agentsvc.Invalid(at+".role", "unknown role %.40q: user, assistant, system or developer", m.Role)
	}
	if len(m.ToolCalls) > 0 {
		return word, agentsvc.Invalid(at+".tool_calls", "must be left out: an agent has tools of its own")
	}
	var text string
	var parts []part
	switch {
	case len(m.Content) == 0 || string(m.Content) == "null":
		if word.Role != agentsvc.RoleAgent || m.Refusal == "" {
			return word, agentsvc.Invalid(at+".content", "is missing")
		}
		word.Parts = []agentsvc.Part{agentsvc.TextPart(m.Refusal)}
		return word, nil
	case json.Unmarshal(m.Content, &text) == nil:
		word.Parts = []agentsvc.Part{agentsvc.TextPart(text)}
		return word, nil
	case json.Unmarshal(m.Content, &parts) != nil || len(parts) == 0:
		return word, agentsvc.Invalid(at+".content", "must be a text or a list of parts")
	}
	for i, p := range parts {
		read, err := p.word(fmt.Sprintf("%s.content[%d]", at, i))
		if err != nil {
			return word, err
		}
		word.Parts = append(word.Parts, read)
	}
	return word, nil
}

// word returns p, which stands at the given place.
func (p *part) word(at string) (agentsvc.Part, error) {
	switch p.Type {
	case "text":
		if p.Text == nil {
			return agentsvc.Part{}, agentsvc.Invalid(at+".text", "is missing")
		}
		return agentsvc.TextPart(*p.Text), nil
	case "refusal":
		return agentsvc.TextPart(p.Refusal), nil
	case "image_url":
		return file(at+".image_url", "url", p.ImageURL.URL, "image/jpeg", "")
	case "file":
		return file(at+".file", "file_data", p.File.Data, "application/octet-stream", p.File.Name)
	case "input_audio":
		a := p.InputAudio
		return file(at+".input_audio", "data", "data:audio/"+strings.ToLower(a.Format)+";base64,"+a.Data, "", "")
	}
	return agentsvc.Part{}, agentsvc.Invalid(at+".type", "unknown type %.40q: text, image_url, input_audio or file", p.Type)
}

// file returns a file by its address, which may hold its bytes (RFC 2397). Its type is what the address says, else usual.
func file(at, name, address, usual, called string) (agentsvc.Part, error) {
	f := &agentsvc.File{Name: called, MediaType: usual}
	if address == "" {
		return agentsvc.Part{}, agentsvc.Invalid(at+"."+name, "is missing")
	}
	names := surface.FileNames{URI: name, Bytes: name}
	if rest, ok := strings.CutPrefix(address, "data:"); ok {
		kind, encoded, _ := strings.Cut(rest, ",")
		kind, ok = strings.CutSuffix(kind, ";base64")
		if !ok {
			return agentsvc.Part{}, agentsvc.Invalid(at+"."+name, "must hold its bytes in base64")
		}
		if kind != "" {
			f.MediaType = kind
		}
		return agentsvc.Part{File: f}, names.Complete(f, at, "", encoded)
	}
	if u, err := url.Parse(address); err == nil {
		if kind, _, err := mime.ParseMediaType(mime.TypeByExtension(path.Ext(u.Path))); err == nil {
			f.MediaType = kind
		}
	}
	return agentsvc.Part{File: f}, names.Complete(f, at, address, "")
}
