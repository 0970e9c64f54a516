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

// agentOutcome is how a sub-agent's turn went: with an answer, or with rest, which ends the turn of the whole task.
type agentOutcome struct {
	answer           agentsvc.Message
	interruption     *agentsvc.Event
	waitsForDecision bool // rest goes on in the same frame, with a decision
}

// runSubAgent runs a sub-agent in the frame of inv and passes on what it does. Its answer goes on record as the frame's
// last message; a frame that has one is not run again. Chunks are passed on where shown is set.
func runSubAgent(ctx context.Context, a Agent, inv Invocation, shown bool, out emitFunc) (agentOutcome, error) {
	if answer := findFrameAnswer(inv.Frames[inv.Frame]); answer != nil {
		return agentOutcome{answer: *answer}, nil
	}
	waits := false
	for ev, err := range a.Run(ctx, inv) {
		if err != nil {
			return agentOutcome{}, err
		}
		if ev.Frame == "" {
			ev.Frame = inv.Frame
		}
		switch {
		case ev.Chunk != nil && !shown:
		case ev.Status == nil:
			waits = waits || ev.Approval != nil
			if !out(ev) {
				return agentOutcome{}, errStopped
			}
		case ev.Status.State != agentsvc.Completed:
			return agentOutcome{interruption: &ev, waitsForDecision: waits || ev.Status.State == agentsvc.AuthRequired}, nil
		default:
			answer := ev.Status.Message
			if !out(agentsvc.Event{Frame: ev.Frame, Message: answer}) {
				return agentOutcome{}, errStopped
			}
			return agentOutcome{answer: *answer}, nil
		}
	}
	if err := ctx.Err(); err != nil {
		return agentOutcome{}, err
	}
	return agentOutcome{}, errors.New("the sub-agent ended without an answer")
}

// findFrameAnswer returns the answer that recorded, the entries of a frame, end with, nil if the frame is not at its end.
func findFrameAnswer(recorded []agentsvc.Entry) *agentsvc.Message {
	if len(recorded) == 0 {
		return nil
	}
	m := recorded[len(recorded)-1].Message
	if m == nil || m.Role != agentsvc.RoleAgent || len(m.ToolCalls) > 0 || hasMark(*m, markContinues) {
		return nil
	}
	return m
}

// turnMark says what a message of an agent means for the turns around it. It stands in the message's metadata, so that a
// replay knows it as well.
type turnMark string

const (
	markContinues turnMark = "goes_on"   // the agent has not finished with it
	markExited    turnMark = "exit"      // the agent ended on its own account, and the loop around it ends too
	markEscalated turnMark = "escalate"  // the text is only why control goes back
	markReturned  turnMark = "hand_back" // an answer, but control goes back
)

const markKey = "turn"

func (k turnMark) applyTo(m agentsvc.Message) agentsvc.Message {
	m.Metadata = map[string]any{markKey: string(k)}
	return m
}

func hasMark(m agentsvc.Message, kinds ...turnMark) bool {
	kind, _ := m.Metadata[markKey].(string)
	return slices.Contains(kinds, turnMark(kind))
}

// withoutToolCalls returns what user and agent have said to each other in talk, as another agent may go on from it: without the
// calls and results of tools it does not have.
func withoutToolCalls(conversation []agentsvc.Entry) []agentsvc.Entry {
	var messages []agentsvc.Entry
	for _, e := range conversation {
		if m := e.Message; m != nil && len(m.ToolCalls) == 0 && !hasMark(*m, markContinues) {
			messages = append(messages, e)
		}
	}
	return messages
}

// quoteAgent tells an agent what another one said, under a title of its own.
func quoteAgent(from string, m agentsvc.Message) agentsvc.Entry {
	return agentsvc.Entry{Message: &agentsvc.Message{
		ID: m.ID, Task: m.Task, Role: agentsvc.RoleUser, Metadata: map[string]any{fromKey: from},
		Parts: slices.Concat([]agentsvc.Part{agentsvc.TextPart(from + ":\n")}, m.Parts),
	}}
}

const fromKey = "from"

// withoutTitle returns the parts of m without the title that [heard] put before them.
func withoutTitle(m agentsvc.Message) []agentsvc.Part {
	if m.Metadata[fromKey] != nil && len(m.Parts) > 0 {
		return m.Parts[1:]
	}
	return m.Parts
}

// newCompletedEvent is the event that ends a turn with msg.
func newCompletedEvent(msg agentsvc.Message) agentsvc.Event {
	return agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Completed, Message: &msg}}
}
