package agentsvc

import "encoding/json"

// ToolSpec describes a tool to a model. Parameters is a JSON Schema object.
type ToolSpec struct {
	Name        string
	Description string
	Parameters  json.RawMessage
}

// ToolCall is a model's wish to run a tool. Arguments is a JSON object.
type ToolCall struct {
	ID        CallID
	Name      string
	Arguments json.RawMessage
}

// ToolResult is the outcome of a tool call: Text is what the model reads, Failed says that it tells of an error.
type ToolResult struct {
	Call   CallID
	Name   string
	Text   string
	Failed bool
}
