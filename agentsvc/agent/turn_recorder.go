package agent

import (
	"slices"

	"stoa/agentsvc"
)

// turnRecorder is one turn as far as it is recorded. The parts of an LLM agent's run share it. It is used by the goroutine
// that iterates over Run.
type turnRecorder struct {
	inv Invocation
	// conversation is inv.Conversation plus the messages and results of this run, in the order of the log.
	conversation []agentsvc.Entry
	// yield returns true after the event has been recorded. A false must end the run.
	yield func(agentsvc.Event, error) bool
}

// recordMessage yields msg, which does not end the turn, and appends it to the conversation.
func (r *turnRecorder) recordMessage(msg agentsvc.Message) error {
	// More events of the turn follow, so the message is not the whole answer.
	msg.Standalone = false
	r.conversation = append(r.conversation, agentsvc.Entry{Message: &msg})
	if !r.yield(agentsvc.Event{Message: &msg}, nil) {
		return errStopped
	}
	return nil
}

// recordResult yields the result of a call and appends it to the conversation.
func (r *turnRecorder) recordResult(res agentsvc.ToolResult) error {
	r.conversation = append(r.conversation, agentsvc.Entry{Result: &res})
	if !r.yield(agentsvc.Event{Result: &res}, nil) {
		return errStopped
	}
	return nil
}

// yieldStatus yields the status that ends the turn. Its result does not matter: nothing follows.
func (r *turnRecorder) yieldStatus(state agentsvc.State, msg agentsvc.Message) error {
	r.yield(agentsvc.Event{Status: &agentsvc.Status{State: state, Message: &msg}}, nil)
	return nil
}

// newMessage returns a message of the agent with a new id and one text part.
func (r *turnRecorder) newMessage(text string) agentsvc.Message {
	return agentsvc.Message{
		ID: agentsvc.MessageID(agentsvc.NewID()), Task: r.inv.Task, Role: agentsvc.RoleAgent, Parts: []agentsvc.Part{agentsvc.TextPart(text)},
	}
}

// isCallFailed reports whether the call's result, among the results at the end of the conversation, is an error.
func (r *turnRecorder) isCallFailed(id agentsvc.CallID) bool {
	for _, e := range slices.Backward(r.conversation) {
		if e.Result != nil && e.Result.Call == id {
			return e.Result.Failed
		}
		if e.Message != nil {
			break
		}
	}
	return false
}
