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

// maxSteps bounds the model calls of one turn.
const maxSteps = 100

// Options tune an [LLM] agent. The zero value works.
type Options struct {
	Instruction  string
	Prompt       Prompt    // what else makes up the system prompt
	Tools        *tool.Set // nil = none
	SubAgents    []Member  // that control can be transferred to
	AgentTools   []Member  // that are used like tools
	Reasoning    Reasoning
	Output       *Output // the JSON that the answer is, nil = any text
	CompleteOnly bool    // yield no chunks, only whole messages
	MaxBytes     int     // of one answer, as [llm.Request] has it
	Window       Window  // what of a conversation the model gets to see, nil = all
	// Background returns what else the model should know in a turn that begins with talk; it may be nil.
	Background func(ctx context.Context, conversation []agentsvc.Entry) string
}

// LLM is an agent that asks a model, runs the tools it calls and asks again until the model has its answer.
type LLM struct {
	model    llm.Provider
	options  Options
	controls []control
}

// NewLLM returns an agent that thinks with model. A tool of the set that bears the name of one that steers the turn is
// not offered.
func NewLLM(model llm.Provider, o Options) *LLM {
	if o.Tools == nil {
		o.Tools = &tool.Set{}
	}
	if o.Reasoning.MaxSteps == 0 {
		o.Reasoning.MaxSteps = maxSteps
	}
	if o.Output != nil {
		o.CompleteOnly = true // what does not fit yet is nothing to show
	}
	return &LLM{model, o, listControls(o)}
}

// Run implements [Agent].
func (a *LLM) Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		t := &llmRun{LLM: a, inv: inv, conversation: inv.Conversation, yield: yield}
		if err := t.runTurn(ctx); err != nil {
			yield(agentsvc.Event{}, err)
		}
	}
}

// llmRun is one run of an LLM agent. Its methods return errStopped when the consumer has broken off.
type llmRun struct {
	*LLM
	inv          Invocation
	conversation []agentsvc.Entry
	yield        func(agentsvc.Event, error) bool
	modelView
	// answerMemory holds the answer that is being made, until it is on record: then whoever keeps it answers for its memory.
	answerMemory *capacity.Reservation
}

// answerMemoryFactor is how many bytes of the app's memory a byte of an answer counts for while it is made: it is there as text, as
// events, and as rows of the log and of the session.
const answerMemoryFactor = 2

func (t *llmRun) runTurn(ctx context.Context) error {
	t.answerMemory = capacity.ReservationFrom(ctx).NewPart(answerMemoryFactor)
	defer t.answerMemory.ReleaseBytes()
	if err := t.runSteps(ctx); !errors.Is(err, errStopped) {
		return err
	}
	return nil
}

// loadTools gives the turn the tools there are now. Where its caller's credential is needed to know them, the turn ends until
// it is there.
func (t *llmRun) loadTools(ctx context.Context) error {
	tools, err := t.options.Tools.LoadLiveSet(ctx)
	var missing *tool.CredentialError
	switch {
	case errors.As(err, &missing):
		a, err := t.newCredentialRequest(missing, agentsvc.ToolCall{ID: agentsvc.CallID("tools_of_" + missing.Tool), Name: missing.Tool})
		if err != nil {
			return err
		}
		return t.waitForHuman([]agentsvc.Approval{a})
	case err != nil:
		return err
	}
	now := *t.LLM
	now.options.Tools = tools
	t.LLM = &now
	return nil
}

func (t *llmRun) runSteps(ctx context.Context) error {
	if err := t.loadTools(ctx); err != nil {
		return err
	}
	interrupted := len(findOpenCalls(t.conversation)) > 0
	if last, err := t.executeCalls(ctx, t.inv.Steps-1, t.resumeCalls); err != nil || last != nil {
		return t.finishTurn(last, err)
	}
	if interrupted && !t.yield(agentsvc.Event{Checkpoint: &agentsvc.Checkpoint{Reason: agentsvc.AfterTools, Step: t.inv.Steps}}, nil) {
		return errStopped
	}
	for n := t.inv.Steps; n < t.options.Reasoning.MaxSteps; n++ {
		if !t.yield(agentsvc.Event{Checkpoint: &agentsvc.Checkpoint{Reason: agentsvc.BeforeLLM, Step: n}}, nil) {
			return errStopped
		}
		ans, err := t.requestAnswer(ctx, n)
		if err != nil {
			return err
		}
		switch ans.stop {
		case llm.StopTools:
			if err := t.recordMessage(ans.msg); err != nil {
				return err
			}
			last, err := t.executeCalls(ctx, n, t.startCalls)
			if err != nil || last != nil {
				return t.finishTurn(last, err)
			}
			if !t.yield(agentsvc.Event{Checkpoint: &agentsvc.Checkpoint{Reason: agentsvc.AfterTools, Step: n + 1}}, nil) {
				return errStopped
			}
		case llm.StopInputRequired:
			return t.yieldStatus(agentsvc.InputRequired, ans.msg)
		case llm.StopRefusal:
			return t.yieldStatus(agentsvc.Rejected, ans.msg)
		default:
			if t.options.Reasoning.endsOn(NoToolCalls) {
				return t.finishTurn(&ans.msg, nil)
			}
			if err := t.recordMessage(markContinues.applyTo(ans.msg)); err != nil {
				return err
			}
		}
	}
	return ErrTooManySteps
}

// recordMessage puts msg, which is not all there is to say, on record and into the conversation.
func (t *llmRun) recordMessage(msg agentsvc.Message) error {
	msg.Standalone = false
	t.conversation = append(t.conversation, agentsvc.Entry{Message: &msg})
	if !t.yield(agentsvc.Event{Message: &msg}, nil) {
		return errStopped
	}
	t.answerMemory.ReleaseBytes()
	return nil
}

// finishTurn ends the turn with its answer, unless it met an error.
func (t *llmRun) finishTurn(answer *agentsvc.Message, err error) error {
	if err != nil {
		return err
	}
	if len(answer.Metadata) == 0 && t.hasEscalated() {
		*answer = markReturned.applyTo(*answer)
	}
	return t.yieldStatus(agentsvc.Completed, *answer)
}

func (t *llmRun) yieldStatus(state agentsvc.State, msg agentsvc.Message) error {
	t.yield(agentsvc.Event{Status: &agentsvc.Status{State: state, Message: &msg}}, nil)
	return nil
}

// newMessage returns a new message of the agent.
func (t *llmRun) newMessage(text string) agentsvc.Message {
	return agentsvc.Message{
		ID: agentsvc.MessageID(agentsvc.NewID()), Task: t.inv.Task, Role: agentsvc.RoleAgent, Parts: []agentsvc.Part{agentsvc.TextPart(text)},
	}
}

// modelAnswer is what the model said in one call.
type modelAnswer struct {
	msg  agentsvc.Message
	stop llm.StopReason
}

// requestAnswer makes the n-th model call of the turn. An answer that is not the JSON it should be is asked for once more; it
// goes on record only when it is right.
func (t *llmRun) requestAnswer(ctx context.Context, n int) (modelAnswer, error) {
	conversation := t.conversation
	if last := len(conversation) - 1; last >= 0 && conversation[last].Message != nil && conversation[last].Message.Role == agentsvc.RoleAgent {
		conversation = append(slices.Clip(conversation), newPrompt("Go on. "+t.describeEndings()))
	}
	ans, err := t.callModel(ctx, t.inv.stepID(n), conversation)
	if err != nil || t.options.Output == nil || !ans.isFinal() || !t.options.Reasoning.endsOn(NoToolCalls) {
		return ans, err
	}
	right, problem := t.options.Output.conformAnswer(ctx, ans.msg)
	if problem != nil {
		again := append(slices.Clip(conversation), agentsvc.Entry{Message: &ans.msg},
			newPrompt(fmt.Sprintf("Your answer %v. Give the whole answer again, as the JSON value alone.", problem)))
		if ans, err = t.callModel(ctx, t.inv.stepID(n)+"/again", again); err != nil || !ans.isFinal() {
			return ans, err
		}
		if right, problem = t.options.Output.conformAnswer(ctx, ans.msg); problem != nil {
			return ans, agentsvc.NewInvalidError("", "the model was asked twice, and its answer %v", problem)
		}
	}
	ans.msg = right
	return ans, nil
}

// isFinal reports whether the model has said all it has to say.
func (a modelAnswer) isFinal() bool {
	return a.stop != llm.StopTools && a.stop != llm.StopInputRequired && a.stop != llm.StopRefusal
}

// newPrompt is something that nobody said, but that a model is told as if its user had.
func newPrompt(text string) agentsvc.Entry {
	return agentsvc.Entry{Message: &agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart(text)}}}
}

// callModel makes a model call.
func (t *llmRun) callModel(ctx context.Context, step string, conversation []agentsvc.Entry) (modelAnswer, error) {
	ans := modelAnswer{msg: t.newMessage("")}
	ans.msg.Parts = nil
	conversation, system, err := t.selectConversation(ctx, conversation)
	if err != nil {
		return ans, err
	}
	req := llm.Request{System: system, Conversation: conversation, Tools: t.listToolSpecs(), Step: step, MaxBytes: t.options.MaxBytes}
	if t.answerMemory != nil {
		ctx = capacity.WithReservation(ctx, t.answerMemory)
	}
	var text strings.Builder
	for c, err := range t.model.Stream(ctx, req) {
		if err != nil {
			return ans, err
		}
		ans.msg.Standalone = ans.msg.Standalone || c.Standalone && t.inv.canReplyAlone(step)
		if !t.addChunk(&ans, &text, c) {
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
		ans.stop = llm.StopEnd // it waits for nothing
	}
	return ans, ctx.Err()
}

// addChunk passes a chunk on and adds it to the answer. It reports whether anyone still listens.
func (t *llmRun) addChunk(ans *modelAnswer, text *strings.Builder, c llm.Chunk) bool {
	if c.Text != "" {
		offset := text.Len()
		text.WriteString(c.Text)
		if !t.options.CompleteOnly && !ans.msg.Standalone && !t.yield(agentsvc.Event{Chunk: &agentsvc.Chunk{Message: ans.msg.ID, Offset: offset, Text: c.Text}}, nil) {
			return false
		}
	}
	if c.Artifact != nil && !t.yield(agentsvc.Event{Artifact: c.Artifact}, nil) {
		return false
	}
	if c.ToolCall != nil {
		ans.msg.ToolCalls = append(ans.msg.ToolCalls, *c.ToolCall)
	}
	return c.Usage == nil || t.yield(agentsvc.Event{Usage: c.Usage}, nil)
}
