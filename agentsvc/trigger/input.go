package trigger

import (
	"strings"

	"stoa/agentsvc"
)

// Field picks a value out of a body.
type Field struct {
	Path     string
	As       string // "" = the last name of Path
	Required bool
}

// Name is what the template knows the value by.
func (f Field) Name() string {
	if f.As != "" {
		return f.As
	}
	return f.Path[strings.LastIndex(f.Path, ".")+1:]
}

// Input makes an agent's message of a delivery's body.
//
// With a template it is what that makes: of the fields of the body, if it is an object, else of the one field payload; and
// of the fields that are picked. Without one it is the text that goes before, an empty line, and the body as it came, or
// where fields are picked a JSON object of those.
type Input struct {
	before   string
	fields   []Field
	template *Template // nil = none
}

// NewInput returns an input. What is wrong with the template is an [agentsvc.InvalidError] of the field template.
func NewInput(before, source string, fields []Field) (*Input, error) {
	in := &Input{before: before, fields: fields}
	if source == "" {
		return in, nil
	}
	var err error
	if in.template, err = ParseTemplate(source); err != nil {
		return nil, agentsvc.Invalid("template", "%.240v", err)
	}
	return in, nil
}

// Message makes the message. What the body lacks, or a template cannot make of it, is an [agentsvc.InvalidError].
func (in *Input) Message(contentType string, body []byte) (string, error) {
	payload, err := Decode(contentType, body)
	if err != nil {
		return "", err
	}
	picked := map[string]any{}
	for _, f := range in.fields {
		v, ok := lookup(payload, f.Path)
		if !ok && f.Required {
			return "", agentsvc.Invalid("body", "has no %s", f.Path)
		}
		picked[f.Name()] = v
	}
	if in.template == nil {
		said := strings.TrimSpace(string(body))
		if len(in.fields) > 0 {
			said = text(picked)
		}
		return within(strings.TrimSpace(in.before + "\n\n" + said))
	}
	data, ok := payload.(map[string]any)
	if !ok {
		data = map[string]any{"payload": payload}
	}
	for name, v := range picked {
		data[name] = v
	}
	said, err := in.template.Text(data)
	if err != nil {
		return "", agentsvc.Invalid("body", "the webhook's template cannot make a message of it: %.200v", err)
	}
	return within(said)
}

// within refuses a message without words, and one that is too long.
func within(said string) (string, error) {
	switch {
	case strings.TrimSpace(said) == "":
		return "", agentsvc.Invalid("body", "makes an empty message")
	case len(said) > maxBody:
		return "", agentsvc.Invalid("body", "makes a message of more than %d bytes", maxBody)
	}
	return said, nil
}

// maxBody bounds a message that is no template's.
const maxBody = 2 << 20
