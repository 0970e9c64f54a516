package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/tool"
)

// maxSteps bounds the model calls of one turn where [Reasoning.MaxSteps] is 0, so that a model that keeps calling tools
// ends.
const maxSteps = 100

// Options configure an [LLM] agent. The zero value works. They are read-only once [NewLLM] has them.
type Options struct {
	Instruction string
	// Prompt holds the other parts of the system prompt.
	Prompt Prompt
	// Tools that the model may call; nil: none. SubAgents are the agents to which control can be transferred;
	// AgentTools are agents that answer a single request, like tools. Both are offered to the model as tools, see
	// listControls.
	Tools      *tool.Set
	SubAgents  []Member
	AgentTools []Member
	Reasoning  Reasoning
	// Output is the JSON format of the final answer; nil: any text.
	Output *Output
	// CompleteOnly suppresses Chunk events: only whole messages are yielded.
	CompleteOnly bool
	// MaxBytes bounds one answer of the model, see [llm.Request].
	MaxBytes int
	// Window selects the part of the conversation that the model receives; nil: all of it.
	Window Window
	// Background returns text that is appended to the system prompt, e.g. memories that fit the conversation. It is
	// called once a turn, before the first model call. It may be nil.
	Background func(ctx context.Context, scope agentsvc.RunScope, conversation []agentsvc.Entry) string
}

// LLM is an agent that asks a model, runs the tools that the model calls and asks again until the model gives its
// answer. It has no state of a turn and is safe for concurrent use.
type LLM struct {
	model    llm.Provider
	options  Options
	controls controlList
}

// NewLLM returns an agent that uses model. A control (see listControls) hides a tool of the set with the same name.
func NewLLM(model llm.Provider, o Options) *LLM {
	if o.Tools == nil {
		o.Tools = &tool.Set{}
	}
	if o.Reasoning.MaxSteps == 0 {
		o.Reasoning.MaxSteps = maxSteps
	}
	if o.Reasoning.MaxTransfers == 0 {
		o.Reasoning.MaxTransfers = maxTransfers
	}
	if o.Output != nil {
		// Partial text is not valid JSON, and a rejected answer is requested again: neither is fit to be shown.
		o.CompleteOnly = true
	}
	return &LLM{model, o, listControls(o)}
}

// Run implements [Agent].
func (m *LLM) Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		if inv.transfers == nil && len(m.options.SubAgents) > 0 {
			inv.transfers = &transferCounter{max: m.options.Reasoning.MaxTransfers}
		}
		if len(m.options.AgentTools) > 0 || len(m.options.SubAgents) > 0 {
			inv = inv.withAgentSlots()
		}
		log := &turnRecorder{inv: inv, conversation: inv.Conversation, yield: yield}
		t := &llmRun{LLM: m, turnRecorder: log, tools: toolCalls{log, m.options.Tools}}
		if err := t.runTurn(ctx); err != nil {
			yield(agentsvc.Event{}, err)
		}
	}
}

// llmRun is the state of one turn of an LLM agent. It is used by the goroutine that iterates over Run only; tools and
// sub-agents run in goroutines of their own, but their events are yielded and applied by that one. Its methods return
// errStopped when the consumer has stopped the iteration, or when the turn's last event has been yielded.
type llmRun struct {
	*LLM
	*turnRecorder
	tools toolCalls
	view  modelView
	// answerMemory reserves the memory of the answer that is being received, from the app's part of the process's pool.
	// It is released when the message has been recorded: from then on the runner's reservation counts it. Nil (no
	// bound) where the invocation has no reservation.
	answerMemory *capacity.MemoryReservation
}

// answerMemoryFactor is the number of reserved bytes for each byte of an answer. An answer exists several times while
// it is received: as text, as events, and as rows of the log and of the session.
const answerMemoryFactor = 2

// runTurn runs the turn and releases its memory at the end. It returns nil for errStopped: the turn has already yielded
// its end, or has no consumer any more.
func (r *llmRun) runTurn(ctx context.Context) error {
	r.answerMemory = r.inv.Memory.NewPart(answerMemoryFactor)
	defer r.answerMemory.ReleaseBytes()
	if err := r.runSteps(ctx); !errors.Is(err, errStopped) {
		return err
	}
	return nil
}

// loadTools replaces the configured tools by those that their sources (e.g. MCP servers) list at present; the set then
// stays the same for the whole turn. If a source needs the caller's credential to list its tools, loadTools ends the
// turn with a request for it and returns errStopped. The request's call id is derived from the source's name: no model
// has made this call.
func (r *llmRun) loadTools(ctx context.Context) error {
	tools, err := r.tools.set.LoadLiveSet(ctx, r.inv.Session)
	var missing *tool.CredentialError
	switch {
	case errors.As(err, &missing):
		a, err := r.tools.newCredentialRequest(missing, agentsvc.ToolCall{ID: agentsvc.CallID("tools_of_" + missing.Tool), Name: missing.Tool})
		if err != nil {
			return err
		}
		return r.tools.waitForHuman([]agentsvc.Approval{a})
	case err != nil:
		return err
	}
	r.tools.set = tools
	return nil
}

// runSteps is the loop of the turn. It first finishes what an earlier attempt left open, then alternates model calls
// and tool calls until one of them ends the turn. Checkpoints are yielded before each model call and after each round
// of tools; the runner may restore a task to them.
func (r *llmRun) runSteps(ctx context.Context) error {
	if err := r.loadTools(ctx); err != nil {
		return err
	}
	// The calls of the last recorded message come first: the model may not be asked again before each of them has a
	// result. A turn that waited for a decision resumes here, in resumeCalls.
	interrupted := len(findOpenCalls(r.conversation)) > 0
	if last, err := r.routeCalls(ctx, r.inv.Steps-1, r.tools.resumeCalls); err != nil || last != nil {
		return r.finishTurn(last, err)
	}
	if interrupted && !r.yield(agentsvc.Event{Checkpoint: &agentsvc.Checkpoint{Reason: agentsvc.AfterTools, Step: r.inv.Steps}}, nil) {
		return errStopped
	}
	for n := r.inv.Steps; n < r.options.Reasoning.MaxSteps; n++ {
		if !r.yield(agentsvc.Event{Checkpoint: &agentsvc.Checkpoint{Reason: agentsvc.BeforeLLM, Step: n}}, nil) {
			return errStopped
		}
		ans, err := r.requestAnswer(ctx, n)
		if err != nil {
			return err
		}
		switch ans.stop {
		case llm.StopTools:
			// The message that announces the calls must be on the log before the first of them runs.
			if err := r.recordAnswer(ans.msg); err != nil {
				return err
			}
			last, err := r.routeCalls(ctx, n, r.tools.beginCalls)
			if err != nil || last != nil {
				return r.finishTurn(last, err)
			}
			if !r.yield(agentsvc.Event{Checkpoint: &agentsvc.Checkpoint{Reason: agentsvc.AfterTools, Step: n + 1}}, nil) {
				return errStopped
			}
		case llm.StopInputRequired:
			return r.yieldStatus(agentsvc.InputRequired, ans.msg)
		case llm.StopRefusal:
			return r.yieldStatus(agentsvc.Rejected, ans.msg)
		default:
			if r.options.Reasoning.endsOn(NoToolCalls) {
				return r.finishTurn(&ans.msg, nil)
			}
			// The answer calls no tool, but the configuration says that this does not end the turn. The mark keeps a
			// replay from taking the message for the end of the frame.
			if err := r.recordAnswer(markContinues.applyTo(ans.msg)); err != nil {
				return err
			}
		}
	}
	return ErrTooManySteps
}

// recordAnswer records msg, which does not end the turn, and releases its memory.
func (r *llmRun) recordAnswer(msg agentsvc.Message) error {
	if err := r.recordMessage(msg); err != nil {
		return err
	}
	r.answerMemory.ReleaseBytes()
	return nil
}

// finishTurn ends the turn as completed with answer, or returns err. An agent that called escalate and then answered
// without another mark returns control to the agent above together with its answer.
func (r *llmRun) finishTurn(answer *agentsvc.Message, err error) error {
	if err != nil {
		return err
	}
	if len(answer.Metadata) == 0 && r.controls.hasEscalated(r.conversation) {
		*answer = markReturned.applyTo(*answer)
	}
	return r.yieldStatus(agentsvc.Completed, *answer)
}

// modelAnswer is the outcome of one model call: the message and the reason why the model stopped.
type modelAnswer struct {
	msg  agentsvc.Message
	stop llm.StopReason
}

// requestAnswer makes the n-th model call of the turn. If the conversation ends with a message of the agent itself, it
// appends a prompt to go on, so that the model answers a user's message. A final answer that does not fit
// [Options.Output] is requested once more, with the problem as a prompt; neither the rejected answer nor the prompt is
// recorded. A second misfit is an error with [agentsvc.CodeInvalid].
func (r *llmRun) requestAnswer(ctx context.Context, n int) (modelAnswer, error) {
	conversation := r.conversation
	if last := len(conversation) - 1; last >= 0 && conversation[last].Message != nil && conversation[last].Message.Role == agentsvc.RoleAgent {
		conversation = append(slices.Clip(conversation), newPrompt("Go on. "+r.controls.describeEndings(r.options.Reasoning)))
	}
	ans, err := r.callModel(ctx, r.inv.stepID(n), conversation)
	if err != nil || r.options.Output == nil || !ans.isFinal() || !r.options.Reasoning.endsOn(NoToolCalls) {
		return ans, err
	}
	right, problem := r.options.Output.conformAnswer(ctx, ans.msg)
	if problem != nil {
		again := append(slices.Clip(conversation), agentsvc.Entry{Message: &ans.msg},
			newPrompt(fmt.Sprintf("Your answer %v. Give the whole answer again, as the JSON value alone.", problem)))
		if ans, err = r.callModel(ctx, r.inv.stepID(n)+"/again", again); err != nil || !ans.isFinal() {
			return ans, err
		}
		if right, problem = r.options.Output.conformAnswer(ctx, ans.msg); problem != nil {
			if err := ctx.Err(); err != nil {
				return ans, err // the check was interrupted: nothing is known about the answer
			}
			return ans, agentsvc.NewInvalidError("", "the model was asked twice, and its answer %v", problem)
		}
	}
	ans.msg = right
	return ans, nil
}

// isFinal reports whether the answer asks for nothing: no tool, no input, and it is no refusal.
func (a modelAnswer) isFinal() bool {
	return a.stop != llm.StopTools && a.stop != llm.StopInputRequired && a.stop != llm.StopRefusal
}

// newPrompt returns a user message that the agent itself writes for the model. It is never recorded and has no id.
func newPrompt(text string) agentsvc.Entry {
	return agentsvc.Entry{Message: &agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart(text)}}}
}

// callModel makes one model call, yields its chunks, artifacts and usage, and returns the whole answer. It makes the
// stop reason consistent with the message: StopTools exactly if the message has tool calls, whatever the provider
// reported. On an error the answer holds what had arrived.
func (r *llmRun) callModel(ctx context.Context, step string, conversation []agentsvc.Entry) (modelAnswer, error) {
	ans := modelAnswer{msg: r.newMessage("")}
	ans.msg.Parts = nil
	conversation, system, err := r.selectConversation(ctx, conversation)
	if err != nil {
		return ans, err
	}
	req := llm.Request{RunScope: r.inv.RunScope, Memory: r.answerMemory, System: system, Conversation: conversation, Tools: r.controls.addToSpecs(r.tools.set.Specs()), Step: step, MaxBytes: r.options.MaxBytes}
	if r.options.requestsFormat() {
		req.Output = r.options.Output.format
	}
	var text strings.Builder
	for c, err := range r.model.Stream(ctx, req) {
		if err != nil {
			return ans, err
		}
		ans.msg.Standalone = ans.msg.Standalone || c.Standalone && r.inv.canReplyAlone(step)
		if !r.addChunk(&ans, &text, c) {
			return ans, errStopped
		}
		if c.Stop != "" {
			ans.stop = c.Stop
		}
	}
	if text.Len() > 0 || len(ans.msg.ToolCalls) == 0 {
		ans.msg.Parts = []agentsvc.Part{agentsvc.TextPart(text.String())}
	}
	switch {
	case len(ans.msg.ToolCalls) > 0:
		ans.stop = llm.StopTools
	case ans.stop == llm.StopTools:
		// There is no call to wait for: treat it as the end, else the loop would run an empty round of tools.
		ans.stop = llm.StopEnd
	}
	return ans, ctx.Err()
}

// addChunk adds a chunk of the model's stream to the answer and yields its parts as events. It returns false if the
// consumer has stopped the iteration. Offset is in bytes of the message's text.
func (r *llmRun) addChunk(ans *modelAnswer, text *strings.Builder, c llm.Chunk) bool {
	if c.Text != "" {
		offset := text.Len()
		text.WriteString(c.Text)
		if !r.options.CompleteOnly && !ans.msg.Standalone && !r.yield(agentsvc.Event{Chunk: &agentsvc.Chunk{Message: ans.msg.ID, Offset: offset, Text: c.Text}}, nil) {
			return false
		}
	}
	if c.Artifact != nil && !r.yield(agentsvc.Event{Artifact: c.Artifact}, nil) {
		return false
	}
	if c.ToolCall != nil {
		ans.msg.ToolCalls = append(ans.msg.ToolCalls, *c.ToolCall)
	}
	return c.Usage == nil || r.yield(agentsvc.Event{Usage: c.Usage}, nil)
}
