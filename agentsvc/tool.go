package agentsvc

import "encoding/json"

// ToolSpec describes a tool to a model. Parameters is a JSON Schema object.
type ToolSpec struct {
	Name        string
	Description string
	Parameters  json.RawMessage
}

// ToolCall is a model's wish to run a tool. Arguments is a JSON object. Thought is what led the model to the call, in
// a form that only its vendor reads: it goes back there with the call and is shown to nobody.
type ToolCall struct {
	ID        CallID
	Name      string
	Arguments json.RawMessage
	Thought   string
}

// ToolResult is the outcome of a tool call: Text is what the model reads, Failed says that it tells of an error.
type ToolResult struct {
	Call   CallID
	Name   string
	Text   string
	Failed bool
}
