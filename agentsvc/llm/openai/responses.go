package openai

import (
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// encodeResponsesRequest returns the parameters of a response for req. Store is false: the server keeps nothing, and
// each request contains the whole conversation. An error is an error with [agentsvc.CodeInvalid].
func (p *Provider) encodeResponsesRequest(req llm.Request) (responses.ResponseNewParams, error) {
	out := responses.ResponseNewParams{Model: p.opts.Model, Store: openai.Bool(false)}
	if err := llm.FileSupportOf("openai").CheckFiles(req.Conversation); err != nil {
		return out, err
	}
	if p.opts.Temperature != nil {
		out.Temperature = openai.Float(*p.opts.Temperature)
	}
	if n := req.TokenLimit(p.opts.MaxTokens); n > 0 {
		out.MaxOutputTokens = openai.Int(n)
	}
	system := req.SystemText()
	if p.hasOutputMode(req) {
		system = req.System
		out.Text.Format.OfJSONSchema = &responses.ResponseFormatTextJSONSchemaConfigParam{
			Name: req.Output.FormatName(), Schema: req.Output.Schema, Strict: openai.Bool(req.Output.Strict),
		}
	}
	if system != "" {
		out.Instructions = openai.String(system)
	}
	for _, spec := range req.Tools {
		schema, err := upstream.ParameterSchema(spec)
		if err != nil {
			return out, err
		}
		// Strict mode would restrict the schemas that tools may have.
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
			// The constructor has no parameter for the id.
			item.OfFunctionCallOutput.CallID = openai.String(string(e.Result.Call))
			out.Input.OfInputItemList = append(out.Input.OfInputItemList, item)
		case e.Message == nil:
		case e.Message.Role == agentsvc.RoleAgent:
			out.Input.OfInputItemList = append(out.Input.OfInputItemList, encodeAgentItems(*e.Message)...)
		default:
			out.Input.OfInputItemList = append(out.Input.OfInputItemList, encodeUserItem(*e.Message))
		}
	}
	return out, nil
}

// encodeAgentItems returns the items for the model's message: its text and its tool calls.
func encodeAgentItems(m agentsvc.Message) []responses.ResponseInputItemUnionParam {
	var items []responses.ResponseInputItemUnionParam
	if text := upstream.PartsText(m.Parts...); text != "" {
		items = append(items, responses.ResponseInputItemParamOfMessage(text, responses.EasyInputMessageRoleAssistant))
	}
	for _, call := range m.ToolCalls {
		// Calls are items of their own in this API, not parts of the assistant's message.
		items = append(items, responses.ResponseInputItemParamOfFunctionCall(string(call.Arguments), string(call.ID), call.Name))
	}
	return items
}

// encodeUserItem returns the item for a user's message.
func encodeUserItem(m agentsvc.Message) responses.ResponseInputItemUnionParam {
	const user = responses.EasyInputMessageRoleUser
	if !upstream.HasFile(m.Parts) {
		return responses.ResponseInputItemParamOfMessage(upstream.PartsText(m.Parts...), user)
	}
	var parts responses.ResponseInputMessageContentListParam
	for _, part := range m.Parts {
		if part.File == nil {
			parts = append(parts, responses.ResponseInputContentParamOfInputText(upstream.PartsText(part)))
			continue
		}
		parts = append(parts, responses.ResponseInputContentUnionParam{OfInputImage: &responses.ResponseInputImageParam{
			Detail: responses.ResponseInputImageDetailAuto, ImageURL: openai.String(fileURL(*part.File)),
		}})
	}
	return responses.ResponseInputItemParamOfMessage(parts, user)
}

// responsesDecoder assembles the events of one response.
type responsesDecoder struct {
	*upstream.AnswerBuilder
	// callsByIndex holds the calls by the index of their item in the output.
	callsByIndex map[int64]*upstream.PartialCall
	// refused reports that the model wrote a refusal.
	refused bool
	// endEvent is the type of the event that ended the response, "" before it.
	endEvent string
	// incompleteReason is the server's reason if endEvent is response.incomplete.
	incompleteReason string
}

// newResponsesDecoder returns a decoder that adds to a.
func newResponsesDecoder(a *upstream.AnswerBuilder) *responsesDecoder {
	return &responsesDecoder{AnswerBuilder: a, callsByIndex: map[int64]*upstream.PartialCall{}}
}

// addEvent processes the next event and returns the chunks that can be shown at once, i.e. text. Events of other types,
// e.g. reasoning, are ignored.
func (r *responsesDecoder) addEvent(ev responses.ResponseStreamEventUnion) ([]llm.Chunk, error) {
	switch ev.Type {
	case "response.output_text.delta":
		return r.AddText(ev.Delta)
	case "response.refusal.delta":
		r.refused = true
		return r.AddText(ev.Delta)
	// A call begins with its id and name; its arguments follow as deltas with the same output index.
	case "response.output_item.added":
		if ev.Item.Type != "function_call" {
			return nil, nil
		}
		call, err := r.StartCall(ev.Item.CallID, ev.Item.Name)
		r.callsByIndex[ev.OutputIndex] = call
		return nil, err
	case "response.function_call_arguments.delta":
		if call := r.callsByIndex[ev.OutputIndex]; call != nil {
			return nil, r.AppendArguments(call, ev.Delta)
		}
		// Arguments of a call that never began.
		return nil, upstream.ErrMalformed
	// The last event carries the usage of the whole response.
	case "response.completed", "response.incomplete":
		r.endEvent, r.incompleteReason = ev.Type, ev.Response.IncompleteDetails.Reason
		if u := ev.Response.Usage; ev.Response.JSON.Usage.Valid() {
			r.SetUsage(u.InputTokens, u.OutputTokens, u.InputTokensDetails.CachedTokens, u.InputTokensDetails.CacheWriteTokens, u.OutputTokensDetails.ReasoningTokens)
		}
	case "error", "response.failed":
		return nil, upstream.ErrReported
	}
	return nil, nil
}

// finishAnswer returns the last chunks of a response. Without an end event the stream ended early.
func (r *responsesDecoder) finishAnswer() ([]llm.Chunk, error) {
	switch {
	case r.endEvent == "":
		return nil, upstream.ErrBrokeOff
	case r.incompleteReason == "content_filter", r.refused:
		return r.Finish(llm.StopRefusal)
	case r.endEvent == "response.incomplete":
		return r.Finish(llm.StopLength)
	}
	return r.Finish(llm.StopEnd)
}
