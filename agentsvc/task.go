package agentsvc

import (
	"slices"
	"time"
)

// State is the state of a task. The states are those of the A2A specification.
//
//	submitted ──► working ──► completed | failed | cancelled | rejected
//	    │          │  ▲
//	    │          ▼  │ (a message, a decision, a credential)
//	    │    input_required | auth_required ──► cancelled | failed | rejected (input_required only)
//	    └──► rejected | auth_required | cancelled | failed
type State string

// The states of a task.
const (
	Submitted     State = "submitted"
	Working       State = "working"
	Completed     State = "completed"
	Failed        State = "failed"
	Cancelled     State = "cancelled"
	InputRequired State = "input_required"
	Rejected      State = "rejected"
	AuthRequired  State = "auth_required"
)

// nextStates is the state table: which states may follow each one. States without an entry are terminal.
var nextStates = map[State][]State{
	Submitted:     {Working, Rejected, AuthRequired, Cancelled, Failed},
	Working:       {Completed, Failed, Cancelled, InputRequired, Rejected, AuthRequired},
	InputRequired: {Working, Rejected, Cancelled, Failed},
	AuthRequired:  {Working, Cancelled, Failed},
}

// CanBecome reports whether a task in state s may change to state to.
func (s State) CanBecome(to State) bool { return slices.Contains(nextStates[s], to) }

// IsTerminal reports whether no state follows s.
func (s State) IsTerminal() bool { return s.IsValid() && len(nextStates[s]) == 0 }

// IsInterrupted reports whether a task in s waits for a user: for input, a decision or a credential. No run executes
// then.
func (s State) IsInterrupted() bool { return s == InputRequired || s == AuthRequired }

// IsValid reports whether s is one of the states.
func (s State) IsValid() bool {
	switch s {
	case Submitted, Working, Completed, Failed, Cancelled, InputRequired, Rejected, AuthRequired:
		return true
	}
	return false
}

// Status is a state with the message that came with it; nil = none.
type Status struct {
	State   State
	Message *Message
	At      time.Time
}

// StandaloneReply returns the completed task's message if it is the whole answer, nil if callers must see the task.
func (s Status) StandaloneReply() *Message {
	if s.State == Completed && s.Message != nil && s.Message.Standalone {
		return s.Message
	}
	return nil
}

// Task is a snapshot of a task at one sequence of its log.
type Task struct {
	ID        TaskID
	Context   ContextID
	Agent     string
	Owner     Owner
	Status    Status
	Created   time.Time
	Seq       int64 // of the last event in the snapshot
	History   []Message
	Artifacts []Artifact
	Approvals []Approval // the open ones
	// Opening is the beginning of the text of the message that opened the task, set where a list was asked for it.
	Opening string
}

// ApplyEvent advances t by ev, the next event of its log. A chunk, or an event that t includes already, changes
// nothing. Messages of sub-agents (Frame not empty) are not part of the history.
func (t *Task) ApplyEvent(ev Event) {
	if ev.Seq <= t.Seq {
		return
	}
	t.Seq = ev.Seq
	switch {
	case ev.Status != nil:
		t.Status = *ev.Status
		t.Status.At = ev.At
		if m := ev.Status.Message; m != nil {
			t.History = append(t.History, *m)
		}
	case ev.Message != nil && ev.Frame == "":
		t.History = append(t.History, *ev.Message)
	case ev.Artifact != nil:
		t.Artifacts = ev.Artifact.applyTo(t.Artifacts)
	}
}
