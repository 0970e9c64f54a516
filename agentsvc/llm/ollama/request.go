package ollama

import (
	"encoding/json"

	"github.com/ollama/ollama/api"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// params puts req into the API's words. An error is an [agentsvc.InvalidError].
func (p *Provider) params(req llm.Request) (*api.ChatRequest, error) {
	out := &api.ChatRequest{Model: p.opts.Model, Options: map[string]any{}}
	if err := llm.FilesOf("ollama").Check(req.Conversation); err != nil {
		return nil, err
	}
	if p.opts.Temperature != nil {
		out.Options["temperature"] = *p.opts.Temperature
	}
	if n := req.Most(p.opts.MaxTokens); n > 0 {
		out.Options["num_predict"] = n
	}
	for _, spec := range req.Tools {
		tool, err := toolParam(spec)
		if err != nil {
			return nil, err
		}
		out.Tools = append(out.Tools, tool)
	}
	if req.System != "" {
		out.Messages = append(out.Messages, api.Message{Role: "system", Content: req.System})
	}
	for _, e := range req.Conversation {
		m, err := message(e)
		if err != nil {
			return nil, err
		}
		if m.Role != "" {
			out.Messages = append(out.Messages, m)
		}
	}
	return out, nil
}

func toolParam(spec agentsvc.ToolSpec) (api.Tool, error) {
	tool := api.Tool{Type: "function", Function: api.ToolFunction{Name: spec.Name, Description: spec.Description}}
	schema, err := upstream.Parameters(spec)
	if err != nil {
		return tool, err
	}
	if schema["properties"] == nil {
		schema["properties"] = map[string]any{}
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return tool, err
	}
	if err := json.Unmarshal(text, &tool.Function.Parameters); err != nil {
		return tool, agentsvc.Invalid(spec.Name+".parameters", "hold what this model's server cannot read in a schema")
	}
	return tool, nil
}

// message returns what an entry is to the API, without a role where it is nothing. Files that the model made are left
// out.
func message(e agentsvc.Entry) (api.Message, error) {
	if r := e.Result; r != nil {
		return api.Message{Role: "tool", Content: r.Text, ToolName: r.Name, ToolCallID: string(r.Call)}, nil
	}
	if e.Message == nil {
		return api.Message{}, nil
	}
	m := api.Message{Role: "user", Content: upstream.Text(e.Message.Parts...)}
	if e.Message.Role != agentsvc.RoleAgent {
		for _, part := range e.Message.Parts {
			if part.File != nil {
				m.Images = append(m.Images, part.File.Bytes)
			}
		}
		return m, nil
	}
	m.Role = "assistant"
	for i, call := range e.Message.ToolCalls {
		out := api.ToolCall{ID: string(call.ID), Function: api.ToolCallFunction{Index: i, Name: call.Name}}
		args := call.Arguments
		if len(args) == 0 {
			args = []byte("{}")
		}
		if err := json.Unmarshal(args, &out.Function.Arguments); err != nil {
			return m, agentsvc.Invalid("tool call "+string(call.ID), "its arguments are no JSON object")
		}
		m.ToolCalls = append(m.ToolCalls, out)
	}
	if m.Content == "" && len(m.ToolCalls) == 0 {
		return api.Message{}, nil
	}
	return m, nil
}
