package agentsvc

import "strings"

// Role is the author of a message.
type Role string

// The roles of a message.
const (
	RoleUser  Role = "user"
	RoleAgent Role = "agent"
)

// Message is one contribution to a conversation, by a user or an agent.
type Message struct {
	ID MessageID
	// Task and Context are what the sender named. On a task's log Task is the log's task and Context is empty.
	Task    TaskID
	Context ContextID
	Role    Role
	Parts   []Part
	// ToolCalls are calls that the agent's model made with this message; in a turn's final message, all calls of the
	// turn.
	ToolCalls []ToolCall
	Metadata  map[string]any
	// PriorMessages are earlier messages of the conversation as the sender reports them, for protocols in which the
	// client keeps the conversation. No session vouches for them.
	PriorMessages []Message
	// Standalone marks an agent's message that is the whole answer, so that callers need not see the task.
	Standalone bool
}

// Text returns the text parts of m, joined without a separator.
func (m Message) Text() string {
	// The common case needs no copy.
	if len(m.Parts) == 1 {
		return m.Parts[0].Text
	}
	var b strings.Builder
	for _, p := range m.Parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Part is a piece of a message or artifact. At most one of File and Data is set; without them the part is Text.
type Part struct {
	Text     string
	TextType string // media type that the sender declared, such as text/markdown; "" = none
	File     *File
	Data     *Data
}

// TextPart returns a text part.
func TextPart(text string) Part { return Part{Text: text} }

// File is a document by reference or by value: exactly one of URI and Bytes is set.
type File struct {
	Name      string
	MediaType string
	URI       string
	Bytes     []byte
}

// Data is a JSON value in the form that [encoding/json] decodes into an any.
type Data struct {
	MediaType string
	Value     any
}

// Artifact is an output of an agent: a named list of parts.
type Artifact struct {
	ID          string
	Name        string
	Description string
	Parts       []Part
	Metadata    map[string]any
}
