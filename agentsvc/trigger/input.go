package trigger

import (
	"context"
	"strings"

	"stoa/agentsvc"
)

// Field selects a value from a body.
type Field struct {
	// Path is a path of names and list indices, with dots.
	Path string
	// As is the name of the value; "" means the last element of Path.
	As       string
	Required bool
}

// Name returns the name by which the template and the message know the value.
func (f Field) Name() string {
	if f.As != "" {
		return f.As
	}
	return f.Path[strings.LastIndex(f.Path, ".")+1:]
}

// Input makes an agent's message from the body of a delivery, or from its query, see [EncodeQuery].
//
// With a template, the message is its result. Its data are the fields of the body, if that is an object, or else the
// one field payload; selected fields are added. With selected fields and no template the message is the configured
// text, an empty line, and a JSON object of the fields. With the text alone it is the text, whatever the body is. With
// nothing it is the body as received.
type Input struct {
	text   string
	fields []Field
	// template is nil if there is none.
	template *Template
}

// NewInput returns an input of app. source is the template. An invalid template is an [agentsvc.CodeInvalid] of the field
// template.
func NewInput(app, text, source string, fields []Field) (*Input, error) {
	in := &Input{text: text, fields: fields}
	if source == "" {
		return in, nil
	}
	var err error
	if in.template, err = ParseTemplate(app, source); err != nil {
		return nil, agentsvc.NewInvalidError("template", "%.240v", err)
	}
	return in, nil
}

// IsStatic reports whether the message does not depend on the body.
func (in *Input) IsStatic() bool { return in.text != "" && in.template == nil && len(in.fields) == 0 }

// BuildMessage returns the message. A body that lacks a required field, or on which the template fails, is an
// [agentsvc.CodeInvalid].
func (in *Input) BuildMessage(ctx context.Context, contentType string, body []byte) (string, error) {
	if in.IsStatic() {
		return checkMessage(in.text)
	}
	payload, err := decodePayload(contentType, body)
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
		return checkMessage(strings.TrimSpace(in.text + "\n\n" + message))
	}
	data, ok := payload.(map[string]any)
	if !ok {
		data = map[string]any{"payload": payload}
	}
	for name, v := range picked {
		data[name] = v
	}
	message, err := in.template.RenderText(ctx, data)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", agentsvc.NewInvalidError("body", "the webhook's template cannot be rendered with it: %.200v", err)
	}
	return checkMessage(message)
}

// checkMessage returns the message, or an error with [agentsvc.CodeInvalid] if it is blank or too long.
func checkMessage(message string) (string, error) {
	switch {
	case strings.TrimSpace(message) == "":
		return "", agentsvc.NewInvalidError("body", "gives an empty message: send a body (by GET a query), or set the trigger's input")
	case len(message) > maxMessageBytes:
		return "", agentsvc.NewInvalidError("body", "renders to a message of more than %d bytes", maxMessageBytes)
	}
	return message, nil
}

// maxMessageBytes bounds a message. Those of a template have the lower bound maxTextBytes.
const maxMessageBytes = 2 << 20
