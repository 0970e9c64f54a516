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
	preamble string
	fields   []Field
	template *Template // nil = none
}

// NewInput returns an input. What is wrong with the template is an [agentsvc.InvalidError] of the field template.
func NewInput(before, source string, fields []Field) (*Input, error) {
	in := &Input{preamble: before, fields: fields}
	if source == "" {
		return in, nil
	}
	var err error
	if in.template, err = ParseTemplate(source); err != nil {
		return nil, agentsvc.NewInvalidError("template", "%.240v", err)
	}
	return in, nil
}

// BuildMessage makes the message. What the body lacks, or a template cannot make of it, is an [agentsvc.InvalidError].
func (in *Input) BuildMessage(contentType string, body []byte) (string, error) {
	payload, err := DecodePayload(contentType, body)
	if err != nil {
		return "", err
	}
	picked := map[string]any{}
	for _, f := range in.fields {
		v, ok := lookupPath(payload, f.Path)
		if !ok && f.Required {
			return "", agentsvc.NewInvalidError("body", "has no %s", f.Path)
		}
		picked[f.Name()] = v
	}
	if in.template == nil {
		message := strings.TrimSpace(string(body))
		if len(in.fields) > 0 {
			message = formatValue(picked)
		}
		return checkMessage(strings.TrimSpace(in.preamble + "\n\n" + message))
	}
	data, ok := payload.(map[string]any)
	if !ok {
		data = map[string]any{"payload": payload}
	}
	for name, v := range picked {
		data[name] = v
	}
	message, err := in.template.RenderText(data)
	if err != nil {
		return "", agentsvc.NewInvalidError("body", "the webhook's template cannot make a message of it: %.200v", err)
	}
	return checkMessage(message)
}

// checkMessage refuses a message without words, and one that is too long.
func checkMessage(message string) (string, error) {
	switch {
	case strings.TrimSpace(message) == "":
		return "", agentsvc.NewInvalidError("body", "makes an empty message")
	case len(message) > maxMessageBytes:
		return "", agentsvc.NewInvalidError("body", "makes a message of more than %d bytes", maxMessageBytes)
	}
	return message, nil
}

// maxMessageBytes bounds a message that is no template's.
const maxMessageBytes = 2 << 20
