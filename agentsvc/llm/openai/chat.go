package openai

import (
	"encoding/base64"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// encodeChatRequest returns the parameters of a chat completion for req. An error is an error with [agentsvc.CodeInvalid].
func (p *Provider) encodeChatRequest(req llm.Request) (openai.ChatCompletionNewParams, error) {
	out := openai.ChatCompletionNewParams{
		Model: p.opts.Model,
		// Without it, a stream has no usage.
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	// Checked before anything is sent, so that the error names the file.
	if err := llm.FileSupportOf("openai").CheckFiles(req.Conversation); err != nil {
		return out, err
	}
	if p.opts.Temperature != nil {
		out.Temperature = openai.Float(*p.opts.Temperature)
	}
	if n := req.TokenLimit(p.opts.MaxTokens); n > 0 && isOwnModel(p.opts.Model) {
		// OpenAI's reasoning models refuse max_tokens; the servers of many other models know only that.
		out.MaxCompletionTokens = openai.Int(n)
	} else if n > 0 {
		out.MaxTokens = openai.Int(n)
	}
	for _, spec := range req.Tools {
		fn, err := encodeFunction(spec)
		if err != nil {
			return out, err
		}
		out.Tools = append(out.Tools, openai.ChatCompletionFunctionTool(fn))
	}
	system := req.SystemText()
	if p.hasOutputMode(req) {
		system = req.System
		out.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
			Name: req.Output.FormatName(), Schema: req.Output.Schema, Strict: openai.Bool(req.Output.Strict),
		}}
	}
	// The system prompt is the first message.
	if system != "" {
		out.Messages = append(out.Messages, openai.SystemMessage(system))
	}
	for _, e := range req.Conversation {
		switch {
		case e.Result != nil:
			out.Messages = append(out.Messages, openai.ToolMessage(e.Result.Text, string(e.Result.Call)))
		// An entry without message and result has nothing to send.
		case e.Message == nil:
		case e.Message.Role == agentsvc.RoleAgent:
			out.Messages = append(out.Messages, encodeAgentMessage(*e.Message)...)
		default:
			out.Messages = append(out.Messages, encodeUserMessage(*e.Message))
		}
	}
	return out, nil
}

// encodeFunction returns a tool definition. A tool without parameters is sent without a schema.
func encodeFunction(spec agentsvc.ToolSpec) (shared.FunctionDefinitionParam, error) {
	fn := shared.FunctionDefinitionParam{Name: spec.Name}
	if spec.Description != "" {
		fn.Description = openai.String(spec.Description)
	}
	var err error
	if len(spec.Parameters) > 0 {
		fn.Parameters, err = upstream.ParameterSchema(spec)
	}
	return fn, err
}

// encodeAgentMessage returns the model's message, or nothing if it has neither text nor calls. Files that the model
// made are left out: the API accepts none in assistant messages.
func encodeAgentMessage(m agentsvc.Message) []openai.ChatCompletionMessageParamUnion {
	var msg openai.ChatCompletionAssistantMessageParam
	if text := upstream.PartsText(m.Parts...); text != "" {
		msg.Content.OfString = openai.String(text)
	}
	for _, call := range m.ToolCalls {
		msg.ToolCalls = append(msg.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
				ID: string(call.ID),
				Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name: call.Name, Arguments: string(call.Arguments),
				},
			},
		})
	}
	// Nothing to send, e.g. a message that had files only.
	if !msg.Content.OfString.Valid() && len(msg.ToolCalls) == 0 {
		return nil
	}
	return []openai.ChatCompletionMessageParamUnion{{OfAssistant: &msg}}
}

// encodeUserMessage returns a user's message. Without files it is sent as plain text, since some compatible servers do
// not accept a list of parts.
func encodeUserMessage(m agentsvc.Message) openai.ChatCompletionMessageParamUnion {
	if !upstream.HasFile(m.Parts) {
		return openai.UserMessage(upstream.PartsText(m.Parts...))
	}
	var parts []openai.ChatCompletionContentPartUnionParam
	for _, part := range m.Parts {
		if part.File == nil {
			parts = append(parts, openai.TextContentPart(upstream.PartsText(part)))
			continue
		}
		// The only files that FileSupport accepts here are images.
		parts = append(parts, openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: fileURL(*part.File)}))
	}
	return openai.UserMessage(parts)
}

// fileURL returns the file's address, or its bytes as a data URL (RFC 2397).
func fileURL(f agentsvc.File) string {
	if f.URI != "" {
		return f.URI
	}
	return "data:" + llm.NormalizeMediaType(f.MediaType) + ";base64," + base64.StdEncoding.EncodeToString(f.Bytes)
}

// chatDecoder assembles the events of one completion.
type chatDecoder struct {
	*upstream.AnswerBuilder
	// callsByIndex holds the last call of each index, to which pieces are appended.
	callsByIndex map[int64]*upstream.PartialCall
	// refused reports that the model wrote a refusal, which arrives in a field of its own.
	refused bool
	// finishReason is "" until the server sends one.
	finishReason string
}

// newChatDecoder returns a decoder that adds to a.
func newChatDecoder(a *upstream.AnswerBuilder) *chatDecoder {
	return &chatDecoder{AnswerBuilder: a, callsByIndex: map[int64]*upstream.PartialCall{}}
}

// addEvent processes the next event and returns the chunks that can be shown at once, i.e. text. Only the first choice
// is read.
func (d *chatDecoder) addEvent(ev openai.ChatCompletionChunk) ([]llm.Chunk, error) {
	// With IncludeUsage, the last event has the usage and no choices.
	if u := ev.Usage; ev.JSON.Usage.Valid() {
		d.SetUsage(u.PromptTokens, u.CompletionTokens, u.PromptTokensDetails.CachedTokens, u.PromptTokensDetails.CacheWriteTokens, u.CompletionTokensDetails.ReasoningTokens)
	}
	var out []llm.Chunk
	for _, choice := range ev.Choices {
		// The request asks for one choice; servers that send more are not followed.
		if choice.Index != 0 {
			continue
		}
		// A refusal is shown like text.
		for _, piece := range []string{choice.Delta.Content, choice.Delta.Refusal} {
			chunks, err := d.AddText(piece)
			if err != nil {
				return nil, err
			}
			out = append(out, chunks...)
		}
		// A refusal may come without the finish reason content_filter.
		d.refused = d.refused || choice.Delta.Refusal != ""
		for _, piece := range choice.Delta.ToolCalls {
			if err := d.addCallPiece(piece); err != nil {
				return nil, err
			}
		}
		// Sent with the last piece of the choice, before the usage.
		if choice.FinishReason != "" {
			d.finishReason = choice.FinishReason
		}
	}
	return out, nil
}

// addCallPiece processes a piece of a tool call. Some servers give parallel calls the same index: a new id then starts
// a new call.
func (d *chatDecoder) addCallPiece(piece openai.ChatCompletionChunkChoiceDeltaToolCall) error {
	c := d.callsByIndex[piece.Index]
	// The index has no call yet, or a piece with another id: a new call.
	if c == nil || (piece.ID != "" && c.ID != "" && piece.ID != c.ID) {
		// Id and name are set below, from this piece or a later one.
		started, err := d.StartCall("", "")
		if err != nil {
			return err
		}
		c = started
		d.callsByIndex[piece.Index] = c
	}
	if piece.ID != "" {
		c.ID = piece.ID
	}
	// Only the first name counts, in case a server repeats it.
	if c.Name == "" {
		c.Name = piece.Function.Name
	}
	if err := d.AddBufferedBytes(len(piece.ID) + len(piece.Function.Name)); err != nil {
		return err
	}
	return d.AppendArguments(c, piece.Function.Arguments)
}

// finishAnswer returns the last chunks of a completion. Without a finish reason the stream ended early.
func (d *chatDecoder) finishAnswer() ([]llm.Chunk, error) {
	switch {
	case d.finishReason == "":
		return nil, upstream.ErrBrokeOff
	case d.finishReason == "length":
		return d.Finish(llm.StopLength)
	case d.finishReason == "content_filter", d.refused:
		return d.Finish(llm.StopRefusal)
	}
	return d.Finish(llm.StopEnd)
}
