// Package stream passes the events of a task to a client: a [Subscription] reads them from the task's log, an [Encoder]
// turns them into the bodies of a protocol, and [Subscription.WriteSSE] or [Subscription.WriteEvents] writes these. A
// subscription ends with its task, its client, the client's access or the server.
package stream

import "stoa/agentsvc"

// Encoder is how a protocol encodes the events of a subscription, over any transport. EncodeEvent and EncodeError
// are required.
type Encoder struct {
	// EncodeEvent returns the body of an event, [Bodies] if it needs several, or nil if the protocol does not report
	// it.
	EncodeEvent func(agentsvc.Event) any
	// EncodeReply returns the body of a standalone reply (an A2A message without a task), which replaces all events of
	// the turn; nil = such a reply is reported as a task.
	EncodeReply func(agentsvc.Message) any
	// EncodeError returns the body of an error. It is the last body of a stream.
	EncodeError func(error) any
	// EndsWhenSettled ends the stream also when the task waits for input, a decision or a credential, not only when it
	// ended.
	EndsWhenSettled bool
	// ErrorEventName is the name of the server-sent event of an error; "" = EventName.
	ErrorEventName string
	// EventName is the name of the server-sent events; "" = they have none, so browsers deliver them as "message".
	EventName string
	// NameEvent returns the name of the server-sent event of a body, in place of EventName and ErrorEventName; nil = these
	// are used.
	NameEvent func(body any) string
	// KeepsFacts says that the encoder keeps what it gets: the memory of facts is reserved until the response ends.
	KeepsFacts bool
	// DoneBody is the body of a last event that marks the regular end of the stream; nil = there is none. It is named
	// "done" if EventName is set. A stream that was interrupted does not end with it.
	DoneBody any
	// NotResumable says that the protocol has no way to continue a stream. Its events then have no ids, and a stream
	// that the server cannot continue ends with an error in place of a retry hint.
	NotResumable bool
}

// Bodies is the encoding of one event as more than one body. They share the event's sequence.
type Bodies []any

// eventName returns the name of the server-sent event of a body, whose name is fixed without NameEvent.
func (e Encoder) eventName(fixed string, body any) string {
	if e.NameEvent != nil {
		return e.NameEvent(body)
	}
	return fixed
}

// encodeReplyEvent returns the body for the standalone reply of ev, which must have one.
func (e Encoder) encodeReplyEvent(ev agentsvc.Event) any { return e.EncodeReply(*replyOf(ev)) }
