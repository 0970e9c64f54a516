package agent

import (
	"context"
	"errors"
	"slices"

	"stoa/agentsvc"
)

// Member is an agent that is part of another one. Name is unique among its siblings and becomes the frame's name;
// Description describes the agent to the model that may call it.
type Member struct {
	Name        string
	Description string
	Agent       Agent
}

// agentOutcome is the end of a sub-agent's turn: an answer, or an interruption that ends the turn of the whole task.
type agentOutcome struct {
	answer agentsvc.Message
	// interruption is the status that interrupted the turn; nil if there is an answer.
	interruption *agentsvc.Event
	// waitsForDecision reports that the frame resumes after a decision or a credential. Otherwise the interruption is a
	// question or a refusal, and the user's next message starts a new turn.
	waitsForDecision bool
}

// runSubAgent runs a sub-agent in the frame of inv and emits its events under that frame. The answer is recorded as the
// frame's last message; a frame that has one is finished, and its answer is returned without running the agent. Chunks
// are emitted only if shown is set.
func runSubAgent(ctx context.Context, a Agent, inv Invocation, shown bool, out emitFunc) (agentOutcome, error) {
	if answer := findFrameAnswer(inv.Frames[inv.Frame]); answer != nil {
		return agentOutcome{answer: *answer}, nil
	}
	waits := false
	for ev, err := range a.Run(ctx, inv) {
		if err != nil {
			return agentOutcome{}, err
		}
		// An event of a deeper sub-agent already has its longer path.
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
			// Only the task's own agent may end the task: the status of a sub-agent becomes a message in its frame.
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

// findFrameAnswer returns the message with which a frame's recorded entries end its turn, or nil if the frame is not
// finished: the last entry must be an agent's message without tool calls that does not announce more.
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

// turnMark is what an agent's message means for the agents around it. It is stored in the message's metadata, so that a
// replay finds it.
type turnMark string

const (
	markContinues turnMark = "goes_on"   // the agent's turn goes on after the message
	markExited    turnMark = "exit"      // the agent ended its turn with exit, which also ends a loop around it
	markEscalated turnMark = "escalate"  // the text is only the reason for returning control
	markReturned  turnMark = "hand_back" // an answer, after which control returns to the agent above
)

// markKey is the metadata key of a turnMark.
const markKey = "turn"

// applyTo returns m with the mark as its only metadata.
func (t turnMark) applyTo(m agentsvc.Message) agentsvc.Message {
	m.Metadata = map[string]any{markKey: string(t)}
	return m
}

// hasMark reports whether m has one of the marks.
func hasMark(m agentsvc.Message, kinds ...turnMark) bool {
	kind, _ := m.Metadata[markKey].(string)
	return slices.Contains(kinds, turnMark(kind))
}

// withoutToolCalls returns the messages of conversation that another agent can continue from: without tool calls and
// results, which belong to tools that it does not have, and without unfinished messages.
func withoutToolCalls(conversation []agentsvc.Entry) []agentsvc.Entry {
	var messages []agentsvc.Entry
	for _, e := range conversation {
		if m := e.Message; m != nil && len(m.ToolCalls) == 0 && !hasMark(*m, markContinues) {
			messages = append(messages, e)
		}
	}
	return messages
}

// quoteAgent returns a user message that quotes another agent's message, with the agent's name as a title part.
func quoteAgent(from string, m agentsvc.Message) agentsvc.Entry {
	return agentsvc.Entry{Message: &agentsvc.Message{
		ID: m.ID, Task: m.Task, Role: agentsvc.RoleUser, Metadata: map[string]any{fromKey: from},
		Parts: slices.Concat([]agentsvc.Part{agentsvc.TextPart(from + ":\n")}, m.Parts),
	}}
}

// fromKey is the metadata key of the quoted agent's name.
const fromKey = "from"

// withoutTitle returns the parts of m without the title that [quoteAgent] put before them.
func withoutTitle(m agentsvc.Message) []agentsvc.Part {
	if m.Metadata[fromKey] != nil && len(m.Parts) > 0 {
		return m.Parts[1:]
	}
	return m.Parts
}

// newCompletedEvent returns the event that ends a turn as completed with msg.
func newCompletedEvent(msg agentsvc.Message) agentsvc.Event {
	return agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Completed, Message: &msg}}
}
