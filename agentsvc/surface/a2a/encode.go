package a2a

import (
	"cmp"
	"slices"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/stream"
)

// EventEncoder converts the domain events of one task to protocol events, for one stream or one notification. The
// first event is the task itself, the later ones are updates. A status update in the state working carries only the
// text since the event before (see [stream.DeltaTracker]); the status that ends the turn carries the whole text.
// It belongs to one goroutine.
type EventEncoder struct {
	stream.DeltaTracker
	// task is the snapshot at the start of the subscription. Its history and artifacts are dropped once they are
	// sent, because a stream may stay open for hours.
	task           agentsvc.Task
	taskSent       bool               // the task event was sent, or the client resumed and already has it
	openingMessage agentsvc.MessageID // the user message that opened the turn, "" = not seen yet
}

// NewEventEncoder returns an encoder of the events after t, the snapshot at the start of the subscription. With
// resumed the client continues after an event that it has seen, and no task event is sent.
func NewEventEncoder(t agentsvc.Task, resumed bool) *EventEncoder {
	return &EventEncoder{task: t, taskSent: resumed}
}

// EncodeEvent returns the protocol event for ev, or nil if the protocol has none for it (such as usage events).
func (e *EventEncoder) EncodeEvent(ev agentsvc.Event) spec.Event {
	if !e.taskSent {
		e.openingMessage = cmp.Or(openingMessageID(ev), e.openingMessage)
	}
	if !e.taskSent && ev.Status != nil {
		e.taskSent = true
		now := e.task
		// The snapshot is newer than this event: later events will carry the rest. Send the task as it was at ev,
		// without artifacts and with the history only up to the message that opened the turn. Otherwise the client
		// would receive the same content twice.
		if now.Status = *ev.Status; ev.Seq < e.task.Seq {
			now.Artifacts = nil
			if i := slices.IndexFunc(now.History, func(m agentsvc.Message) bool { return m.ID == e.openingMessage }); i >= 0 {
				now.History = now.History[:i+1]
			}
		}
		e.task.History, e.task.Artifacts = nil, nil // they are in the event now; release the memory
		return NewTask(now, nil, true)
	}
	switch {
	case ev.Status != nil:
		return e.encodeStatus(*ev.Status)
	case ev.Artifact != nil:
		a := ev.Artifact
		return &spec.TaskArtifactUpdateEvent{
			TaskID: spec.TaskID(ev.Task), ContextID: string(e.task.Context), Artifact: newArtifact(a.Artifact), Append: a.Append, LastChunk: a.Last,
		}
	}
	m, ok := e.NextMessage(ev)
	if !ok {
		return nil
	}
	at := ev.At
	if at.IsZero() { // a chunk has no time of its own
		at = time.Now()
	}
	return e.encodeStatus(agentsvc.Status{State: agentsvc.Working, Message: &m, At: at})
}

// openingMessageID returns the ID of the user message in ev, "" if ev has none. A user message comes as an event of
// its own or with a status.
func openingMessageID(ev agentsvc.Event) agentsvc.MessageID {
	m := ev.Message
	if ev.Status != nil {
		m = ev.Status.Message
	}
	if m == nil || m.Role != agentsvc.RoleUser {
		return ""
	}
	return m.ID
}

// encodeStatus returns s as a status update of the stream's task.
func (e *EventEncoder) encodeStatus(s agentsvc.Status) *spec.TaskStatusUpdateEvent {
	return &spec.TaskStatusUpdateEvent{TaskID: spec.TaskID(e.task.ID), ContextID: string(e.task.Context), Status: newStatus(e.task, s)}
}
