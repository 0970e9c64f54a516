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
	Instruction string
	Prompt      Prompt    // what else makes up the system prompt
	Tools       *tool.Set // nil = none
	SubAgents   []Member  // that control can be transferred to
	AgentTools  []Member  // that are used like tools
	Reasoning   Reasoning
	Output      *Output // the JSON that the answer is, nil = any text
	Whole       bool    // yield no chunks, only whole messages
	MaxBytes    int     // of one answer, as [llm.Request] has it
	Window      Window  // what of a conversation the model gets to see, nil = all
	// Background returns what else the model should know in a turn that begins with talk; it may be nil.
	Background func(ctx context.Context, talk []agentsvc.Entry) string
}

// LLM is an agent that asks a model, runs the tools it calls and asks again until the model has its answer.
type LLM struct {
	model    llm.Provider
	o        Options
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
		o.Whole = true // what does not fit yet is nothing to show
	}
	return &LLM{model, o, controls(o)}
}

// Run implements [Agent].
func (a *LLM) Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		t := &turn{LLM: a, inv: inv, talk: inv.Conversation, yield: yield}
		if err := t.run(ctx); err != nil {
			yield(agentsvc.Event{}, err)
		}
	}
}

// turn is one run of an LLM agent. Its methods return errStopped when the consumer has broken off.
type turn struct {
	*LLM
	inv   Invocation
	talk  []agentsvc.Entry
	yield func(agentsvc.Event, error) bool
	sight
	// making holds the answer that is being made, until it is on record: then whoever keeps it answers for its memory.
	making *capacity.Hold
}

// makingFactor is how many bytes of the app's memory a byte of an answer counts for while it is made: it is there as text, as
// events, and as rows of the log and of the session.
const makingFactor = 2

func (t *turn) run(ctx context.Context) error {
	t.making = capacity.Of(ctx).Beside(makingFactor)
	defer t.making.Release()
	if err := t.loop(ctx); !errors.Is(err, errStopped) {
		return err
	}
	return nil
}

// live gives the turn the tools there are now. Where its caller's credential is needed to know them, the turn ends until
// it is there.
func (t *turn) live(ctx context.Context) error {
	tools, err := t.o.Tools.Live(ctx)
	var missing *tool.CredentialError
	switch {
	case errors.As(err, &missing):
		a, err := t.wants(missing, agentsvc.ToolCall{ID: agentsvc.CallID("tools_of_" + missing.Tool), Name: missing.Tool})
		if err != nil {
			return err
		}
		return t.wait([]agentsvc.Approval{a})
	case err != nil:
		return err
	}
	now := *t.LLM
	now.o.Tools = tools
	t.LLM = &now
	return nil
}

func (t *turn) loop(ctx context.Context) error {
	if err := t.live(ctx); err != nil {
		return err
	}
	interrupted := len(unanswered(t.talk)) > 0
	if last, err := t.act(ctx, t.inv.Steps-1, t.recover); err != nil || last != nil {
		return t.finish(last, err)
	}
	if interrupted && !t.yield(agentsvc.Event{Checkpoint: &agentsvc.Checkpoint{Reason: agentsvc.AfterTools, Step: t.inv.Steps}}, nil) {
		return errStopped
	}
	for n := t.inv.Steps; n < t.o.Reasoning.MaxSteps; n++ {
		if !t.yield(agentsvc.Event{Checkpoint: &agentsvc.Checkpoint{Reason: agentsvc.BeforeLLM, Step: n}}, nil) {
			return errStopped
		}
		ans, err := t.think(ctx, n)
		if err != nil {
			return err
		}
		switch ans.stop {
		case llm.StopTools:
			if err := t.say(ans.msg); err != nil {
				return err
			}
			last, err := t.act(ctx, n, t.call)
			if err != nil || last != nil {
				return t.finish(last, err)
			}
			if !t.yield(agentsvc.Event{Checkpoint: &agentsvc.Checkpoint{Reason: agentsvc.AfterTools, Step: n + 1}}, nil) {
				return errStopped
			}
		case llm.StopAsk:
			return t.end(agentsvc.InputRequired, ans.msg)
		case llm.StopRefusal:
			return t.end(agentsvc.Rejected, ans.msg)
		default:
			if t.o.Reasoning.until(NoToolCalls) {
				return t.finish(&ans.msg, nil)
			}
			if err := t.say(goesOn.on(ans.msg)); err != nil {
				return err
			}
		}
	}
	return ErrTooLong
}

// say puts msg, which is not all there is to say, on record and into the conversation.
func (t *turn) say(msg agentsvc.Message) error {
	msg.Alone = false
	t.talk = append(t.talk, agentsvc.Entry{Message: &msg})
	if !t.yield(agentsvc.Event{Message: &msg}, nil) {
		return errStopped
	}
	t.making.Release()
	return nil
}

// finish ends the turn with its answer, unless it met an error.
func (t *turn) finish(answer *agentsvc.Message, err error) error {
	if err != nil {
		return err
	}
	if len(answer.Metadata) == 0 && t.gaveBack() {
		*answer = handed.on(*answer)
	}
	return t.end(agentsvc.Completed, *answer)
}

func (t *turn) end(state agentsvc.State, msg agentsvc.Message) error {
	t.yield(agentsvc.Event{Status: &agentsvc.Status{State: state, Message: &msg}}, nil)
	return nil
}

// message returns a new message of the agent.
func (t *turn) message(text string) agentsvc.Message {
	return agentsvc.Message{
		ID: agentsvc.MessageID(agentsvc.NewID()), Task: t.inv.Task, Role: agentsvc.RoleAgent, Parts: []agentsvc.Part{agentsvc.TextPart(text)},
	}
}

// answer is what the model said in one call.
type answer struct {
	msg  agentsvc.Message
	stop llm.Stop
}

// think makes the n-th model call of the turn. An answer that is not the JSON it should be is asked for once more; it
// goes on record only when it is right.
func (t *turn) think(ctx context.Context, n int) (answer, error) {
	talk := t.talk
	if last := len(talk) - 1; last >= 0 && talk[last].Message != nil && talk[last].Message.Role == agentsvc.RoleAgent {
		talk = append(slices.Clip(talk), prompted("Go on. "+t.howToEnd()))
	}
	ans, err := t.ask(ctx, t.inv.step(n), talk)
	if err != nil || t.o.Output == nil || !ans.final() || !t.o.Reasoning.until(NoToolCalls) {
		return ans, err
	}
	right, problem := t.o.Output.fit(ctx, ans.msg)
	if problem != nil {
		again := append(slices.Clip(talk), agentsvc.Entry{Message: &ans.msg},
			prompted(fmt.Sprintf("Your answer %v. Give the whole answer again, as the JSON value alone.", problem)))
		if ans, err = t.ask(ctx, t.inv.step(n)+"/again", again); err != nil || !ans.final() {
			return ans, err
		}
		if right, problem = t.o.Output.fit(ctx, ans.msg); problem != nil {
			return ans, agentsvc.Invalid("", "the model was asked twice, and its answer %v", problem)
		}
	}
	ans.msg = right
	return ans, nil
}

// final reports whether the model has said all it has to say.
func (a answer) final() bool {
	return a.stop != llm.StopTools && a.stop != llm.StopAsk && a.stop != llm.StopRefusal
}

// prompted is something that nobody said, but that a model is told as if its user had.
func prompted(text string) agentsvc.Entry {
	return agentsvc.Entry{Message: &agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart(text)}}}
}

// ask makes a model call.
func (t *turn) ask(ctx context.Context, step string, talk []agentsvc.Entry) (answer, error) {
	ans := answer{msg: t.message("")}
	ans.msg.Parts = nil
	talk, system, err := t.see(ctx, talk)
	if err != nil {
		return ans, err
	}
	req := llm.Request{System: system, Conversation: talk, Tools: t.specs(), Step: step, MaxBytes: t.o.MaxBytes}
	if t.making != nil {
		ctx = capacity.With(ctx, t.making)
	}
	var text strings.Builder
	for c, err := range t.model.Stream(ctx, req) {
		if err != nil {
			return ans, err
		}
		ans.msg.Alone = ans.msg.Alone || c.Alone && t.inv.mayReply(step)
		if !t.show(&ans, &text, c) {
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

// show passes a chunk on and adds it to the answer. It reports whether anyone still listens.
func (t *turn) show(ans *answer, text *strings.Builder, c llm.Chunk) bool {
	if c.Text != "" {
		offset := text.Len()
		text.WriteString(c.Text)
		if !t.o.Whole && !ans.msg.Alone && !t.yield(agentsvc.Event{Chunk: &agentsvc.Chunk{Message: ans.msg.ID, Offset: offset, Text: c.Text}}, nil) {
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
