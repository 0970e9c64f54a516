// Package agentsvc defines the domain types of agent hosting: messages, tasks and their states, events, tool calls,
// approvals, sessions, agent cards and the errors that every protocol reports. It has no transport and no storage.
// The types carry no JSON tags: each protocol and the store convert to and from shapes of their own, so that no wire
// format can change another one.
//
// One call reads like this: a [Message] opens a [Task] or continues one; every fact about the task is an [Event] on
// the task's log, with a sequence number without gaps; every answer, blocking or streamed, is read from that log. A
// task's current form is the fold of its events ([Task.ApplyEvent]).
//
// A context carries deadline, cancellation and trace only. What the calls of a run share, such as its lease and who pays
// for it, is passed on as a [RunScope]. The exception is the reservation of memory for rows that are read, see package
// capacity.
//
// The packages below build on these types: store persists them, task accepts and follows turns, queue leases runs to
// workers, runner executes them with an agent, and surface encodes them for each protocol. The package comment of
// cmd/stoa/server (server.go) follows a message through them and has an index of their most important functions.
package agentsvc

import "github.com/google/uuid"

// TaskID identifies a task within its tenant: a UUID version 7 that the server chooses.
type TaskID string

// ContextID identifies a session within its tenant and owner. Clients may choose it.
type ContextID string

// MessageID identifies a message. Clients choose it for what they send; a repeated id makes a repeated send
// recognisable.
type MessageID string

// CallID identifies a tool call within its task.
type CallID string

// NewID returns a new UUID version 7 (RFC 9562) in text form. Such ids sort by their time of creation, in
// milliseconds.
func NewID() string {
	return uuid.Must(uuid.NewV7()).String()
}

// Owner is the user to whom a task or session belongs, as authentication established it: the token's issuer and its
// subject. The subject alone is not unique.
type Owner struct {
	Issuer  string
	Subject string
}
