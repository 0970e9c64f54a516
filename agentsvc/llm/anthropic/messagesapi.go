package anthropic

import "stoa/agentsvc/llm/upstream"

// The messages of the protocol are types of this package. Those of the official client refer to every service of Anthropic,
// and all are registered when the program starts (docs/operations/size.md). These have what Stoa sends and reads. Servers of
// other vendors differ in details; a value of another type counts as missing.

// messagesRequest is the body of a request of the messages API.
type messagesRequest struct {
	Model        string           `json:"model"`
	MaxTokens    int64            `json:"max_tokens"`
	Stream       bool             `json:"stream"`
	Temperature  *float64         `json:"temperature,omitempty"`
	Thinking     *thinkingConfig  `json:"thinking,omitempty"`
	OutputConfig outputConfig     `json:"output_config,omitzero"`
	System       []contentBlock   `json:"system,omitempty"`
	Tools        []toolDefinition `json:"tools,omitempty"`
	Messages     []message        `json:"messages"`
}

type thinkingConfig struct {
	Type         string `json:"type"` // "enabled", "adaptive"
	BudgetTokens int64  `json:"budget_tokens,omitempty"`
}

type outputConfig struct {
	Effort string        `json:"effort,omitempty"`
	Format *outputFormat `json:"format,omitempty"`
}

type outputFormat struct {
	Type   string         `json:"type"` // "json_schema"
	Schema map[string]any `json:"schema"`
}

type toolDefinition struct {
	Name         string         `json:"name"`
	Description  string         `json:"description,omitempty"`
	InputSchema  map[string]any `json:"input_schema"`
	CacheControl *cacheControl  `json:"cache_control,omitempty"`
}

// cacheControl marks the end of what the vendor's prompt cache keeps.
type cacheControl struct {
	Type string `json:"type"` // "ephemeral"
}

type message struct {
	Role    string         `json:"role"` // "user", "assistant"
	Content []contentBlock `json:"content"`
}

// contentBlock is a block of a message; its type says which fields it has. A pointer is a field that is sent even if it is
// empty.
type contentBlock struct {
	Type         string        `json:"type"`
	Text         string        `json:"text,omitempty"` // text
	CacheControl *cacheControl `json:"cache_control,omitempty"`
	Source       *imageSource  `json:"source,omitempty"` // image
	Thinking     *string       `json:"thinking,omitempty"`
	Signature    *string       `json:"signature,omitempty"` // thinking
	Data         string        `json:"data,omitempty"`      // redacted_thinking
	ID           string        `json:"id,omitempty"`        // tool_use
	Name         string        `json:"name,omitempty"`      // tool_use
	// Input is the arguments of a tool_use, an empty map if there are none.
	Input     map[string]any `json:"input,omitzero"`
	ToolUseID string         `json:"tool_use_id,omitempty"` // tool_result
	IsError   *bool          `json:"is_error,omitempty"`    // tool_result
	Content   []contentBlock `json:"content,omitempty"`     // tool_result
}

type imageSource struct {
	Type      string `json:"type"` // "base64"
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
}

// messagesEvent is an event of a streamed message. Which fields it has depends on its type.
type messagesEvent struct {
	Type    upstream.Lenient[string] `json:"type"`
	Index   upstream.LenientInt      `json:"index"`
	Message upstream.Lenient[struct {
		Usage upstream.Lenient[messagesUsage] `json:"usage"`
	}] `json:"message"`
	ContentBlock upstream.Lenient[startedBlock]  `json:"content_block"`
	Delta        upstream.Lenient[messagesDelta] `json:"delta"`
	Usage        upstream.Lenient[messagesUsage] `json:"usage"`
}

// startedBlock is the beginning of a block of content.
type startedBlock struct {
	Type      upstream.Lenient[string] `json:"type"` // "text", "tool_use", "thinking", "redacted_thinking"
	Text      upstream.Lenient[string] `json:"text"`
	ID        upstream.Lenient[string] `json:"id"`
	Name      upstream.Lenient[string] `json:"name"`
	Thinking  upstream.Lenient[string] `json:"thinking"`
	Signature upstream.Lenient[string] `json:"signature"`
	Data      upstream.Lenient[string] `json:"data"`
}

// messagesDelta is a piece of a block, or in message_delta the end of the message.
type messagesDelta struct {
	Type        upstream.Lenient[string] `json:"type"` // "text_delta", "input_json_delta", "thinking_delta", "signature_delta"
	Text        upstream.Lenient[string] `json:"text"`
	PartialJSON upstream.Lenient[string] `json:"partial_json"`
	Thinking    upstream.Lenient[string] `json:"thinking"`
	Signature   upstream.Lenient[string] `json:"signature"`
	StopReason  upstream.Lenient[string] `json:"stop_reason"`
}

type messagesUsage struct {
	InputTokens              upstream.LenientInt `json:"input_tokens"`
	CacheReadInputTokens     upstream.LenientInt `json:"cache_read_input_tokens"`
	CacheCreationInputTokens upstream.LenientInt `json:"cache_creation_input_tokens"`
	OutputTokens             upstream.LenientInt `json:"output_tokens"`
	OutputTokensDetails      upstream.Lenient[struct {
		ThinkingTokens upstream.LenientInt `json:"thinking_tokens"`
	}] `json:"output_tokens_details"`
}
