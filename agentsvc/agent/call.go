package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"stoa/agentsvc"
)

// errStopped says that nobody listens any more, or that there is nothing more to tell.
var errStopped = errors.New("stopped")

// maxCalls bounds the tool calls that one answer of a model may ask for.
const maxCalls = 128

// call carries out calls that were announced just now: those that need nobody's approval run, and if there are others
// the turn then ends until a human has decided on them.
func (t *turn) call(ctx context.Context, calls []agentsvc.ToolCall) error {
	if len(calls) > maxCalls {
		return agentsvc.Invalid("", "the model asked for %d tool calls at once, at most %d are run", len(calls), maxCalls)
	}
	var now []agentsvc.ToolCall
	var later []agentsvc.Approval
	for _, c := range calls {
		if t.needsApproval(c) {
			later = append(later, t.approval(c, agentsvc.ApproveCall))
		} else {
			now = append(now, c)
		}
	}
	if err := t.perform(ctx, now); err != nil {
		return err
	}
	return t.wait(later)
}

// needsApproval reports whether a human must agree before c runs. A call that cannot run bothers nobody.
func (t *turn) needsApproval(c agentsvc.ToolCall) bool {
	return t.o.Tools.Approval(c.Name).Required && t.o.Tools.Check(c) == nil
}

// approval is what a human is asked about a call.
func (t *turn) approval(c agentsvc.ToolCall, kind agentsvc.ApprovalKind) agentsvc.Approval {
	c.Thought = ""
	a := t.o.Tools.Approval(c.Name)
	switch {
	case kind == agentsvc.ApproveRerun:
		a.Prompt = fmt.Sprintf("A call of %s was interrupted, and whether it took effect is unknown. Run it again?", c.Name)
	case a.Prompt == "":
		a.Prompt = fmt.Sprintf("May %s run?", c.Name)
	}
	return agentsvc.Approval{Call: c, Kind: kind, Prompt: a.Prompt, Timeout: a.Timeout}
}

// wait ends the turn until a human has decided, if there is anything to decide.
func (t *turn) wait(approvals []agentsvc.Approval) error {
	for _, a := range approvals {
		if !t.yield(agentsvc.Event{Approval: &a}, nil) {
			return errStopped
		}
	}
	if len(approvals) == 0 {
		return nil
	}
	t.yield(agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.InputRequired}}, nil)
	return errStopped
}

// perform runs calls side by side, yields each result when it is there and appends them to the conversation in the
// order of the calls. It returns when all have ended. Where ctx ends before them, it still yields the results there are.
func (t *turn) perform(ctx context.Context, calls []agentsvc.ToolCall) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type done struct {
		i     int
		res   agentsvc.ToolResult
		known bool
	}
	results := make(chan done, len(calls))
	for i, c := range calls {
		go func() {
			res, known := t.tool(ctx, c)
			results <- done{i, res, known}
		}()
	}
	inOrder := make([]agentsvc.ToolResult, len(calls))
	listening := true
	for range calls {
		d := <-results
		inOrder[d.i] = d.res
		if listening && d.known && !t.yield(agentsvc.Event{Result: &d.res}, nil) {
			listening = false
			cancel()
		}
	}
	if !listening {
		return errStopped
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range inOrder {
		t.talk = append(t.talk, agentsvc.Entry{Result: &inOrder[i]})
	}
	return nil
}

// tool runs one call to its end, or until a user cancels it. It reports whether the result is known: of a call that
// failed as its turn was stopped nobody can tell what it came to.
func (t *turn) tool(ctx context.Context, c agentsvc.ToolCall) (res agentsvc.ToolResult, known bool) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	over := func() {}
	if t.inv.Running != nil {
		over = t.inv.Running(c.ID, stop)
	}
	res = t.o.Tools.Run(ctx, c, string(t.inv.Task)+"/"+string(c.ID))
	over()
	var cancelled *agentsvc.CancelledError
	if errors.As(context.Cause(ctx), &cancelled) {
		res.Failed, res.Text = true, cancelled.Error()
		return res, true
	}
	return res, !res.Failed || ctx.Err() == nil
}

// recover carries out the calls that an earlier attempt announced and recorded no result of, as far as it may. What a
// human agreed to runs. What nobody has been asked about yet waits for that. Of any other call it is unknown whether it
// took effect: a tool that is declared idempotent runs again, about the others a human is asked.
func (t *turn) recover(ctx context.Context, open []agentsvc.ToolCall) error {
	var now []agentsvc.ToolCall
	var later []agentsvc.Approval
	for _, c := range open {
		settled := t.inv.Settled[CallKey{t.inv.Frame, c.ID}]
		last := c
		if settled.Begun != nil {
			last.Arguments = settled.Begun.Arguments
		}
		agreed, ok := agentsvc.ToolCall{}, false
		if settled.Decision != nil {
			agreed, ok = settled.Decision.Settle(last)
		}
		switch {
		case ok:
			if !t.yield(agentsvc.Event{Call: &agreed}, nil) { // it is on record before it runs
				return errStopped
			}
			now = append(now, agreed)
		case settled.Begun == nil && t.needsApproval(c):
			later = append(later, t.approval(c, agentsvc.ApproveCall))
		case t.o.Tools.Idempotent(c.Name):
			now = append(now, last)
		default:
			later = append(later, t.approval(last, agentsvc.ApproveRerun))
		}
	}
	if err := t.perform(ctx, now); err != nil {
		return err
	}
	return t.wait(later)
}

// unanswered returns the tool calls of the conversation's last agent message that have no result.
func unanswered(talk []agentsvc.Entry) []agentsvc.ToolCall {
	answered := map[agentsvc.CallID]bool{}
	for _, e := range slices.Backward(talk) {
		if e.Result != nil {
			answered[e.Result.Call] = true
			continue
		}
		return slices.DeleteFunc(slices.Clone(e.Message.ToolCalls), func(c agentsvc.ToolCall) bool { return answered[c.ID] })
	}
	return nil
}
