package agentsvc

import "strings"

// Role says who speaks.
type Role string

// The roles of a message.
const (
	RoleUser  Role = "user"
	RoleAgent Role = "agent"
)

// Message is one turn of a conversation. Task and Context are what its sender named; on a task's log the task stands
// for both, and Context is empty. Earlier is what its sender says was said before it, by either role, where the sender and
// no session keeps the conversation. Alone says of an agent's message that it is the whole answer, and that whoever asked
// needs to know of no task.
type Message struct {
	ID            MessageID
	Task          TaskID
	Context       ContextID
	Role          Role
	Parts         []Part
	ToolCalls     []ToolCall
	Metadata      map[string]any
	PriorMessages []Message
	Standalone    bool
}

// Text returns the text parts of m, joined without separator.
func (m Message) Text() string {
	if len(m.Parts) == 1 {
		return m.Parts[0].Text
	}
	var b strings.Builder
	for _, p := range m.Parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Part is a piece of a message or artifact. Exactly one of File and Data is set, or neither: then the part is Text.
type Part struct {
	Text     string
	TextType string // the media type that its sender gave the text, such as text/markdown; "" = none
	File     *File
	Data     *Data
}

// TextPart returns a part that holds text.
func TextPart(text string) Part { return Part{Text: text} }

// File is a document by address or by value: exactly one of URI and Bytes is set.
type File struct {
	Name      string
	MediaType string
	URI       string
	Bytes     []byte
}

// Data is a JSON value, as [encoding/json] decodes it into an any.
type Data struct {
	MediaType string
	Value     any
}

// Artifact is something an agent made: a named list of parts.
type Artifact struct {
	ID          string
	Name        string
	Description string
	Parts       []Part
	Metadata    map[string]any
}
