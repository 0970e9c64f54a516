package openai

import "stoa/agentsvc/llm/upstream"

// chatRequest is the body of a request.
type chatRequest struct {
	Model               string              `json:"model"`
	Stream              bool                `json:"stream"`
	StreamOptions       chatStreamOptions   `json:"stream_options"`
	Temperature         *float64            `json:"temperature,omitempty"`
	MaxTokens           int64               `json:"max_tokens,omitempty"`
	MaxCompletionTokens int64               `json:"max_completion_tokens,omitempty"`
	Tools               []chatTool          `json:"tools,omitempty"`
	ResponseFormat      *chatResponseFormat `json:"response_format,omitempty"`
	Messages            []chatMessage       `json:"messages"`
}

type chatStreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type chatTool struct {
	Type     string       `json:"type"` // "function"
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Parameters  map[string]any `json:"parameters,omitzero"`
}

type chatResponseFormat struct {
	Type       string         `json:"type"` // "json_schema"
	JSONSchema chatJSONSchema `json:"json_schema"`
}

type chatJSONSchema struct {
	Name   string `json:"name"`
	Schema any    `json:"schema"`
	Strict bool   `json:"strict"`
}

// chatMessage is a message of any role.
type chatMessage struct {
	Role string `json:"role"`
	// Content is a text or a list of chatPart, nil for none.
	Content    any        `json:"content,omitzero"`
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type chatPart struct {
	Type     string        `json:"type"` // "text" or "image_url"
	Text     *string       `json:"text,omitempty"`
	ImageURL *chatImageURL `json:"image_url,omitempty"`
}

type chatImageURL struct {
	URL string `json:"url"`
}

type chatCall struct {
	ID       string           `json:"id"`
	Type     string           `json:"type"` // "function"
	Function chatCallFunction `json:"function"`
}

type chatCallFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// chatEvent is an event of a streamed completion.
type chatEvent struct {
	Choices upstream.Lenient[[]chatChoice] `json:"choices"`
	Usage   upstream.Lenient[chatUsage]    `json:"usage"`
}

type chatChoice struct {
	Index        upstream.LenientInt         `json:"index"`
	Delta        upstream.Lenient[chatDelta] `json:"delta"`
	FinishReason upstream.Lenient[string]    `json:"finish_reason"`
}

type chatDelta struct {
	Content   upstream.Lenient[string]          `json:"content"`
	Refusal   upstream.Lenient[string]          `json:"refusal"`
	ToolCalls upstream.Lenient[[]chatCallPiece] `json:"tool_calls"`
}

// chatCallPiece is a piece of a tool call.
type chatCallPiece struct {
	Index    upstream.LenientInt                     `json:"index"`
	ID       upstream.Lenient[string]                `json:"id"`
	Function upstream.Lenient[chatCallFunctionPiece] `json:"function"`
}

type chatCallFunctionPiece struct {
	Name      upstream.Lenient[string] `json:"name"`
	Arguments upstream.Lenient[string] `json:"arguments"`
}

type chatUsage struct {
	PromptTokens        upstream.LenientInt `json:"prompt_tokens"`
	CompletionTokens    upstream.LenientInt `json:"completion_tokens"`
	PromptTokensDetails upstream.Lenient[struct {
		CachedTokens     upstream.LenientInt `json:"cached_tokens"`
		CacheWriteTokens upstream.LenientInt `json:"cache_write_tokens"`
	}] `json:"prompt_tokens_details"`
	CompletionTokensDetails upstream.Lenient[struct {
		ReasoningTokens upstream.LenientInt `json:"reasoning_tokens"`
	}] `json:"completion_tokens_details"`
}
