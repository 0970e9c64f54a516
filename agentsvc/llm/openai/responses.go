package openai

import (
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// responseParams puts req into the words of the responses API. The server keeps nothing of it. An error is an
// [agentsvc.InvalidError].
func (p *Provider) responseParams(req llm.Request) (responses.ResponseNewParams, error) {
	out := responses.ResponseNewParams{Model: p.opts.Model, Store: openai.Bool(false)}
	if err := llm.FilesOf("openai").Check(req.Conversation); err != nil {
		return out, err
	}
	if p.opts.Temperature != nil {
		out.Temperature = openai.Float(*p.opts.Temperature)
	}
	if n := req.Most(p.opts.MaxTokens); n > 0 {
		out.MaxOutputTokens = openai.Int(n)
	}
	if req.System != "" {
		out.Instructions = openai.String(req.System)
	}
	for _, spec := range req.Tools {
		schema, err := upstream.Parameters(spec)
		if err != nil {
			return out, err
		}
		fn := responses.FunctionToolParam{Name: spec.Name, Parameters: schema, Strict: openai.Bool(false)}
		if spec.Description != "" {
			fn.Description = openai.String(spec.Description)
		}
		out.Tools = append(out.Tools, responses.ToolUnionParam{OfFunction: &fn})
	}
	for _, e := range req.Conversation {
		switch {
		case e.Result != nil:
			item := responses.ResponseInputItemParamOfFunctionCallOutput(e.Result.Text)
			item.OfFunctionCallOutput.CallID = openai.String(string(e.Result.Call))
			out.Input.OfInputItemList = append(out.Input.OfInputItemList, item)
		case e.Message == nil:
		case e.Message.Role == agentsvc.RoleAgent:
			out.Input.OfInputItemList = append(out.Input.OfInputItemList, agentItems(*e.Message)...)
		default:
			out.Input.OfInputItemList = append(out.Input.OfInputItemList, userItem(*e.Message))
		}
	}
	return out, nil
}

// agentItems returns what the model said and which tools it called.
func agentItems(m agentsvc.Message) []responses.ResponseInputItemUnionParam {
	var items []responses.ResponseInputItemUnionParam
	if text := upstream.Text(m.Parts...); text != "" {
		items = append(items, responses.ResponseInputItemParamOfMessage(text, responses.EasyInputMessageRoleAssistant))
	}
	for _, call := range m.ToolCalls {
		items = append(items, responses.ResponseInputItemParamOfFunctionCall(string(call.Arguments), string(call.ID), call.Name))
	}
	return items
}

func userItem(m agentsvc.Message) responses.ResponseInputItemUnionParam {
	const user = responses.EasyInputMessageRoleUser
	if !upstream.HasFile(m.Parts) {
		return responses.ResponseInputItemParamOfMessage(upstream.Text(m.Parts...), user)
	}
	var parts responses.ResponseInputMessageContentListParam
	for _, part := range m.Parts {
		if part.File == nil {
			parts = append(parts, responses.ResponseInputContentParamOfInputText(upstream.Text(part)))
			continue
		}
		parts = append(parts, responses.ResponseInputContentUnionParam{OfInputImage: &responses.ResponseInputImageParam{
			Detail: responses.ResponseInputImageDetailAuto, ImageURL: openai.String(address(*part.File)),
		}})
	}
	return responses.ResponseInputItemParamOfMessage(parts, user)
}

// response puts the events of one response together.
type response struct {
	*upstream.Answer
	current map[int64]*upstream.Call // by the place of the item in the output
	refused bool
	status  string
	cut     string // why it is incomplete
}

func newResponse(a *upstream.Answer) *response {
	return &response{Answer: a, current: map[int64]*upstream.Call{}}
}

// add takes in the next event and returns what can be shown at once: text.
func (r *response) add(ev responses.ResponseStreamEventUnion) ([]llm.Chunk, error) {
	switch ev.Type {
	case "response.output_text.delta":
		return r.Text(ev.Delta)
	case "response.refusal.delta":
		r.refused = true
		return r.Text(ev.Delta)
	case "response.output_item.added":
		if ev.Item.Type != "function_call" {
			return nil, nil
		}
		call, err := r.Call(ev.Item.CallID, ev.Item.Name)
		r.current[ev.OutputIndex] = call
		return nil, err
	case "response.function_call_arguments.delta":
		if call := r.current[ev.OutputIndex]; call != nil {
			return nil, r.Arguments(call, ev.Delta)
		}
		return nil, upstream.ErrMalformed
	case "response.completed", "response.incomplete":
		r.status, r.cut = ev.Type, ev.Response.IncompleteDetails.Reason
		if u := ev.Response.Usage; ev.Response.JSON.Usage.Valid() {
			r.Count(u.InputTokens, u.OutputTokens, u.InputTokensDetails.CachedTokens, u.InputTokensDetails.CacheWriteTokens, u.OutputTokensDetails.ReasoningTokens)
		}
	case "error", "response.failed":
		return nil, upstream.ErrReported
	}
	return nil, nil
}

// end returns the last chunks of a response that came to its end.
func (r *response) end() ([]llm.Chunk, error) {
	switch {
	case r.status == "":
		return nil, upstream.ErrBrokeOff
	case r.cut == "content_filter", r.refused:
		return r.End(llm.StopRefusal)
	case r.status == "response.incomplete":
		return r.End(llm.StopLength)
	}
	return r.End(llm.StopEnd)
}
