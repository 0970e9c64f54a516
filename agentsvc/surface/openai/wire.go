package openai

import "encoding/json"

// Request types. Members that tune a model (temperature and the like) are not listed and so ignored: the agent's
// configuration decides. Members that would change the kind of answer are listed to be refused (checkSupported).
type (
	// chatRequest is the body of chat/completions. Model is the agent's name.
	chatRequest struct {
		Model         string    `json:"model"`
		Messages      []message `json:"messages"`
		Stream        bool      `json:"stream"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
		clientFields

		N              *int              `json:"n"`
		Tools          []json.RawMessage `json:"tools"`
		Functions      []json.RawMessage `json:"functions"`
		Modalities     []string          `json:"modalities"`
		Logprobs       bool              `json:"logprobs"`
		ResponseFormat struct {
			Type string `json:"type"`
		} `json:"response_format"`
	}
	// clientFields are stored with the message as its metadata.
	clientFields struct {
		User             string         `json:"user"`
		SafetyIdentifier string         `json:"safety_identifier"`
		Metadata         map[string]any `json:"metadata"`
	}
	message struct {
		Role string `json:"role"`
		// Content is a text or a list of parts.
		Content json.RawMessage `json:"content"`
		Refusal string          `json:"refusal"`
		// ToolCalls and ToolCallID may only be about approvals, see approval.go.
		ToolCalls []struct {
			ID string `json:"id"`
		} `json:"tool_calls"`
		ToolCallID string `json:"tool_call_id"`
	}
	// part is a part of a message; Type says which of the other members is used. ImageURL and File.Data may be data
	// URLs.
	part struct {
		Type     string  `json:"type"`
		Text     *string `json:"text"`
		Refusal  string  `json:"refusal"`
		ImageURL struct {
			URL string `json:"url"`
		} `json:"image_url"`
		InputAudio inputAudio `json:"input_audio"`
		File       struct {
			Data string `json:"file_data"`
			Name string `json:"filename"`
		} `json:"file"`
	}
	inputAudio struct {
		Data   string `json:"data"`
		Format string `json:"format"`
	}
)

// Response types, as the official client libraries decode them. Members without omitempty are required there, also
// when they are null.
type (
	// completion is a whole answer (object chat.completion) or a chunk of a stream (chat.completion.chunk). ID is
	// the task's ID, Created is in seconds since 1970. Usage is untyped because chunks of a stream with
	// include_usage have it as null.
	completion struct {
		ID      string   `json:"id"`
		Object  string   `json:"object"`
		Created int64    `json:"created"`
		Model   string   `json:"model"`
		Choices []choice `json:"choices"`
		Usage   any      `json:"usage,omitempty"`
	}
	// choice is the only choice: Message in a whole answer, Delta in a chunk. Finish is null until the last chunk.
	choice struct {
		Index    int               `json:"index"`
		Message  *assistantMessage `json:"message,omitempty"`
		Delta    *delta            `json:"delta,omitempty"`
		Logprobs *string           `json:"logprobs"`
		Finish   *string           `json:"finish_reason"`
	}
	// assistantMessage is the message of a whole answer. Refusal is always null: a refusal is content with the
	// finish reason content_filter. ToolCalls are the approvals that the task waits for.
	assistantMessage struct {
		Role      string     `json:"role"`
		Content   string     `json:"content"`
		Refusal   *string    `json:"refusal"`
		ToolCalls []toolCall `json:"tool_calls,omitempty"`
		Metadata  *citations `json:"metadata,omitempty"`
	}
	// citations are the sources of an answer, as the metadata of a message has them in other protocols.
	citations struct {
		Citations any `json:"citations"`
	}
	// delta is new text. Content is a pointer, because the first chunk has an empty text and the last one none.
	delta struct {
		Role      string     `json:"role,omitempty"`
		Content   *string    `json:"content,omitempty"`
		ToolCalls []toolCall `json:"tool_calls,omitempty"`
		Metadata  *citations `json:"metadata,omitempty"`
	}
	// toolCall is a call of approvalFunction. Index is present in chunks only.
	toolCall struct {
		Index    *int         `json:"index,omitempty"`
		ID       string       `json:"id"`
		Type     string       `json:"type"`
		Function functionCall `json:"function"`
	}
	// functionCall has its arguments as JSON text.
	functionCall struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	// approvalArguments are the arguments of approvalFunction: the tool call that waits. Agent is the path of the nested
	// agent that makes the call.
	approvalArguments struct {
		TaskID    string          `json:"task_id"`
		CallID    string          `json:"call_id"`
		Agent     string          `json:"agent,omitempty"`
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
		Prompt    string          `json:"prompt"`
	}
	// usage holds the tokens of all model calls of the turn.
	usage struct {
		Prompt        int64             `json:"prompt_tokens"`
		Completion    int64             `json:"completion_tokens"`
		Total         int64             `json:"total_tokens"`
		PromptDetails promptDetails     `json:"prompt_tokens_details"`
		Details       completionDetails `json:"completion_tokens_details"`
	}
	promptDetails struct {
		Cached int64 `json:"cached_tokens"`
	}
	completionDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	}
	modelList struct {
		Object string        `json:"object"`
		Data   []modelRecord `json:"data"`
	}
	// modelRecord is a Model object. OwnedBy is the app's name; Created is in seconds since 1970.
	modelRecord struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	errorBody struct {
		Error errorRecord `json:"error"`
	}
	// errorRecord is an error in OpenAI's form; Details is an addition of Stoa with the request ID.
	errorRecord struct {
		Message string         `json:"message"`
		Type    string         `json:"type"`
		Param   *string        `json:"param"`
		Code    string         `json:"code"`
		Details map[string]any `json:"details,omitempty"`
	}
)
