package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"stoa/agentsvc"
)

// routeCalls executes the open calls of the conversation's last agent message (the answer to the n-th model call of the
// turn) that have no result yet: first the tools, by run (beginCalls for new calls, resumeCalls for those of an earlier
// attempt), then exit and escalate, then the calls of other agents. It returns the message that ends the turn, or nil
// if the model is to be asked again. Without such a message it returns nil and does nothing.
func (r *llmRun) routeCalls(ctx context.Context, n int, run func(context.Context, []agentsvc.ToolCall) error) (*agentsvc.Message, error) {
	msg := findCallMessage(r.conversation)
	if msg == nil {
		return nil, nil
	}
	var tools, agents, controlCalls []agentsvc.ToolCall
	for _, c := range findOpenCalls(r.conversation) {
		switch ctl, ok := r.controls.findControl(c.Name); {
		case !ok:
			tools = append(tools, c)
		case ctl.kind == transferControl || ctl.kind == consultControl:
			agents = append(agents, c)
		default:
			controlCalls = append(controlCalls, c)
		}
	}
	if len(tools) > 0 {
		if err := run(ctx, tools); err != nil {
			return nil, err
		}
	}
	for _, c := range controlCalls {
		if err := r.finishControlCall(ctx, *msg, c); err != nil {
			return nil, err
		}
	}
	answers := map[agentsvc.CallID]agentsvc.Message{}
	if err := r.runAgentCalls(ctx, n, msg, agents, answers); err != nil {
		return nil, err
	}
	return r.findTurnEnd(ctx, n, msg, answers)
}

// runAgentCalls has other agents execute calls concurrently. It yields a result for each and stores the agents' answers
// in answers, by call id. If a sub-agent's turn was interrupted, it ends the whole turn with the first interruption, in
// the order of the calls, and returns errStopped.
func (r *llmRun) runAgentCalls(ctx context.Context, n int, msg *agentsvc.Message, calls []agentsvc.ToolCall, answers map[agentsvc.CallID]agentsvc.Message) error {
	// before is the conversation that led to msg, without msg and the results after it.
	before := r.conversation[:slices.IndexFunc(r.conversation, func(e agentsvc.Entry) bool { return e.Message == msg })]
	// Each goroutine writes its own element only; runParallel returns after all have ended.
	got := make([]agentOutcome, len(calls))
	results := make([]*agentsvc.ToolResult, len(calls))
	err := runParallel(ctx, r.inv.slots, len(calls), r.yield, func(ctx context.Context, i int, out emitFunc) (err error) {
		res := agentsvc.ToolResult{Call: calls[i].ID, Name: calls[i].Name}
		got[i], err = r.runAgentCall(ctx, n, msg, calls[i], before, out)
		switch reason := refusalText(err); {
		case reason != "":
			res.Failed, res.Text = true, reason
		case err != nil:
			return err
		case got[i].interruption == nil:
			res.Text = r.formatAgentResult(calls[i], got[i].answer)
		case got[i].waitsForDecision:
			return nil // no result: the next attempt runs the frame again, with the decision
		default:
			res.Text = fmt.Sprintf("%s: %s", got[i].interruption.Status.State, interruptionText(got[i].interruption))
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
		if interruption := got[i].interruption; interruption != nil {
			// The results of the other calls are on the log already.
			r.yield(*interruption, nil)
			return errStopped
		}
		r.conversation = append(r.conversation, agentsvc.Entry{Result: results[i]})
		answers[c.ID] = got[i].answer
	}
	return nil
}

// runAgentCall has another agent execute the call c of msg; before is the conversation up to msg. It is called
// concurrently and must not change r. The frame's name holds the step and, for a consultation, the position of the
// call, so that each call has a frame of its own and the same one in each attempt. Errors for the model are
// [agentsvc.CodeInvalid]s.
func (r *llmRun) runAgentCall(ctx context.Context, n int, msg *agentsvc.Message, c agentsvc.ToolCall, before []agentsvc.Entry, out emitFunc) (agentOutcome, error) {
	ctl, _ := r.controls.findControl(c.Name)
	w, err := ctl.parseArguments(c)
	if err != nil {
		return agentOutcome{}, agentsvc.NewInvalidError("", "%v", err)
	}
	at := slices.IndexFunc(msg.ToolCalls, func(other agentsvc.ToolCall) bool { return other.ID == c.ID })
	if ctl.kind == consultControl {
		ask := agentsvc.Message{ID: agentsvc.MessageID(c.ID), Task: r.inv.Task, Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart(w.Request)}}
		frame := fmt.Sprintf("%s[%d.%d]", ctl.to.Name, n+1, at+1)
		return runSubAgent(ctx, ctl.to.Agent, r.newSubInvocation(frame, []agentsvc.Entry{{Message: &ask}}), false, out)
	}
	// Two agents cannot both continue the conversation: only the first transfer of a message is executed.
	for _, other := range msg.ToolCalls[:at] {
		if first, ok := r.controls.findControl(other.Name); ok && first.kind == transferControl {
			return agentOutcome{}, agentsvc.NewInvalidError("", "control can be handed to one agent at a time, and %s comes first", other.Name)
		}
	}
	if err := r.inv.transfers.addTransfer(); err != nil {
		return agentOutcome{}, err
	}
	// The agent that takes over continues the conversation itself, without the tools of this agent.
	conversation := withoutToolCalls(before)
	if w.Note != "" {
		conversation = append(conversation, quoteAgent("note", agentsvc.Message{ID: agentsvc.MessageID(c.ID), Task: r.inv.Task, Parts: []agentsvc.Part{agentsvc.TextPart(w.Note)}}))
	}
	// The chunks of the agent that takes over are shown only if its answer is the answer of this turn.
	shown := !r.options.CompleteOnly && r.options.Reasoning.endsOn(Transferred)
	return runSubAgent(ctx, ctl.to.Agent, r.newSubInvocation(transferFrame(ctl, n), conversation), shown, out)
}

// transferFrame returns the frame name of an agent that takes over after the n-th model call.
func transferFrame(c control, n int) string { return fmt.Sprintf("%s[%d]", c.to.Name, n+1) }

// newSubInvocation returns the invocation of a sub-agent; this agent's global prompt applies to it too.
func (r *llmRun) newSubInvocation(frame string, conversation []agentsvc.Entry) Invocation {
	return r.inv.newChildBelow(frame, conversation, r.options.Prompt.Global)
}

// refusalText returns the text of an error of a sub-agent that the model may react to (invalid input, too many steps, a
// remote agent that did not finish in time), or "" if err must end the whole turn instead.
func refusalText(err error) string {
	remote, ok := errors.AsType[*RemoteError](err)
	if ok && !remote.Retryable || errors.Is(err, agentsvc.CodeInvalid) || errors.Is(err, ErrTooManySteps) {
		return err.Error()
	}
	return ""
}

// formatAgentResult returns the text of the tool result for a call that another agent answered. If control was
// transferred for good, the model does not need the answer again: the answer ends the turn.
func (r *llmRun) formatAgentResult(c agentsvc.ToolCall, answer agentsvc.Message) string {
	ctl, _ := r.controls.findControl(c.Name)
	switch {
	case hasMark(answer, markEscalated):
		return ctl.to.Name + " gives control back: " + answer.Text()
	case ctl.kind == transferControl && !hasMark(answer, markReturned) && r.options.Reasoning.endsOn(Transferred):
		return ctl.to.Name + " has taken over and answered."
	}
	return answer.Text()
}

// interruptionText returns the text of the message with which a sub-agent's turn was interrupted, "" if it has none.
func interruptionText(rest *agentsvc.Event) string {
	if m := rest.Status.Message; m != nil {
		return m.Text()
	}
	return ""
}

// finishControlCall records and yields the result of a call of exit or escalate. The call itself has no effect:
// findTurnEnd derives the end of the turn from the recorded call and its result.
func (r *llmRun) finishControlCall(ctx context.Context, msg agentsvc.Message, c agentsvc.ToolCall) error {
	ctl, _ := r.controls.findControl(c.Name)
	res := agentsvc.ToolResult{Call: c.ID, Name: c.Name, Text: "The turn ends."}
	w, err := ctl.parseArguments(c)
	switch {
	case err == nil && ctl.kind == exitControl:
		// Only the check counts here: a misfit becomes a failed result, so that the model corrects its answer.
		_, err = r.newExitAnswer(ctx, msg, w)
	case err == nil:
		res.Text = "Control goes back."
	}
	if err != nil {
		if err := ctx.Err(); err != nil {
			return err // the check was interrupted: nothing is known about the answer
		}
		res.Failed, res.Text = true, err.Error()
	}
	return r.recordResult(res)
}

// newExitAnswer returns the answer of a call of exit: its argument, or the text of msg where the argument is empty. It
// returns an error if the answer does not fit [Options.Output].
func (r *llmRun) newExitAnswer(ctx context.Context, msg agentsvc.Message, w words) (agentsvc.Message, error) {
	answer := r.newMessage(w.Answer)
	if w.Answer == "" {
		answer.Parts = msg.Parts
	}
	if r.options.Output == nil {
		return answer, nil
	}
	answer, err := r.options.Output.conformAnswer(ctx, answer)
	if err != nil {
		return answer, fmt.Errorf("the answer %w", err)
	}
	return answer, nil
}

// findTurnEnd returns the message with which the calls of msg end the turn, or nil if the turn goes on. All of the
// calls have results. The first call that ends the turn decides. The message follows from what is on the log alone, so
// it is the same after a crash; answers only holds those of this attempt, earlier ones are found in their frames.
func (r *llmRun) findTurnEnd(ctx context.Context, n int, msg *agentsvc.Message, answers map[agentsvc.CallID]agentsvc.Message) (*agentsvc.Message, error) {
	for _, c := range msg.ToolCalls {
		ctl, ok := r.controls.findControl(c.Name)
		if !ok || r.isCallFailed(c.ID) {
			continue
		}
		w, err := ctl.parseArguments(c)
		if err != nil {
			return nil, err
		}
		switch ctl.kind {
		case exitControl:
			answer, err := r.newExitAnswer(ctx, *msg, w)
			answer = markExited.applyTo(answer)
			return &answer, err
		case escalateControl:
			if r.options.Reasoning.endsOn(Escalated) {
				answer := markEscalated.applyTo(r.newMessage(w.Reason))
				return &answer, nil
			}
		case transferControl:
			answer, ok := answers[c.ID]
			if last := findFrameAnswer(r.inv.Frames[r.newSubInvocation(transferFrame(ctl, n), nil).Frame]); !ok && last != nil {
				answer, ok = *last, true
			}
			if ok && r.options.Reasoning.endsOn(Transferred) && !hasMark(answer, markEscalated, markReturned) {
				answer = withoutMark(answer)
				return &answer, nil
			}
		}
	}
	return nil, ctx.Err()
}

// findCallMessage returns the conversation's last message if it is an agent's with tool calls, or nil. Results may
// follow it.
func findCallMessage(conversation []agentsvc.Entry) *agentsvc.Message {
	for _, e := range slices.Backward(conversation) {
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
