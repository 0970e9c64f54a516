package config

import (
	"time"

	"stoa/agentsvc/config/document"
)

// Rule is one answer of a scripted model and when it is given.
type Rule struct {
	// When is what the last message must be; without it the rule always matches.
	When *When `yaml:"when"`
	// Then is what the model does, in order. The `say` items join into one answer.
	Then []*Item `yaml:"then" jsonschema:"required"`
	// Reply chooses the shape of the answer: a task, or a message without a task where the caller's surface allows it. A
	// message has only text, and is the agent's first answer: after a tool call, or to a task that asked, it is that
	// task's.
	Reply string `yaml:"reply" jsonschema:"enum=task,enum=message,default=task"`
	// Usage replaces the counted tokens of the answer.
	Usage *Usage `yaml:"usage"`
}

// When is what the last message must be for a rule to match. All fields that are set must hold.
type When struct {
	// Text is a regular expression (RE2) on the message's text. Its named groups can be used in `then` as {{name}}.
	Text string `yaml:"text"`
	// ToolResult is the name of a tool: the last message must be its result, which `then` can use as {{result}}.
	ToolResult string `yaml:"tool_result"`
	// MessageID is a regular expression (RE2) on the id of the incoming message.
	MessageID string `yaml:"message_id"`
}

// Item is one thing that a scripted model does. It holds one of say, call, fail, ask, refuse and artifact;
// pause and usage may be added to it or stand alone.
type Item struct {
	// Say adds text to the answer.
	Say string `yaml:"say"`
	// Call calls a tool.
	Call *Call `yaml:"call"`
	// Pause waits, after the text of the same item, 10 minutes at most.
	Pause time.Duration `yaml:"pause"`
	// Fail ends the model's call with an error, as if the vendor had sent it.
	Fail *Fail `yaml:"fail"`
	// Ask asks the caller; the task waits for the answer.
	Ask string `yaml:"ask"`
	// Refuse ends the task as rejected, with this reason.
	Refuse string `yaml:"refuse"`
	// Artifact hands over a file or data.
	Artifact *Artifact `yaml:"artifact"`
	// Usage replaces the counted tokens of the answer, and the rule's.
	Usage *Usage `yaml:"usage"`
}

// Call is a call of a tool by a scripted model.
type Call struct {
	// Tool is the name of the tool; it may have placeholders such as {{text}}.
	Tool string `yaml:"tool" jsonschema:"required"`
	// Arguments are its arguments.
	Arguments map[string]any `yaml:"arguments"`
}

// Fail is an error of a scripted model.
type Fail struct {
	// Status is the HTTP status of the error.
	Status int `yaml:"status" jsonschema:"minimum=400,maximum=599,default=500"`
	// Message is what the vendor would say. Callers never see it.
	Message string `yaml:"message"`
}

// Artifact is a file or data that a scripted model hands over. It holds one of text, data, file_base64 and url.
type Artifact struct {
	// Name is the file's name; artifacts of one name are one artifact.
	Name string `yaml:"name" jsonschema:"required"`
	// MediaType is the MIME type of the content.
	MediaType string `yaml:"media_type"`
	// Text is the content as text.
	Text string `yaml:"text"`
	// Data is the content as a JSON object.
	Data map[string]any `yaml:"data"`
	// FileBase64 is the content as bytes in base64.
	FileBase64 string `yaml:"file_base64"`
	// URL is the address of the content.
	URL string `yaml:"url"`
	// Append adds this content to the artifact of the same name instead of replacing it.
	Append bool `yaml:"append" jsonschema:"default=false"`
	// Last says that no more content follows.
	Last bool `yaml:"last" jsonschema:"default=true"`
}

// Usage is a count of tokens.
type Usage struct {
	// InputTokens is how many tokens the model read.
	InputTokens int `yaml:"input_tokens" jsonschema:"minimum=0,maximum=1000000000000"`
	// OutputTokens is how many tokens the model wrote.
	OutputTokens int `yaml:"output_tokens" jsonschema:"minimum=0,maximum=1000000000000"`
}

// checkRules checks the regular expressions.
func (w *When) checkRules(c *validation, s document.Location) {
	c.checkPattern(s.Child("text"), w.Text)
	c.checkPattern(s.Child("message_id"), w.MessageID)
}

// checkRules checks that the item does one thing.
func (i *Item) checkRules(c *validation, s document.Location) {
	c.requireOneOf(s, []string{"say", "call", "fail", "ask", "refuse", "artifact"}, "pause", "usage")
}

// checkRules checks that the artifact has one kind of content.
func (a *Artifact) checkRules(c *validation, s document.Location) {
	c.requireOneOf(s, []string{"text", "data", "file_base64", "url"})
}
