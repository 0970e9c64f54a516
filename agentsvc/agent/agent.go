// Package agent runs the turns of agents. An [Agent] takes an [Invocation] (one turn: its conversation and what earlier
// attempts recorded) and returns its events as an iterator, until a status or an error ends the turn. The kinds are:
//
//   - [LLM]: asks a model, runs the tools that the model calls, and asks again until the turn ends.
//   - [Sequential], [Loop], [Parallel]: run other agents as members.
//   - [Remote]: forwards the turn to an A2A server.
//   - [NewToolRunner]: an LLM agent whose model is a fixed pipeline of tools.
//
// The package does no storage: package runner consumes the iterator and commits the facts at the epoch of its lease.
// When yield returns true for a message, a Call event or a status, that fact is on the log. The runner may write usage,
// checkpoints and the results of a round of tools together with the next fact, and writes approvals with the status
// that follows them.
//
// An agent yields the fact that announces an effect (the message with its tool calls, or a Call event) before it starts
// the effect. The log is therefore ahead of every tool: after a crash, the next attempt finds in its Invocation which
// calls were announced and which of them have a result. It repeats a call whose outcome is unknown only if the tool is
// idempotent or a human agrees.
//
// A turn that needs a human ends: the agent yields Approval events and a status InputRequired or AuthRequired. The
// decision starts a new attempt of the same turn, which finds it in [Invocation.CallStates]; see toolCalls.resumeCalls.
//
// When the lease is lost, the commit of the next fact fails or the context ends, and the runner stops the iteration.
// Each method that yields returns errStopped when yield returns false, so that no further effect starts. Before a call
// whose effect cannot be undone, the lease is checked again ([agentsvc.LeaseCheck.Check] in tool.Set, package upstream
// and [Remote]), since a process that was suspended does not notice the loss by itself.
//
// Sub-agents run in frames. A frame is the path of an agent within a turn, e.g. "researcher[2]/writer". It is the same
// in each attempt, because it is derived from names and step numbers only: records of earlier attempts are found by it.
package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
)

// Agent runs turns. It is safe for concurrent use.
type Agent interface {
	// Run continues inv's conversation. It yields chunks of text, messages, tool results, artifacts and usage as they
	// occur, and last either a status that ends the turn or an error. If the consumer stops the iteration, Run starts
	// no further effect, waits for the tools that run, and returns.
	Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error]
}

// Invocation is one turn to run. The runner builds the one of the task's own agent from the log; [Invocation.newChild]
// derives those of sub-agents. The maps are read-only after that, because sub-agents read them concurrently.
type Invocation struct {
	// RunScope is the run that the turn is executed by. All calls of the turn get it.
	agentsvc.RunScope
	// Memory reserves the memory of the run; nil: no bound.
	Memory *capacity.MemoryReservation
	// Task and Turn (1 for the task's first) identify the turn. Identifiers of model calls and of effects derive from
	// them.
	Task agentsvc.TaskID
	Turn int64
	// Frame is the path of this agent within the turn, "" for the task's own agent.
	Frame string
	// Conversation is the session's entries, then those of the turn: the user's message and what earlier attempts of
	// this turn recorded after it. It is never empty at the task's own agent.
	Conversation []agentsvc.Entry
	// Steps is the number of model calls that the turn's recorded entries contain. The agent goes on with that number.
	Steps int
	// Frames holds the entries that earlier attempts recorded in the frames of sub-agents, by frame path.
	Frames map[string][]agentsvc.Entry
	// CallStates holds the state of the calls that waited for a human in earlier attempts, or were announced by a Call
	// event.
	CallStates map[CallKey]CallState
	// CredentialRequests counts, by tool name, how often earlier attempts asked for the tool's credential.
	CredentialRequests map[string]int
	// RegisterCall registers a running tool call, so that a user can cancel it alone: stop cancels the call's context
	// with an [agentsvc.CallCancelledError]. The agent calls over when the call has ended. Nil: calls cannot be
	// cancelled one by one.
	RegisterCall func(call agentsvc.CallID, stop context.CancelCauseFunc) (over func())
	// GlobalInstruction is the text that the agents above put before this agent's instruction.
	GlobalInstruction string
	// transfers counts the transfers of the turn; nil: no agent of the turn can transfer control yet.
	transfers *transferCounter
	// slots are those of the turn's sub-agents; nil: no agent above has sub-agents, see [Invocation.withAgentSlots].
	slots agentSlots
}

// CallKey identifies a tool call within a turn. A model may use the same call id in two frames.
type CallKey struct {
	Frame string
	Call  agentsvc.CallID
}

// CallState is the state of a call that waited for a human, as recorded by earlier attempts.
type CallState struct {
	// Decision was made and has not been applied: no Call or Result event follows it. Nil: none.
	Decision *agentsvc.Decision
	// Supplied reports that the caller supplied the credential that the call lacked, and that the call has not run
	// since.
	Supplied bool
	// Begun is the call with the arguments it started with after an earlier decision. The outcome is unknown, unless
	// Supplied is set: then the attempt ended for want of a credential, before any effect.
	Begun *agentsvc.ToolCall
}

// newChild returns the invocation of a sub-agent whose frame is inv's frame plus name. The name must be unique among
// the frames of the same parent and the same in each attempt. The child's conversation is the given one followed by
// what earlier attempts recorded in that frame, so that the child resumes where it stopped.
func (inv Invocation) newChild(name string, conversation []agentsvc.Entry) Invocation {
	path := name
	if inv.Frame != "" {
		path = inv.Frame + "/" + name
	}
	recorded := inv.Frames[path]
	child := inv
	child.Frame, child.Conversation, child.Steps = path, slices.Concat(conversation, recorded), CountSteps(recorded)
	return child
}

// newChildBelow returns [Invocation.newChild] with global appended to the global instruction.
func (inv Invocation) newChildBelow(name string, conversation []agentsvc.Entry, global string) Invocation {
	child := inv.newChild(name, conversation)
	child.GlobalInstruction = joinParagraphs(inv.GlobalInstruction, global)
	return child
}

// CountSteps returns the number of model calls that entries record: one for each message of an agent.
func CountSteps(entries []agentsvc.Entry) (n int) {
	for _, e := range entries {
		if e.Message != nil && e.Message.Role == agentsvc.RoleAgent {
			n++
		}
	}
	return n
}

// stepID returns the identifier of the n-th model call (from 0) of the turn in this frame. It is the same in each
// attempt; ids that are generated for the answer's tool calls derive from it.
func (inv Invocation) stepID(n int) string {
	if inv.Frame == "" {
		return fmt.Sprintf("%s/%d/%d", inv.Task, inv.Turn, n)
	}
	return fmt.Sprintf("%s/%d/%s/%d", inv.Task, inv.Turn, inv.Frame, n)
}

// canReplyAlone reports whether the answer to the given step may be marked Standalone, i.e. be returned to the caller
// as a message instead of a task (A2A: SendMessage answers with either). That holds only for the first model call of
// the task's own agent in the first turn: later, the caller already knows the task.
func (inv Invocation) canReplyAlone(step string) bool {
	return inv.Frame == "" && inv.Turn == 1 && step == inv.stepID(0)
}

// ErrTooManySteps reports that an agent made Reasoning.MaxSteps model calls without ending its turn.
var ErrTooManySteps = errors.New("the agent has used up its model calls without finishing")
