package openai

import "stoa/agentsvc/llm/upstream"

// responsesRequest is the body of a request of the responses API.
type responsesRequest struct {
	Model           string          `json:"model"`
	Stream          bool            `json:"stream"`
	Store           bool            `json:"store"`
	Temperature     *float64        `json:"temperature,omitempty"`
	MaxOutputTokens int64           `json:"max_output_tokens,omitempty"`
	Instructions    string          `json:"instructions,omitempty"`
	Text            *responsesText  `json:"text,omitempty"`
	Tools           []responsesTool `json:"tools,omitempty"`
	Input           []responsesItem `json:"input,omitempty"`
}

type responsesText struct {
	Format responsesFormat `json:"format"`
}

type responsesFormat struct {
	Type   string         `json:"type"` // "json_schema"
	Name   string         `json:"name"`
	Schema map[string]any `json:"schema"`
	Strict bool           `json:"strict"`
}

type responsesTool struct {
	Type        string         `json:"type"` // "function"
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Parameters  map[string]any `json:"parameters"`
	Strict      bool           `json:"strict"`
}

// responsesItem is a message (without a type), a call of a function or its result. An empty text is sent: its pointer is not
// nil.
type responsesItem struct {
	Type string `json:"type,omitempty"` // "function_call", "function_call_output"
	Role string `json:"role,omitempty"`
	// Content is a text or a list of responsesPart, nil where there is none.
	Content   any     `json:"content,omitzero"`
	CallID    string  `json:"call_id,omitempty"`
	Name      string  `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
	Output    *string `json:"output,omitempty"`
}

type responsesPart struct {
	Type     string  `json:"type"` // "input_text", "input_image"
	Text     *string `json:"text,omitempty"`
	Detail   string  `json:"detail,omitempty"`
	ImageURL string  `json:"image_url,omitempty"`
}

// responsesEvent is an event of a streamed response. Which fields it has depends on its type.
type responsesEvent struct {
	Type        upstream.Lenient[string]            `json:"type"`
	Delta       upstream.Lenient[string]            `json:"delta"`
	OutputIndex upstream.LenientInt                 `json:"output_index"`
	Item        upstream.Lenient[responsesCallItem] `json:"item"`
	Response    upstream.Lenient[responsesEnd]      `json:"response"`
}

type responsesCallItem struct {
	Type   upstream.Lenient[string] `json:"type"`
	CallID upstream.Lenient[string] `json:"call_id"`
	Name   upstream.Lenient[string] `json:"name"`
}

// responsesEnd is what is read of a whole response.
type responsesEnd struct {
	IncompleteDetails upstream.Lenient[struct {
		Reason upstream.Lenient[string] `json:"reason"`
	}] `json:"incomplete_details"`
	Usage upstream.Lenient[responsesUsage] `json:"usage"`
}

type responsesUsage struct {
	InputTokens        upstream.LenientInt `json:"input_tokens"`
	OutputTokens       upstream.LenientInt `json:"output_tokens"`
	InputTokensDetails upstream.Lenient[struct {
		CachedTokens     upstream.LenientInt `json:"cached_tokens"`
		CacheWriteTokens upstream.LenientInt `json:"cache_write_tokens"`
	}] `json:"input_tokens_details"`
	OutputTokensDetails upstream.Lenient[struct {
		ReasoningTokens upstream.LenientInt `json:"reasoning_tokens"`
	}] `json:"output_tokens_details"`
}
