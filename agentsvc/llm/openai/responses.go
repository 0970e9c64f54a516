package openai

import (
	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// encodeResponsesRequest returns the body of a response for req. Store is false: the server keeps nothing, and
// each request contains the whole conversation. An error is an error with [agentsvc.CodeInvalid].
func (p *Provider) encodeResponsesRequest(req llm.Request) (responsesRequest, error) {
	out := responsesRequest{Model: p.opts.Model, Stream: true, Temperature: p.opts.Temperature, MaxOutputTokens: max(0, req.TokenLimit(p.opts.MaxTokens))}
	if err := llm.FileSupportOf("openai").CheckFiles(req.Conversation); err != nil {
		return out, err
	}
	out.Instructions = req.SystemText()
	if p.hasOutputMode(req) {
		out.Instructions = req.System
		out.Text = &responsesText{responsesFormat{Type: "json_schema", Name: req.Output.FormatName(), Schema: req.Output.Schema, Strict: req.Output.Strict}}
	}
	for _, spec := range req.Tools {
		schema, err := upstream.ParameterSchema(spec)
		if err != nil {
			return out, err
		}
		// Strict mode would restrict the schemas that tools may have.
		out.Tools = append(out.Tools, responsesTool{Type: "function", Name: spec.Name, Description: spec.Description, Parameters: schema})
	}
	for _, e := range req.Conversation {
		switch {
		case e.Result != nil:
			out.Input = append(out.Input, responsesItem{Type: "function_call_output", CallID: string(e.Result.Call), Output: &e.Result.Text})
		case e.Message == nil:
		case e.Message.Role == agentsvc.RoleAgent:
			out.Input = append(out.Input, encodeAgentItems(*e.Message)...)
		default:
			out.Input = append(out.Input, encodeUserItem(*e.Message))
		}
	}
	return out, nil
}

// encodeAgentItems returns the items for the model's message: its text and its tool calls.
func encodeAgentItems(m agentsvc.Message) []responsesItem {
	var items []responsesItem
	if text := upstream.PartsText(m.Parts...); text != "" {
		items = append(items, responsesItem{Role: "assistant", Content: text})
	}
	for _, call := range m.ToolCalls {
		// Calls are items of their own in this API, not parts of the assistant's message.
		arguments := string(call.Arguments)
		items = append(items, responsesItem{Type: "function_call", CallID: string(call.ID), Name: call.Name, Arguments: &arguments})
	}
	return items
}

// encodeUserItem returns the item for a user's message.
func encodeUserItem(m agentsvc.Message) responsesItem {
	if !upstream.HasFile(m.Parts) {
		return responsesItem{Role: "user", Content: upstream.PartsText(m.Parts...)}
	}
	var parts []responsesPart
	for _, part := range m.Parts {
		if part.File == nil {
			text := upstream.PartsText(part)
			parts = append(parts, responsesPart{Type: "input_text", Text: &text})
			continue
		}
		parts = append(parts, responsesPart{Type: "input_image", Detail: "auto", ImageURL: fileURL(*part.File)})
	}
	return responsesItem{Role: "user", Content: parts}
}

// responsesDecoder assembles the events of one response.
type responsesDecoder struct {
	*upstream.AnswerBuilder
	// callsByIndex holds the calls by the index of their item in the output.
	callsByIndex map[upstream.LenientInt]*upstream.PartialCall
	// refused reports that the model wrote a refusal.
	refused bool
	// endEvent is the type of the event that ended the response, "" before it.
	endEvent string
	// incompleteReason is the server's reason if endEvent is response.incomplete.
	incompleteReason string
}

// newResponsesDecoder returns a decoder that adds to a.
func newResponsesDecoder(a *upstream.AnswerBuilder) *responsesDecoder {
	return &responsesDecoder{AnswerBuilder: a, callsByIndex: map[upstream.LenientInt]*upstream.PartialCall{}}
}

// addEvent processes the next event and returns the chunks that can be shown at once, i.e. text. Events of other types,
// e.g. reasoning, are ignored.
func (r *responsesDecoder) addEvent(ev responsesEvent) ([]llm.Chunk, error) {
	switch ev.Type.Value {
	case "response.output_text.delta":
		return r.AddText(ev.Delta.Value)
	case "response.refusal.delta":
		r.refused = true
		return r.AddText(ev.Delta.Value)
	// A call begins with its id and name; its arguments follow as deltas with the same output index.
	case "response.output_item.added":
		item := ev.Item.Value
		if item.Type.Value != "function_call" {
			return nil, nil
		}
		call, err := r.StartCall(item.CallID.Value, item.Name.Value)
		r.callsByIndex[ev.OutputIndex] = call
		return nil, err
	case "response.function_call_arguments.delta":
		if call := r.callsByIndex[ev.OutputIndex]; call != nil {
			return nil, r.AppendArguments(call, ev.Delta.Value)
		}
		// Arguments of a call that never began.
		return nil, upstream.ErrMalformed
	// The last event carries the usage of the whole response.
	case "response.completed", "response.incomplete":
		end := ev.Response.Value
		r.endEvent, r.incompleteReason = ev.Type.Value, end.IncompleteDetails.Value.Reason.Value
		if u := end.Usage.Value; end.Usage.Valid {
			input := u.InputTokensDetails.Value
			r.SetUsage(int64(u.InputTokens), int64(u.OutputTokens), int64(input.CachedTokens), int64(input.CacheWriteTokens), int64(u.OutputTokensDetails.Value.ReasoningTokens))
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
