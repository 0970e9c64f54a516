package ollama

import "encoding/json"

// The wire format of Ollama's /api/chat, as docs/api.md of github.com/ollama/ollama (v0.17) describes it, as far as it
// is used.
type (
	// chatRequest is the body of a request. Options holds model parameters such as temperature and num_predict.
	chatRequest struct {
		Model    string         `json:"model"`
		Messages []chatMessage  `json:"messages"`
		Tools    []tool         `json:"tools,omitempty"`
		Options  map[string]any `json:"options"`
		// Format is the JSON Schema of the answer.
		Format map[string]any `json:"format,omitempty"`
	}
	// chatMessage is a message of either side. ToolName and ToolCallID are set for a tool result.
	chatMessage struct {
		Role    string `json:"role"` // "system", "user", "assistant" or "tool"
		Content string `json:"content"`
		// Images are files of a user's message; encoding/json encodes them in base64.
		Images     [][]byte   `json:"images,omitempty"` // in base64
		ToolCalls  []toolCall `json:"tool_calls,omitempty"`
		ToolName   string     `json:"tool_name,omitempty"`
		ToolCallID string     `json:"tool_call_id,omitempty"`
	}
	// toolCall is a call by the model, in requests and answers.
	toolCall struct {
		ID       string       `json:"id,omitempty"`
		Function functionCall `json:"function"`
	}
	// functionCall is the function of a call. Arguments is a JSON object.
	functionCall struct {
		Index     int             `json:"index"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"` // an object
	}
	// chatResponse is one line of an answer. The last line has Done set, the reason, and the token counts. Error is set
	// instead of a message if the server fails in the middle of an answer.
	chatResponse struct {
		Message         chatMessage `json:"message"`
		Done            bool        `json:"done"`
		DoneReason      string      `json:"done_reason"`
		PromptEvalCount int64       `json:"prompt_eval_count"`
		EvalCount       int64       `json:"eval_count"`
		Error           string      `json:"error"`
	}
)

// The part of JSON Schema that the server reads of a tool's parameters. It refuses a whole request in which one of
// these keywords has another form, and ignores all other keywords.
type (
	// tool is the definition of a tool. Type is always "function".
	tool struct {
		Type     string   `json:"type"` // "function"
		Function function `json:"function"`
	}
	function struct {
		Name        string     `json:"name"`
		Description string     `json:"description,omitempty"`
		Parameters  parameters `json:"parameters"`
	}
	// parameters is the schema's top level, which the server decodes into a struct of its own.
	parameters struct {
		Type       string              `json:"type"`
		Defs       any                 `json:"$defs,omitempty"`
		Items      any                 `json:"items,omitempty"`
		Required   []string            `json:"required,omitempty"`
		Properties map[string]property `json:"properties"`
	}
	// property is the schema of one argument, at any depth.
	property struct {
		AnyOf       []property          `json:"anyOf,omitempty"`
		Type        typeNames           `json:"type,omitempty"`
		Items       any                 `json:"items,omitempty"`
		Description string              `json:"description,omitempty"`
		Enum        []any               `json:"enum,omitempty"`
		Properties  map[string]property `json:"properties,omitempty"`
	}
)

// typeNames is the value of "type": one name, or a list of names.
type typeNames []string

// UnmarshalJSON implements [json.Unmarshaler] for a string or a list of strings.
func (t *typeNames) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(t))
	}
	*t = make(typeNames, 1)
	return json.Unmarshal(b, &(*t)[0])
}

// MarshalJSON implements [json.Marshaler]. A single name is encoded as a string.
func (t typeNames) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}
