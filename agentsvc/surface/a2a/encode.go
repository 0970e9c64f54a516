package a2a

import (
	"cmp"
	"slices"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// EventEncoder tells the events of one task: first the task itself, then what changes. A text in a status that says working is
// what the agent has said since the event before; the status that ends the turn holds the whole.
type EventEncoder struct {
	surface.DeltaTracker
	task           agentsvc.Task
	taskSent       bool               // of the task itself
	openingMessage agentsvc.MessageID // the message of the turn that is told, "" = it has not been seen
}

// NewEventEncoder returns a teller of the events that come after t, as it stood when the listening began. A client that goes on from
// an event it has seen is not told of the task again.
func NewEventEncoder(t agentsvc.Task, resumed bool) *EventEncoder {
	return &EventEncoder{task: t, taskSent: resumed}
}

// EncodeEvent returns what tells of ev, nil for what is not told.
func (t *EventEncoder) EncodeEvent(ev agentsvc.Event) spec.Event {
	if !t.taskSent {
		t.openingMessage = cmp.Or(openingMessageID(ev), t.openingMessage)
	}
	if !t.taskSent && ev.Status != nil {
		t.taskSent = true
		now := t.task
		if now.Status = *ev.Status; ev.Seq < t.task.Seq { // what has happened since is yet to be told
			now.Artifacts = nil
			if i := slices.IndexFunc(now.History, func(m agentsvc.Message) bool { return m.ID == t.openingMessage }); i >= 0 {
				now.History = now.History[:i+1]
			}
		}
		t.task.History, t.task.Artifacts = nil, nil // a stream may last long
		return NewTask(now, nil, true)
	}
	switch {
	case ev.Status != nil:
		return t.encodeStatus(*ev.Status)
	case ev.Artifact != nil:
		a := ev.Artifact
		return &spec.TaskArtifactUpdateEvent{
			TaskID: spec.TaskID(ev.Task), ContextID: string(t.task.Context), Artifact: newArtifact(a.Artifact), Append: a.Append, LastChunk: a.Last,
		}
	}
	m, ok := t.NextMessage(ev)
	if !ok {
		return nil
	}
	at := ev.At
	if at.IsZero() { // a chunk has no time of its own
		at = time.Now()
	}
	return t.encodeStatus(agentsvc.Status{State: agentsvc.Working, Message: &m, At: at})
}

// openingMessageID is the message of a user's that ev tells of, "" if it tells of none.
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

func (t *EventEncoder) encodeStatus(s agentsvc.Status) *spec.TaskStatusUpdateEvent {
	return &spec.TaskStatusUpdateEvent{TaskID: spec.TaskID(t.task.ID), ContextID: string(t.task.Context), Status: newStatus(t.task, s)}
}
