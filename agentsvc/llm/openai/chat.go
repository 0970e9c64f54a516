package openai

import (
	"encoding/base64"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// encodeChatRequest puts req into the words of chat completions. An error is an [agentsvc.InvalidError].
func (p *Provider) encodeChatRequest(req llm.Request) (openai.ChatCompletionNewParams, error) {
	out := openai.ChatCompletionNewParams{
		Model:         p.opts.Model,
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	if err := llm.FileSupportOf("openai").CheckFiles(req.Conversation); err != nil {
		return out, err
	}
	if p.opts.Temperature != nil {
		out.Temperature = openai.Float(*p.opts.Temperature)
	}
	if n := req.TokenLimit(p.opts.MaxTokens); n > 0 && p.opts.BaseURL == BaseURL {
		// OpenAI's reasoning models refuse max_tokens; many compatible servers know nothing else.
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
	if req.System != "" {
		out.Messages = append(out.Messages, openai.SystemMessage(req.System))
	}
	for _, e := range req.Conversation {
		switch {
		case e.Result != nil:
			out.Messages = append(out.Messages, openai.ToolMessage(e.Result.Text, string(e.Result.Call)))
		case e.Message == nil:
		case e.Message.Role == agentsvc.RoleAgent:
			out.Messages = append(out.Messages, encodeAgentMessage(*e.Message)...)
		default:
			out.Messages = append(out.Messages, encodeUserMessage(*e.Message))
		}
	}
	return out, nil
}

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

// encodeAgentMessage returns what the model said, or nothing if it said nothing. Files that it made are left out: the API
// takes none in its own messages.
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
	if !msg.Content.OfString.Valid() && len(msg.ToolCalls) == 0 {
		return nil
	}
	return []openai.ChatCompletionMessageParamUnion{{OfAssistant: &msg}}
}

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
		parts = append(parts, openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: fileURL(*part.File)}))
	}
	return openai.UserMessage(parts)
}

// fileURL is where the model is to look: a file's own address, or its bytes as a data URL (RFC 2397).
func fileURL(f agentsvc.File) string {
	if f.URI != "" {
		return f.URI
	}
	return "data:" + llm.NormalizeMediaType(f.MediaType) + ";base64," + base64.StdEncoding.EncodeToString(f.Bytes)
}

// chatDecoder puts the pieces of one completion together.
type chatDecoder struct {
	*upstream.AnswerBuilder
	callsByIndex map[int64]*upstream.PartialCall // by the index that the server gives
	refused      bool
	finishReason string
}

func newChatDecoder(a *upstream.AnswerBuilder) *chatDecoder {
	return &chatDecoder{AnswerBuilder: a, callsByIndex: map[int64]*upstream.PartialCall{}}
}

// addEvent takes in the next event and returns what can be shown at once: text.
func (a *chatDecoder) addEvent(ev openai.ChatCompletionChunk) ([]llm.Chunk, error) {
	if u := ev.Usage; ev.JSON.Usage.Valid() {
		a.SetUsage(u.PromptTokens, u.CompletionTokens, u.PromptTokensDetails.CachedTokens, u.PromptTokensDetails.CacheWriteTokens, u.CompletionTokensDetails.ReasoningTokens)
	}
	var out []llm.Chunk
	for _, choice := range ev.Choices {
		if choice.Index != 0 {
			continue
		}
		for _, piece := range []string{choice.Delta.Content, choice.Delta.Refusal} {
			chunks, err := a.AddText(piece)
			if err != nil {
				return nil, err
			}
			out = append(out, chunks...)
		}
		a.refused = a.refused || choice.Delta.Refusal != ""
		for _, piece := range choice.Delta.ToolCalls {
			if err := a.addCallPiece(piece); err != nil {
				return nil, err
			}
		}
		if choice.FinishReason != "" {
			a.finishReason = choice.FinishReason
		}
	}
	return out, nil
}

// addCallPiece takes in a piece of a tool call. Some servers give parallel calls one index: a new id then starts a new call.
func (a *chatDecoder) addCallPiece(piece openai.ChatCompletionChunkChoiceDeltaToolCall) error {
	c := a.callsByIndex[piece.Index]
	if c == nil || (piece.ID != "" && c.ID != "" && piece.ID != c.ID) {
		started, err := a.StartCall("", "")
		if err != nil {
			return err
		}
		c = started
		a.callsByIndex[piece.Index] = c
	}
	if piece.ID != "" {
		c.ID = piece.ID
	}
	if c.Name == "" {
		c.Name = piece.Function.Name
	}
	if err := a.AddBufferedBytes(len(piece.ID) + len(piece.Function.Name)); err != nil {
		return err
	}
	return a.AppendArguments(c, piece.Function.Arguments)
}

// finishAnswer returns the last chunks of an answer that came to its end.
func (a *chatDecoder) finishAnswer() ([]llm.Chunk, error) {
	switch {
	case a.finishReason == "":
		return nil, upstream.ErrBrokeOff
	case a.finishReason == "length":
		return a.Finish(llm.StopLength)
	case a.finishReason == "content_filter", a.refused:
		return a.Finish(llm.StopRefusal)
	}
	return a.Finish(llm.StopEnd)
}
