package a2a

import (
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// Teller tells the events of one task: first the task itself, then what changes. A text in a status that says working is
// what the agent has said since the event before; the status that ends the turn holds the whole.
type Teller struct {
	surface.Teller
	task agentsvc.Task
	told bool // of the task itself
}

// NewTeller returns a teller of the events that come after t, as it stood when the listening began. A client that goes on from
// an event it has seen is not told of the task again.
func NewTeller(t agentsvc.Task, goesOn bool) *Teller { return &Teller{task: t, told: goesOn} }

// Event returns what tells of ev, nil for what is not told.
func (t *Teller) Event(ev agentsvc.Event) spec.Event {
	if !t.told && ev.Status != nil {
		t.told = true
		now := t.task
		if now.Status = *ev.Status; ev.Seq < t.task.Seq { // what has happened since is yet to be told
			now.Artifacts = nil
		}
		return NewTask(now, nil, true)
	}
	switch {
	case ev.Status != nil:
		return t.status(*ev.Status)
	case ev.Artifact != nil:
		a := ev.Artifact
		return &spec.TaskArtifactUpdateEvent{
			TaskID: spec.TaskID(ev.Task), ContextID: string(t.task.Context), Artifact: newArtifact(a.Artifact), Append: a.Append, LastChunk: a.Last,
		}
	}
	m, ok := t.Message(ev)
	if !ok {
		return nil
	}
	at := ev.At
	if at.IsZero() { // a chunk has no time of its own
		at = time.Now()
	}
	return t.status(agentsvc.Status{State: agentsvc.Working, Message: &m, At: at})
}

func (t *Teller) status(s agentsvc.Status) *spec.TaskStatusUpdateEvent {
	return &spec.TaskStatusUpdateEvent{TaskID: spec.TaskID(t.task.ID), ContextID: string(t.task.Context), Status: newStatus(t.task, s)}
}
