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
	// Settled is what earlier attempts recorded of the calls that waited for a human.
	Settled map[CallKey]Settled
	// Asked is how often earlier attempts have asked for the credential of each tool.
	Asked map[string]int
	// Running is told of each tool call, which stop ends, until it calls over. Nil means that nobody wants to know.
	Running func(call agentsvc.CallID, stop context.CancelCauseFunc) (over func())
	// Global is what the agents above put before this one's instruction.
	Global string
}

// CallKey names a tool call within a turn.
type CallKey struct {
	Frame string
	Call  agentsvc.CallID
}

// Settled is how far a call has come that waited for a human.
type Settled struct {
	Decision *agentsvc.Decision // that nobody has acted on yet
	Supplied bool               // its credential was, and it has not run since
	Begun    *agentsvc.ToolCall // as it was run after an earlier decision; with what effect is unknown, unless it is Supplied
}

// Child returns the invocation of a sub-agent in a frame of its own, whose name is unique among its siblings. It goes
// on from talk and from what earlier attempts recorded of that frame.
func (inv Invocation) Child(name string, talk []agentsvc.Entry) Invocation {
	path := name
	if inv.Frame != "" {
		path = inv.Frame + "/" + name
	}
	recorded := inv.Frames[path]
	return Invocation{
		Task: inv.Task, Turn: inv.Turn, Frame: path, Conversation: slices.Concat(talk, recorded), Steps: Steps(recorded), Frames: inv.Frames,
		Settled: inv.Settled, Asked: inv.Asked, Running: inv.Running, Global: inv.Global,
	}
}

// below is Child under an agent that puts global before the instructions of those below it.
func (inv Invocation) below(name string, talk []agentsvc.Entry, global string) Invocation {
	child := inv.Child(name, talk)
	child.Global = paragraphs(inv.Global, global)
	return child
}

// Steps counts the model calls that entries record.
func Steps(entries []agentsvc.Entry) (n int) {
	for _, e := range entries {
		if e.Message != nil && e.Message.Role == agentsvc.RoleAgent {
			n++
		}
	}
	return n
}

// step names the n-th model call of the turn in this frame: the same in each attempt.
func (inv Invocation) step(n int) string {
	if inv.Frame == "" {
		return fmt.Sprintf("%s/%d/%d", inv.Task, inv.Turn, n)
	}
	return fmt.Sprintf("%s/%d/%s/%d", inv.Task, inv.Turn, inv.Frame, n)
}

// mayReply reports whether the answer to the model call of a step may stand alone: it is the task's own agent's first word on
// the message that the task began with.
func (inv Invocation) mayReply(step string) bool {
	return inv.Frame == "" && inv.Turn == 1 && step == inv.step(0)
}

// ErrTooLong says that an agent went on thinking past its bound.
var ErrTooLong = errors.New("the agent has used up its model calls without finishing")
