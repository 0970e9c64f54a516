package openai

import (
	"encoding/base64"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/upstream"
)

// chatParams puts req into the words of chat completions. An error is an [agentsvc.InvalidError].
func (p *Provider) chatParams(req llm.Request) (openai.ChatCompletionNewParams, error) {
	out := openai.ChatCompletionNewParams{
		Model:         p.opts.Model,
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	if err := llm.FilesOf("openai").Check(req.Conversation); err != nil {
		return out, err
	}
	if p.opts.Temperature != nil {
		out.Temperature = openai.Float(*p.opts.Temperature)
	}
	if n := req.Most(p.opts.MaxTokens); n > 0 && p.opts.BaseURL == BaseURL {
		// OpenAI's reasoning models refuse max_tokens; many compatible servers know nothing else.
		out.MaxCompletionTokens = openai.Int(n)
	} else if n > 0 {
		out.MaxTokens = openai.Int(n)
	}
	for _, spec := range req.Tools {
		fn, err := function(spec)
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
			out.Messages = append(out.Messages, agentMessages(*e.Message)...)
		default:
			out.Messages = append(out.Messages, userMessage(*e.Message))
		}
	}
	return out, nil
}

func function(spec agentsvc.ToolSpec) (shared.FunctionDefinitionParam, error) {
	fn := shared.FunctionDefinitionParam{Name: spec.Name}
	if spec.Description != "" {
		fn.Description = openai.String(spec.Description)
	}
	var err error
	if len(spec.Parameters) > 0 {
		fn.Parameters, err = upstream.Parameters(spec)
	}
	return fn, err
}

// agentMessages returns what the model said, or nothing if it said nothing. Files that it made are left out: the API
// takes none in its own messages.
func agentMessages(m agentsvc.Message) []openai.ChatCompletionMessageParamUnion {
	var msg openai.ChatCompletionAssistantMessageParam
	if text := upstream.Text(m.Parts...); text != "" {
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

func userMessage(m agentsvc.Message) openai.ChatCompletionMessageParamUnion {
	if !upstream.HasFile(m.Parts) {
		return openai.UserMessage(upstream.Text(m.Parts...))
	}
	var parts []openai.ChatCompletionContentPartUnionParam
	for _, part := range m.Parts {
		if part.File == nil {
			parts = append(parts, openai.TextContentPart(upstream.Text(part)))
			continue
		}
		parts = append(parts, openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: address(*part.File)}))
	}
	return openai.UserMessage(parts)
}

// address is where the model is to look: a file's own address, or its bytes as a data URL (RFC 2397).
func address(f agentsvc.File) string {
	if f.URI != "" {
		return f.URI
	}
	return "data:" + llm.MediaType(f.MediaType) + ";base64," + base64.StdEncoding.EncodeToString(f.Bytes)
}

// chatAnswer puts the pieces of one completion together.
type chatAnswer struct {
	*upstream.Answer
	current map[int64]*upstream.Call // by the index that the server gives
	refused bool
	finish  string
}

func newChatAnswer(a *upstream.Answer) *chatAnswer {
	return &chatAnswer{Answer: a, current: map[int64]*upstream.Call{}}
}

// add takes in the next event and returns what can be shown at once: text.
func (a *chatAnswer) add(ev openai.ChatCompletionChunk) ([]llm.Chunk, error) {
	if u := ev.Usage; ev.JSON.Usage.Valid() {
		a.Count(u.PromptTokens, u.CompletionTokens, u.PromptTokensDetails.CachedTokens, u.PromptTokensDetails.CacheWriteTokens, u.CompletionTokensDetails.ReasoningTokens)
	}
	var out []llm.Chunk
	for _, choice := range ev.Choices {
		if choice.Index != 0 {
			continue
		}
		for _, piece := range []string{choice.Delta.Content, choice.Delta.Refusal} {
			chunks, err := a.Text(piece)
			if err != nil {
				return nil, err
			}
			out = append(out, chunks...)
		}
		a.refused = a.refused || choice.Delta.Refusal != ""
		for _, piece := range choice.Delta.ToolCalls {
			if err := a.piece(piece); err != nil {
				return nil, err
			}
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
	return out, nil
}

// piece takes in a piece of a tool call. Some servers give parallel calls one index: a new id then starts a new call.
func (a *chatAnswer) piece(piece openai.ChatCompletionChunkChoiceDeltaToolCall) error {
	c := a.current[piece.Index]
	if c == nil || (piece.ID != "" && c.ID != "" && piece.ID != c.ID) {
		started, err := a.Call("", "")
		if err != nil {
			return err
		}
		c = started
		a.current[piece.Index] = c
	}
	if piece.ID != "" {
		c.ID = piece.ID
	}
	if c.Name == "" {
		c.Name = piece.Function.Name
	}
	if err := a.Hold(len(piece.ID) + len(piece.Function.Name)); err != nil {
		return err
	}
	return a.Arguments(c, piece.Function.Arguments)
}

// end returns the last chunks of an answer that came to its end.
func (a *chatAnswer) end() ([]llm.Chunk, error) {
	switch {
	case a.finish == "":
		return nil, upstream.ErrBrokeOff
	case a.finish == "length":
		return a.End(llm.StopLength)
	case a.finish == "content_filter", a.refused:
		return a.End(llm.StopRefusal)
	}
	return a.End(llm.StopEnd)
}
