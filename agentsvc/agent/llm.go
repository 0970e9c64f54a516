package agent

import (
	"context"
	"errors"
	"iter"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/tool"
)

// maxSteps bounds the model calls of one turn.
const maxSteps = 100

// Options tune an [LLM] agent. The zero value works.
type Options struct {
	Instruction string
	Tools       *tool.Set // nil = none
	Whole       bool      // yield no chunks, only whole messages
}

// LLM is an agent that asks a model, runs the tools it calls and asks again until the model has its answer.
type LLM struct {
	model llm.Provider
	o     Options
}

// NewLLM returns an agent that thinks with model.
func NewLLM(model llm.Provider, o Options) *LLM {
	if o.Tools == nil {
		o.Tools = &tool.Set{}
	}
	return &LLM{model, o}
}

// Run implements [Agent].
func (a *LLM) Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error] {
	return func(yield func(agentsvc.Event, error) bool) {
		live, err := a.live(ctx)
		if err != nil {
			yield(agentsvc.Event{}, err)
			return
		}
		t := &turn{LLM: live, inv: inv, talk: inv.Conversation, yield: yield}
		if err := t.run(ctx); err != nil {
			yield(agentsvc.Event{}, err)
		}
	}
}

// live returns the agent with the tools there are now, for one turn.
func (a *LLM) live(ctx context.Context) (*LLM, error) {
	tools, err := a.o.Tools.Live(ctx)
	if err != nil {
		return nil, err
	}
	now := *a
	now.o.Tools = tools
	return &now, nil
}

// turn is one run of an LLM agent. Its methods return errStopped when the consumer has broken off.
type turn struct {
	*LLM
	inv   Invocation
	talk  []agentsvc.Entry
	yield func(agentsvc.Event, error) bool
}

func (t *turn) run(ctx context.Context) error {
	if err := t.loop(ctx); !errors.Is(err, errStopped) {
		return err
	}
	return nil
}

func (t *turn) loop(ctx context.Context) error {
	if open := unanswered(t.talk); len(open) > 0 {
		if err := t.recover(ctx, open); err != nil {
			return err
		}
	}
	for n := t.inv.Steps; n < maxSteps; n++ {
		ans, err := t.ask(ctx, n)
		if err != nil {
			return err
		}
		switch ans.stop {
		case llm.StopTools:
			t.talk = append(t.talk, agentsvc.Entry{Message: &ans.msg})
			if !t.yield(agentsvc.Event{Message: &ans.msg}, nil) {
				return errStopped
			}
			if err := t.call(ctx, ans.msg.ToolCalls); err != nil {
				return err
			}
		case llm.StopAsk:
			return t.end(agentsvc.InputRequired, ans.msg)
		case llm.StopRefusal:
			return t.end(agentsvc.Rejected, ans.msg)
		default:
			return t.end(agentsvc.Completed, ans.msg)
		}
	}
	return ErrTooLong
}

func (t *turn) end(state agentsvc.State, msg agentsvc.Message) error {
	t.yield(agentsvc.Event{Status: &agentsvc.Status{State: state, Message: &msg}}, nil)
	return nil
}

// answer is what the model said in one call.
type answer struct {
	msg  agentsvc.Message
	stop llm.Stop
}

// ask makes the n-th model call of the turn.
func (t *turn) ask(ctx context.Context, n int) (answer, error) {
	ans := answer{msg: agentsvc.Message{ID: agentsvc.MessageID(agentsvc.NewID()), Task: t.inv.Task, Role: agentsvc.RoleAgent}}
	req := llm.Request{System: t.o.Instruction, Conversation: t.talk, Tools: t.o.Tools.Specs(), Step: t.inv.step(n)}
	var text strings.Builder
	for c, err := range t.model.Stream(ctx, req) {
		if err != nil {
			return ans, err
		}
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
		if !t.o.Whole && !t.yield(agentsvc.Event{Chunk: &agentsvc.Chunk{Message: ans.msg.ID, Offset: offset, Text: c.Text}}, nil) {
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
