package openai

import "encoding/json"

// What comes in. What tunes a model (temperature and the like) is the agent's own affair and passed over.
type (
	chatRequest struct {
		Model         string    `json:"model"`
		Messages      []message `json:"messages"`
		Stream        bool      `json:"stream"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
		User             string         `json:"user"`
		SafetyIdentifier string         `json:"safety_identifier"`
		Metadata         map[string]any `json:"metadata"`

		N              *int              `json:"n"`
		Tools          []json.RawMessage `json:"tools"`
		Functions      []json.RawMessage `json:"functions"`
		Modalities     []string          `json:"modalities"`
		Logprobs       bool              `json:"logprobs"`
		ResponseFormat struct {
			Type string `json:"type"`
		} `json:"response_format"`
	}
	message struct {
		Role      string            `json:"role"`
		Content   json.RawMessage   `json:"content"` // a text or a list of parts
		Refusal   string            `json:"refusal"`
		ToolCalls []json.RawMessage `json:"tool_calls"`
	}
	part struct {
		Type     string  `json:"type"`
		Text     *string `json:"text"`
		Refusal  string  `json:"refusal"`
		ImageURL struct {
			URL string `json:"url"`
		} `json:"image_url"`
		InputAudio struct {
			Data   string `json:"data"`
			Format string `json:"format"`
		} `json:"input_audio"`
		File struct {
			Data string `json:"file_data"`
			Name string `json:"filename"`
		} `json:"file"`
	}
)

// What goes out.
type (
	completion struct {
		ID      string   `json:"id"`
		Object  string   `json:"object"`
		Created int64    `json:"created"`
		Model   string   `json:"model"`
		Choices []choice `json:"choices"`
		Usage   any      `json:"usage,omitempty"`
	}
	choice struct {
		Index    int               `json:"index"`
		Message  *assistantMessage `json:"message,omitempty"`
		Delta    *delta            `json:"delta,omitempty"`
		Logprobs *string           `json:"logprobs"`
		Finish   *string           `json:"finish_reason"`
	}
	assistantMessage struct {
		Role    string  `json:"role"`
		Content string  `json:"content"`
		Refusal *string `json:"refusal"`
	}
	delta struct {
		Role    string  `json:"role,omitempty"`
		Content *string `json:"content,omitempty"`
	}
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
	modelRecord struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	errorBody struct {
		Error errorRecord `json:"error"`
	}
	errorRecord struct {
		Message string         `json:"message"`
		Type    string         `json:"type"`
		Param   *string        `json:"param"`
		Code    string         `json:"code"`
		Details map[string]any `json:"details,omitempty"`
	}
)
