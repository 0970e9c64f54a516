package scripted

import "time"

// Rule is an answer and its conditions. A rule without conditions always matches.
type Rule struct {
	When When
	Then []Item
	// Usage is reported instead of the counted tokens; nil: they are counted.
	Usage *Usage
	// Standalone marks the answer as a message by itself, see llm.Chunk. It must consist of text.
	Standalone bool
}

// When is the condition of a rule: all fields that are set must match. Text and MessageID are RE2 expressions; their
// named groups are placeholders in the rule's items.
type When struct {
	Text       string
	ToolResult string
	MessageID  string
}

// Item is one step of an answer. Exactly one field is set, except that Pause and Usage may be set with any other or
// alone. Strings may contain the placeholders {{text}} (the last user message), {{result}} (the matching tool result)
// and {{name}} for a named group.
type Item struct {
	// Text is appended to the answer.
	Text string
	// Pause is a delay after the item, at most maxPause.
	Pause time.Duration
	// Call calls a tool. The calls of one answer run concurrently.
	Call *Call
	// Failure ends the answer with an error, Question with a question to the user, Refusal with the model's refusal.
	Failure  *Failure
	Question string
	Refusal  string
	Artifact *Artifact
	// Usage is reported instead of the counted tokens and of the rule's, from this item on.
	Usage *Usage
}

// Call calls the tool with this name. Strings in the arguments may contain placeholders.
type Call struct {
	Tool      string
	Arguments map[string]any
}

// Failure is an error as a model's server would send it. Status is the HTTP status, 0 = 500. Message represents the
// body, which is never shown.
type Failure struct {
	Status  int
	Message string
}

// Artifact is an artifact update; exactly one of Text, Data, FileBase64 and URL is set. Artifacts with the same name
// are the same artifact: a later one replaces it, or extends it if Append is set. Last marks the end; an artifact that
// no later item of the rule extends ends without it.
type Artifact struct {
	Name        string
	Description string
	MediaType   string
	Text        string
	Data        any
	FileBase64  string
	URL         string
	Append      bool
	Last        bool
}

// Usage is a pair of token counts to report.
type Usage struct {
	InputTokens  int64
	OutputTokens int64
}
