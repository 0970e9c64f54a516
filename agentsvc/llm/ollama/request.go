package ollama

import (
	"bytes"
	"encoding/json"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// encodeRequest returns the API's body for req. An error is an error with [agentsvc.CodeInvalid].
func (p *Provider) encodeRequest(req llm.Request) (*chatRequest, error) {
	out := &chatRequest{Model: p.opts.Model, Options: map[string]any{}}
	// Checked first, so that the error names the file.
	if err := llm.FileSupportOf("ollama").CheckFiles(req.Conversation); err != nil {
		return nil, err
	}
	if p.opts.Temperature != nil {
		out.Options["temperature"] = *p.opts.Temperature
	}
	if n := req.TokenLimit(p.opts.MaxTokens); n > 0 {
		// num_predict is the server's name of the bound of output tokens.
		out.Options["num_predict"] = n
	}
	for _, spec := range req.Tools {
		t, err := encodeTool(spec)
		if err != nil {
			return nil, err
		}
		out.Tools = append(out.Tools, t)
	}
	// With a format the server lets the model write nothing else, tool calls included.
	if req.Output != nil && len(req.Tools) == 0 {
		out.Format = req.Output.Schema
	}
	// The system prompt is the first message. It describes the format in any case, as the server's documentation advises:
	// the format only restricts what the model writes, and is not shown to it.
	if system := req.SystemText(); system != "" {
		out.Messages = append(out.Messages, chatMessage{Role: "system", Content: system})
	}
	for _, e := range req.Conversation {
		m, err := encodeMessage(e)
		if err != nil {
			return nil, err
		}
		if m.Role != "" {
			out.Messages = append(out.Messages, m)
		}
	}
	return out, nil
}

// encodeTool returns a tool definition with the part of the schema that the server accepts, see parameters. The schema
// is converted by encoding and decoding it, so that unknown keywords are dropped at every level.
func encodeTool(spec agentsvc.ToolSpec) (tool, error) {
	t := tool{Type: "function", Function: function{Name: spec.Name, Description: spec.Description}}
	schema, err := upstream.ParameterSchema(spec)
	if err != nil {
		return t, err
	}
	// Without it, the field would be encoded as null.
	if schema["properties"] == nil {
		schema["properties"] = map[string]any{}
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return t, err
	}
	// A keyword has a form that the server does not accept.
	if err := json.Unmarshal(text, &t.Function.Parameters); err != nil {
		return t, agentsvc.NewInvalidError(spec.Name+".parameters", "hold what this model's server cannot read in a schema")
	}
	return t, nil
}

// encodeMessage returns the message for an entry; its Role is "" if the entry has no content for the API. Files that
// the model made are left out.
func encodeMessage(e agentsvc.Entry) (chatMessage, error) {
	if r := e.Result; r != nil {
		return chatMessage{Role: "tool", Content: r.Text, ToolName: r.Name, ToolCallID: string(r.Call)}, nil
	}
	if e.Message == nil {
		return chatMessage{}, nil
	}
	m := chatMessage{Role: "user", Content: upstream.PartsText(e.Message.Parts...)}
	if e.Message.Role != agentsvc.RoleAgent {
		for _, part := range e.Message.Parts {
			if part.File != nil {
				// FileSupport accepts images only; they are sent by value.
				m.Images = append(m.Images, part.File.Bytes)
			}
		}
		return m, nil
	}
	m.Role = "assistant"
	for i, call := range e.Message.ToolCalls {
		out := toolCall{ID: string(call.ID), Function: functionCall{Index: i, Name: call.Name}}
		args := call.Arguments
		if len(args) == 0 {
			args = []byte("{}")
		}
		// The server would refuse the whole request with an error of its own.
		if !isObject(args) {
			return m, agentsvc.NewInvalidError("tool call "+string(call.ID), "its arguments are no JSON object")
		}
		out.Function.Arguments = args
		m.ToolCalls = append(m.ToolCalls, out)
	}
	// Nothing to send, e.g. a message with files only.
	if m.Content == "" && len(m.ToolCalls) == 0 {
		return chatMessage{}, nil
	}
	return m, nil
}

// isObject reports whether text is a JSON object.
func isObject(text []byte) bool {
	text = bytes.TrimSpace(text)
	return len(text) > 0 && text[0] == '{' && json.Valid(text)
}
