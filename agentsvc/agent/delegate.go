package agent

import (
	"context"
	"errors"
	"slices"

	"stoa/agentsvc"
)

// Member is an agent that another one has at its command: Name is unique among its siblings, Description tells a
// model what it is good for.
type Member struct {
	Name        string
	Description string
	Agent       Agent
}

// outcome is how a sub-agent's turn went: with an answer, or with rest, which ends the turn of the whole task.
type outcome struct {
	answer agentsvc.Message
	rest   *agentsvc.Event
	waits  bool // rest goes on in the same frame, with a decision
}

// delegate runs a sub-agent in the frame of inv and passes on what it does. Its answer goes on record as the frame's
// last message; a frame that has one is not run again. Chunks are passed on where shown is set.
func delegate(ctx context.Context, a Agent, inv Invocation, shown bool, out emit) (outcome, error) {
	if answer := ended(inv.Frames[inv.Frame]); answer != nil {
		return outcome{answer: *answer}, nil
	}
	waits := false
	for ev, err := range a.Run(ctx, inv) {
		if err != nil {
			return outcome{}, err
		}
		if ev.Frame == "" {
			ev.Frame = inv.Frame
		}
		switch {
		case ev.Chunk != nil && !shown:
		case ev.Status == nil:
			waits = waits || ev.Approval != nil
			if !out(ev) {
				return outcome{}, errStopped
			}
		case ev.Status.State != agentsvc.Completed:
			return outcome{rest: &ev, waits: waits || ev.Status.State == agentsvc.AuthRequired}, nil
		default:
			answer := ev.Status.Message
			if !out(agentsvc.Event{Frame: ev.Frame, Message: answer}) {
				return outcome{}, errStopped
			}
			return outcome{answer: *answer}, nil
		}
	}
	if err := ctx.Err(); err != nil {
		return outcome{}, err
	}
	return outcome{}, errors.New("the sub-agent ended without an answer")
}

// ended returns the answer that recorded, the entries of a frame, end with, nil if the frame is not at its end.
func ended(recorded []agentsvc.Entry) *agentsvc.Message {
	if len(recorded) == 0 {
		return nil
	}
	m := recorded[len(recorded)-1].Message
	if m == nil || m.Role != agentsvc.RoleAgent || len(m.ToolCalls) > 0 || marked(*m, goesOn) {
		return nil
	}
	return m
}

// mark says what a message of an agent means for the turns around it. It stands in the message's metadata, so that a
// replay knows it as well.
type mark string

const (
	goesOn    mark = "goes_on"   // the agent has not finished with it
	exited    mark = "exit"      // the agent ended on its own account, and the loop around it ends too
	escalated mark = "escalate"  // the text is only why control goes back
	handed    mark = "hand_back" // an answer, but control goes back
)

const markKey = "turn"

func (k mark) on(m agentsvc.Message) agentsvc.Message {
	m.Metadata = map[string]any{markKey: string(k)}
	return m
}

func marked(m agentsvc.Message, kinds ...mark) bool {
	kind, _ := m.Metadata[markKey].(string)
	return slices.Contains(kinds, mark(kind))
}

// spoken returns what user and agent have said to each other in talk, as another agent may go on from it: without the
// calls and results of tools it does not have.
func spoken(talk []agentsvc.Entry) []agentsvc.Entry {
	var said []agentsvc.Entry
	for _, e := range talk {
		if m := e.Message; m != nil && len(m.ToolCalls) == 0 && !marked(*m, goesOn) {
			said = append(said, e)
		}
	}
	return said
}

// heard tells an agent what another one said, under a title of its own.
func heard(from string, m agentsvc.Message) agentsvc.Entry {
	return agentsvc.Entry{Message: &agentsvc.Message{
		ID: m.ID, Task: m.Task, Role: agentsvc.RoleUser, Metadata: map[string]any{fromKey: from},
		Parts: slices.Concat([]agentsvc.Part{agentsvc.TextPart(from + ":\n")}, m.Parts),
	}}
}

const fromKey = "from"

// untitled returns the parts of m without the title that [heard] put before them.
func untitled(m agentsvc.Message) []agentsvc.Part {
	if m.Metadata[fromKey] != nil && len(m.Parts) > 0 {
		return m.Parts[1:]
	}
	return m.Parts
}

// completed is the event that ends a turn with msg.
func completed(msg agentsvc.Message) agentsvc.Event {
	return agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Completed, Message: &msg}}
}
