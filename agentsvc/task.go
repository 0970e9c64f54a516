package agentsvc

import (
	"slices"
	"time"
)

// State is where a task stands.
//
//	submitted ──► working ──► completed | failed | cancelled | rejected
//	    │          │  ▲
//	    │          ▼  │ (an answer, a decision, a credential)
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

// nextStates is the state table: what may follow what.
var nextStates = map[State][]State{
	Submitted:     {Working, Rejected, AuthRequired, Cancelled, Failed},
	Working:       {Completed, Failed, Cancelled, InputRequired, Rejected, AuthRequired},
	InputRequired: {Working, Rejected, Cancelled, Failed},
	AuthRequired:  {Working, Cancelled, Failed},
}

// CanBecome reports whether a task in state s may go to state to.
func (s State) CanBecome(to State) bool { return slices.Contains(nextStates[s], to) }

// IsTerminal reports whether s is an end: nothing follows it.
func (s State) IsTerminal() bool { return s.IsValid() && len(nextStates[s]) == 0 }

// IsInterrupted reports whether a task in s waits for somebody outside: a human's input or a credential.
func (s State) IsInterrupted() bool { return s == InputRequired || s == AuthRequired }

// IsValid reports whether s is a state at all.
func (s State) IsValid() bool {
	switch s {
	case Submitted, Working, Completed, Failed, Cancelled, InputRequired, Rejected, AuthRequired:
		return true
	}
	return false
}

// Status is a state with the message that came with it, if one did.
type Status struct {
	State   State
	Message *Message
	At      time.Time
}

// StandaloneReply returns the message that is the whole answer to whoever asked, nil where its task is to be told of.
func (s Status) StandaloneReply() *Message {
	if s.State == Completed && s.Message != nil && s.Message.Standalone {
		return s.Message
	}
	return nil
}

// Task is a snapshot of one unit of work of an agent.
type Task struct {
	ID        TaskID
	Context   ContextID
	Agent     string
	Owner     Owner
	Status    Status
	Created   time.Time
	Seq       int64 // of the last event the snapshot includes
	History   []Message
	Artifacts []Artifact
	Approvals []Approval // that are open
}

// ApplyEvent brings t up to ev, the next event of its log. A chunk or an event t already includes changes nothing. What
// sub-agents say among themselves is not part of the history.
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
