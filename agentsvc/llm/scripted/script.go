package scripted

import "time"

// Rule says what to answer when. A rule without conditions matches always.
type Rule struct {
	When       When
	Then       []Item
	Usage      *Usage // instead of the counted tokens
	Standalone bool   // the answer is a message by itself; it holds words alone
}

// When holds a rule's conditions; all that are set must hold. Text and MessageID are RE2 expressions; their named
// groups can be used in the rule's items.
type When struct {
	Text       string // matches the text of the matching message
	ToolResult string // the matching message is the result of the tool of this name
	MessageID  string // matches the id of the last user message
}

// Item is one step of an answer: exactly one of its fields, and Pause and Usage with any of them or alone. Strings may hold
// {{text}}, the last user message's text, {{result}}, the tool result's text, and {{name}} for a named group.
type Item struct {
	Text     string        // joins what was said before
	Pause    time.Duration // a delay after the rest of the item
	Call     *Call         // calls a tool; several calls of an answer run in parallel
	Failure  *Failure      // ends in an error
	Question string        // ends with a question to the user
	Refusal  string        // ends with the model's refusal
	Artifact *Artifact
	Usage    *Usage // instead of the counted tokens, and of the rule's
}

// Call is the call of a tool.
type Call struct {
	Tool      string
	Arguments map[string]any
}

// Failure is an error as a model's server would answer it. Status is 500 if zero. Message stands for the body of that
// answer: like that of any model it reaches nobody.
type Failure struct {
	Status  int
	Message string
}

// Artifact is a file or a value to hand out: exactly one of Text, Data, FileBase64 and URL is set. Artifacts of one
// name are one artifact: a later one replaces it, or extends it with Append. Last marks its end; one that no later
// item of its rule extends ends by itself.
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

// Usage are token counts to report.
type Usage struct {
	InputTokens  int64
	OutputTokens int64
}
