package agentsvc

import (
	"encoding/json"
	"time"
)

// ToolSpec describes a tool to a model. Parameters is the JSON Schema object of its arguments.
type ToolSpec struct {
	Name        string
	Description string
	Parameters  json.RawMessage
}

// ToolCall is a call that a model made. Arguments is a JSON object.
type ToolCall struct {
	ID        CallID
	Name      string
	Arguments json.RawMessage
	// Thought is reasoning that led the model to the call, in a form that only its provider reads. It is sent back to
	// the provider with the call and shown to no caller.
	Thought string
}

// ToolResult is the outcome of a tool call. Text is what the model reads; Failed reports that it describes an error.
type ToolResult struct {
	Call   CallID
	Name   string
	Text   string
	Failed bool
	// Took is how long the tool ran; 0 = unknown.
	Took time.Duration
}
