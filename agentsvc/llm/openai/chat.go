package openai

import (
	"encoding/base64"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// encodeChatRequest returns the body of a chat completion for req. An error is an error with [agentsvc.CodeInvalid].
func (p *Provider) encodeChatRequest(req llm.Request) (chatRequest, error) {
	out := chatRequest{
		Model: p.opts.Model, Temperature: p.opts.Temperature, Stream: true,
		// Without it, a stream has no usage.
		StreamOptions: chatStreamOptions{IncludeUsage: true},
	}
	// Checked before anything is sent, so that the error names the file.
	if err := llm.FileSupportOf("openai").CheckFiles(req.Conversation); err != nil {
		return out, err
	}
	if n := req.TokenLimit(p.opts.MaxTokens); n > 0 && isOwnModel(p.opts.Model) {
		// OpenAI's reasoning models refuse max_tokens; the servers of many other models know only that.
		out.MaxCompletionTokens = n
	} else if n > 0 {
		out.MaxTokens = n
	}
	for _, spec := range req.Tools {
		fn, err := encodeFunction(spec)
		if err != nil {
			return out, err
		}
		out.Tools = append(out.Tools, chatTool{Type: "function", Function: fn})
	}
	system := req.SystemText()
	if p.hasOutputMode(req) {
		system = req.System
		out.ResponseFormat = &chatResponseFormat{Type: "json_schema", JSONSchema: chatJSONSchema{
			Name: req.Output.FormatName(), Schema: req.Output.Schema, Strict: req.Output.Strict,
		}}
	}
	// The system prompt is the first message.
	if system != "" {
		out.Messages = append(out.Messages, chatMessage{Role: "system", Content: system})
	}
	for _, e := range req.Conversation {
		switch {
		case e.Result != nil:
			out.Messages = append(out.Messages, chatMessage{Role: "tool", Content: e.Result.Text, ToolCallID: string(e.Result.Call)})
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
func encodeFunction(spec agentsvc.ToolSpec) (chatFunction, error) {
	fn := chatFunction{Name: spec.Name, Description: spec.Description}
	var err error
	if len(spec.Parameters) > 0 {
		fn.Parameters, err = upstream.ParameterSchema(spec)
	}
	return fn, err
}

// encodeAgentMessage returns the model's message, or nothing if it has neither text nor calls. Files that the model
// made are left out: the API accepts none in assistant messages.
func encodeAgentMessage(m agentsvc.Message) []chatMessage {
	msg := chatMessage{Role: "assistant"}
	if text := upstream.PartsText(m.Parts...); text != "" {
		msg.Content = text
	}
	for _, call := range m.ToolCalls {
		msg.ToolCalls = append(msg.ToolCalls, chatCall{
			ID: string(call.ID), Type: "function", Function: chatCallFunction{Name: call.Name, Arguments: string(call.Arguments)},
		})
	}
	// Nothing to send, e.g. a message that had files only.
	if msg.Content == nil && len(msg.ToolCalls) == 0 {
		return nil
	}
	return []chatMessage{msg}
}

// encodeUserMessage returns a user's message. Without files it is sent as plain text, since some compatible servers do
// not accept a list of parts.
func encodeUserMessage(m agentsvc.Message) chatMessage {
	if !upstream.HasFile(m.Parts) {
		return chatMessage{Role: "user", Content: upstream.PartsText(m.Parts...)}
	}
	var parts []chatPart
	for _, part := range m.Parts {
		if part.File == nil {
			text := upstream.PartsText(part)
			parts = append(parts, chatPart{Type: "text", Text: &text})
			continue
		}
		// The only files that FileSupport accepts here are images.
		parts = append(parts, chatPart{Type: "image_url", ImageURL: &chatImageURL{URL: fileURL(*part.File)}})
	}
	return chatMessage{Role: "user", Content: parts}
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
	callsByIndex map[upstream.LenientInt]*upstream.PartialCall
	// refused reports that the model wrote a refusal, which arrives in a field of its own.
	refused bool
	// finishReason is "" until the server sends one.
	finishReason string
}

// newChatDecoder returns a decoder that adds to a.
func newChatDecoder(a *upstream.AnswerBuilder) *chatDecoder {
	return &chatDecoder{AnswerBuilder: a, callsByIndex: map[upstream.LenientInt]*upstream.PartialCall{}}
}

// addEvent processes the next event and returns the chunks that can be shown at once, i.e. text. Only the first choice
// is read.
func (d *chatDecoder) addEvent(ev chatEvent) ([]llm.Chunk, error) {
	// With IncludeUsage, the last event has the usage and no choices.
	if u := ev.Usage.Value; ev.Usage.Valid {
		prompt := u.PromptTokensDetails.Value
		d.SetUsage(int64(u.PromptTokens), int64(u.CompletionTokens), int64(prompt.CachedTokens), int64(prompt.CacheWriteTokens), int64(u.CompletionTokensDetails.Value.ReasoningTokens))
	}
	var out []llm.Chunk
	for _, choice := range ev.Choices.Value {
		// The request asks for one choice; servers that send more are not followed.
		if choice.Index != 0 {
			continue
		}
		delta := choice.Delta.Value
		// A refusal is shown like text.
		for _, piece := range []string{delta.Content.Value, delta.Refusal.Value} {
			chunks, err := d.AddText(piece)
			if err != nil {
				return nil, err
			}
			out = append(out, chunks...)
		}
		// A refusal may come without the finish reason content_filter.
		d.refused = d.refused || delta.Refusal.Value != ""
		for _, piece := range delta.ToolCalls.Value {
			if err := d.addCallPiece(piece); err != nil {
				return nil, err
			}
		}
		// Sent with the last piece of the choice, before the usage.
		if choice.FinishReason.Value != "" {
			d.finishReason = choice.FinishReason.Value
		}
	}
	return out, nil
}

// addCallPiece processes a piece of a tool call. Some servers give parallel calls the same index: a new id then starts
// a new call.
func (d *chatDecoder) addCallPiece(piece chatCallPiece) error {
	c, id, function := d.callsByIndex[piece.Index], piece.ID.Value, piece.Function.Value
	// The index has no call yet, or a piece with another id: a new call.
	if c == nil || (id != "" && c.ID != "" && id != c.ID) {
		// Id and name are set below, from this piece or a later one.
		started, err := d.StartCall("", "")
		if err != nil {
			return err
		}
		c = started
		d.callsByIndex[piece.Index] = c
	}
	if id != "" {
		c.ID = id
	}
	// Only the first name counts, in case a server repeats it.
	if c.Name == "" {
		c.Name = function.Name.Value
	}
	if err := d.AddBufferedBytes(len(id) + len(function.Name.Value)); err != nil {
		return err
	}
	return d.AppendArguments(c, function.Arguments.Value)
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
