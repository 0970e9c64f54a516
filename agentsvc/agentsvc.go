// Package agentsvc holds the words of the house: the message, the task and its states, the event, the tool call,
// the session, the card. Every room above speaks them, none of them speaks a wire format: the words carry no
// JSON tags, each dialect and the store convert to and from shapes of their own.
//
// One call reads like this: a [Message] opens a [Task]; every fact about it is an [Event] on the task's log;
// whoever wants to know reads the log.
package agentsvc

import "github.com/google/uuid"

// TaskID names a task within its tenant.
type TaskID string

// ContextID names a session within its tenant and owner.
type ContextID string

// MessageID names a message. Clients choose it for what they send.
type MessageID string

// CallID names one tool call within its task.
type CallID string

// NewID returns a new identifier that sorts by the time of its making (UUID version 7, RFC 9562).
func NewID() string {
	return uuid.Must(uuid.NewV7()).String()
}

// Owner is who a task or session belongs to: a subject as its issuer names it.
type Owner struct {
	Issuer  string
	Subject string
}
