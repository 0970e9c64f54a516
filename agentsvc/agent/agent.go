// Package agent is the thinking: an [Agent] takes a conversation and yields events until its turn is over. It writes
// nothing and knows no task but by name; the runner records what it yields. Before an effect the fact that announces
// it is yielded, and the agent goes on only when the yield returns: so the journal is ahead of every tool.
package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"stoa/agentsvc"
)

// Agent runs turns. It is safe for concurrent use.
type Agent interface {
	// Run continues inv's conversation. It yields chunks of text, messages, tool results, artifacts and usage as they
	// come about, and as the last thing a status that ends the turn, or an error. Breaking off the loop stops it.
	Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error]
}

// Invocation is one turn to run. Conversation ends with the user's message, or, where an earlier attempt got
// further, with what that attempt recorded. Steps is how many model calls those records hold.
type Invocation struct {
	Task         agentsvc.TaskID
	Turn         int64
	Frame        string // the path of this agent within the turn, "" for the task's own
	Conversation []agentsvc.Entry
	Steps        int
	// Frames is what earlier attempts recorded of the agents below, by their paths.
	Frames map[string][]agentsvc.Entry
	// CallStates is what earlier attempts recorded of the calls that waited for a human.
	CallStates map[CallKey]CallState
	// CredentialRequests is how often earlier attempts have asked for the credential of each tool.
	CredentialRequests map[string]int
	// RegisterCall is told of each tool call, which stop ends, until it calls over. Nil means that nobody wants to know.
	RegisterCall func(call agentsvc.CallID, stop context.CancelCauseFunc) (over func())
	// GlobalInstruction is what the agents above put before this one's instruction.
	GlobalInstruction string
}

// CallKey names a tool call within a turn.
type CallKey struct {
	Frame string
	Call  agentsvc.CallID
}

// CallState is how far a call has come that waited for a human.
type CallState struct {
	Decision *agentsvc.Decision // that nobody has acted on yet
	Supplied bool               // its credential was, and it has not run since
	Begun    *agentsvc.ToolCall // as it was run after an earlier decision; with what effect is unknown, unless it is Supplied
}

// NewChild returns the invocation of a sub-agent in a frame of its own, whose name is unique among its siblings. It goes
// on from talk and from what earlier attempts recorded of that frame.
func (inv Invocation) NewChild(name string, conversation []agentsvc.Entry) Invocation {
	path := name
	if inv.Frame != "" {
		path = inv.Frame + "/" + name
	}
	recorded := inv.Frames[path]
	return Invocation{
		Task: inv.Task, Turn: inv.Turn, Frame: path, Conversation: slices.Concat(conversation, recorded), Steps: CountSteps(recorded), Frames: inv.Frames,
		CallStates: inv.CallStates, CredentialRequests: inv.CredentialRequests, RegisterCall: inv.RegisterCall, GlobalInstruction: inv.GlobalInstruction,
	}
}

// newChildBelow is Child under an agent that puts global before the instructions of those below it.
func (inv Invocation) newChildBelow(name string, conversation []agentsvc.Entry, global string) Invocation {
	child := inv.NewChild(name, conversation)
	child.GlobalInstruction = joinParagraphs(inv.GlobalInstruction, global)
	return child
}

// CountSteps counts the model calls that entries record.
func CountSteps(entries []agentsvc.Entry) (n int) {
	for _, e := range entries {
		if e.Message != nil && e.Message.Role == agentsvc.RoleAgent {
			n++
		}
	}
	return n
}

// stepID names the n-th model call of the turn in this frame: the same in each attempt.
func (inv Invocation) stepID(n int) string {
	if inv.Frame == "" {
		return fmt.Sprintf("%s/%d/%d", inv.Task, inv.Turn, n)
	}
	return fmt.Sprintf("%s/%d/%s/%d", inv.Task, inv.Turn, inv.Frame, n)
}

// canReplyAlone reports whether the answer to the model call of a step may stand alone: it is the task's own agent's first word on
// the message that the task began with.
func (inv Invocation) canReplyAlone(step string) bool {
	return inv.Frame == "" && inv.Turn == 1 && step == inv.stepID(0)
}

// ErrTooManySteps says that an agent went on thinking past its bound.
var ErrTooManySteps = errors.New("the agent has used up its model calls without finishing")
