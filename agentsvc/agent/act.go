package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"stoa/agentsvc"
)

// act carries out the calls of the conversation's last agent message, the answer to the n-th model call of the turn,
// as far as they have no result yet: first the tools, by way of run, then what steers the turn, then the other agents.
// It returns the message that ends the turn, nil if the model is to be asked again.
func (t *turn) act(ctx context.Context, n int, run func(context.Context, []agentsvc.ToolCall) error) (*agentsvc.Message, error) {
	msg := announced(t.talk)
	if msg == nil {
		return nil, nil
	}
	var tools, agents, own []agentsvc.ToolCall
	for _, c := range unanswered(t.talk) {
		switch ctl, ok := t.control(c.Name); {
		case !ok:
			tools = append(tools, c)
		case ctl.kind == transfer || ctl.kind == consult:
			agents = append(agents, c)
		default:
			own = append(own, c)
		}
	}
	if len(tools) > 0 {
		if err := run(ctx, tools); err != nil {
			return nil, err
		}
	}
	for _, c := range own {
		if err := t.settle(ctx, *msg, c); err != nil {
			return nil, err
		}
	}
	answers := map[agentsvc.CallID]agentsvc.Message{}
	if err := t.agents(ctx, n, msg, agents, answers); err != nil {
		return nil, err
	}
	return t.verdict(ctx, n, msg, answers)
}

// agents has other agents carry out calls, side by side, and puts what those say that control was transferred to into
// answers.
func (t *turn) agents(ctx context.Context, n int, msg *agentsvc.Message, calls []agentsvc.ToolCall, answers map[agentsvc.CallID]agentsvc.Message) error {
	before := t.talk[:slices.IndexFunc(t.talk, func(e agentsvc.Entry) bool { return e.Message == msg })]
	got := make([]outcome, len(calls))
	results := make([]*agentsvc.ToolResult, len(calls))
	err := gather(ctx, len(calls), t.yield, func(ctx context.Context, i int, out emit) (err error) {
		res := agentsvc.ToolResult{Call: calls[i].ID, Name: calls[i].Name}
		got[i], err = t.agent(ctx, n, msg, calls[i], before, out)
		switch reason := refusal(err); {
		case reason != "":
			res.Failed, res.Text = true, reason
		case err != nil:
			return err
		case got[i].rest == nil:
			res.Text = t.report(calls[i], got[i].answer)
		case got[i].waits:
			return nil // the call goes on when somebody has decided
		default:
			res.Text = fmt.Sprintf("%s: %s", got[i].rest.Status.State, restText(got[i].rest))
		}
		results[i] = &res
		if !out(agentsvc.Event{Result: &res}) {
			return errStopped
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, c := range calls {
		if rest := got[i].rest; rest != nil {
			t.yield(*rest, nil)
			return errStopped
		}
		t.talk = append(t.talk, agentsvc.Entry{Result: results[i]})
		answers[c.ID] = got[i].answer
	}
	return nil
}

// agent has another agent carry out the call c of msg, which the conversation before led to.
func (t *turn) agent(ctx context.Context, n int, msg *agentsvc.Message, c agentsvc.ToolCall, before []agentsvc.Entry, out emit) (outcome, error) {
	ctl, _ := t.control(c.Name)
	w, err := ctl.words(c)
	if err != nil {
		return outcome{}, agentsvc.Invalid("", "%v", err)
	}
	at := slices.IndexFunc(msg.ToolCalls, func(other agentsvc.ToolCall) bool { return other.ID == c.ID })
	if ctl.kind == consult {
		ask := agentsvc.Message{ID: agentsvc.MessageID(c.ID), Task: t.inv.Task, Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart(w.Request)}}
		frame := fmt.Sprintf("%s[%d.%d]", ctl.to.Name, n+1, at+1)
		return delegate(ctx, ctl.to.Agent, t.below(frame, []agentsvc.Entry{{Message: &ask}}), false, out)
	}
	for _, other := range msg.ToolCalls[:at] {
		if first, ok := t.control(other.Name); ok && first.kind == transfer {
			return outcome{}, agentsvc.Invalid("", "control can be handed to one agent at a time, and %s comes first", other.Name)
		}
	}
	talk := spoken(before)
	if w.Note != "" {
		talk = append(talk, heard("note", agentsvc.Message{ID: agentsvc.MessageID(c.ID), Task: t.inv.Task, Parts: []agentsvc.Part{agentsvc.TextPart(w.Note)}}))
	}
	shown := !t.o.Whole && t.o.Reasoning.until(Transferred)
	return delegate(ctx, ctl.to.Agent, t.below(transferFrame(ctl, n), talk), shown, out)
}

// transferFrame names the frame of an agent that takes over after the n-th model call.
func transferFrame(c control, n int) string { return fmt.Sprintf("%s[%d]", c.to.Name, n+1) }

func (t *turn) below(frame string, talk []agentsvc.Entry) Invocation {
	return t.inv.below(frame, talk, t.o.Prompt.Global)
}

// refusal is what a model is told of an agent that could not do what it was asked to, "" where err is another one.
func refusal(err error) string {
	var invalid *agentsvc.InvalidError
	if errors.As(err, &invalid) || errors.Is(err, ErrTooLong) {
		return err.Error()
	}
	return ""
}

// report is the result of a call that another agent has answered.
func (t *turn) report(c agentsvc.ToolCall, answer agentsvc.Message) string {
	ctl, _ := t.control(c.Name)
	switch {
	case marked(answer, escalated):
		return ctl.to.Name + " gives control back: " + answer.Text()
	case ctl.kind == transfer && !marked(answer, handed) && t.o.Reasoning.until(Transferred):
		return ctl.to.Name + " has taken over and answered."
	}
	return answer.Text()
}

func restText(rest *agentsvc.Event) string {
	if m := rest.Status.Message; m != nil {
		return m.Text()
	}
	return ""
}

// settle gives a call of exit or escalate its result.
func (t *turn) settle(ctx context.Context, msg agentsvc.Message, c agentsvc.ToolCall) error {
	ctl, _ := t.control(c.Name)
	res := agentsvc.ToolResult{Call: c.ID, Name: c.Name, Text: "The turn ends."}
	w, err := ctl.words(c)
	switch {
	case err == nil && ctl.kind == exit:
		_, err = t.exit(ctx, msg, w)
	case err == nil:
		res.Text = "Control goes back."
	}
	if err != nil {
		res.Failed, res.Text = true, err.Error()
	}
	t.talk = append(t.talk, agentsvc.Entry{Result: &res})
	if !t.yield(agentsvc.Event{Result: &res}, nil) {
		return errStopped
	}
	return nil
}

// exit returns the answer with which the agent ends its turn in msg, or what is wrong with it.
func (t *turn) exit(ctx context.Context, msg agentsvc.Message, w words) (agentsvc.Message, error) {
	answer := t.message(w.Answer)
	if w.Answer == "" {
		answer.Parts = msg.Parts
	}
	if t.o.Output == nil {
		return answer, nil
	}
	answer, err := t.o.Output.fit(ctx, answer)
	if err != nil {
		return answer, fmt.Errorf("the answer %w", err)
	}
	return answer, nil
}

// verdict returns the message with which the calls of msg, which all have their results, end the turn, if they do. It
// follows from what is on record alone, so that it is the same after a crash.
func (t *turn) verdict(ctx context.Context, n int, msg *agentsvc.Message, answers map[agentsvc.CallID]agentsvc.Message) (*agentsvc.Message, error) {
	for _, c := range msg.ToolCalls {
		ctl, ok := t.control(c.Name)
		if !ok || t.failed(c.ID) {
			continue
		}
		w, err := ctl.words(c)
		if err != nil {
			return nil, err
		}
		switch ctl.kind {
		case exit:
			answer, err := t.exit(ctx, *msg, w)
			answer = exited.on(answer)
			return &answer, err
		case escalate:
			if t.o.Reasoning.until(Escalated) {
				answer := escalated.on(t.message(w.Reason))
				return &answer, nil
			}
		case transfer:
			answer, ok := answers[c.ID]
			if last := ended(t.inv.Frames[t.below(transferFrame(ctl, n), nil).Frame]); !ok && last != nil {
				answer, ok = *last, true
			}
			if ok && t.o.Reasoning.until(Transferred) && !marked(answer, escalated, handed) {
				answer = plain(answer)
				return &answer, nil
			}
		}
	}
	return nil, ctx.Err()
}

// failed reports whether the result of a call tells of an error.
func (t *turn) failed(id agentsvc.CallID) bool {
	for _, e := range slices.Backward(t.talk) {
		if e.Result != nil && e.Result.Call == id {
			return e.Result.Failed
		}
		if e.Message != nil {
			break
		}
	}
	return false
}

// announced returns the last message of talk if it is an agent's with calls, whatever results follow it.
func announced(talk []agentsvc.Entry) *agentsvc.Message {
	for _, e := range slices.Backward(talk) {
		if e.Result != nil {
			continue
		}
		if e.Message.Role == agentsvc.RoleAgent && len(e.Message.ToolCalls) > 0 {
			return e.Message
		}
		break
	}
	return nil
}
