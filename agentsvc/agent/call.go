package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// errStopped says that nobody listens any more, or that there is nothing more to tell.
var errStopped = errors.New("stopped")

// maxCalls bounds the tool calls that one answer of a model may ask for.
const maxCalls = 128

// maxAsks bounds how often a turn asks for the credential of one tool.
const maxAsks = 3

// call carries out calls that were announced just now: those that need nobody's approval run, and if there are others, or
// some that lack their caller's credential, the turn then ends until a human has seen to them.
func (t *turn) call(ctx context.Context, calls []agentsvc.ToolCall) error {
	if len(calls) > maxCalls {
		return agentsvc.Invalid("", "the model asked for %d tool calls at once, at most %d are run", len(calls), maxCalls)
	}
	var now []agentsvc.ToolCall
	var later []agentsvc.Approval
	for _, c := range calls {
		if t.needsApproval(ctx, c) {
			later = append(later, t.approval(c, agentsvc.ApproveCall))
		} else {
			now = append(now, c)
		}
	}
	return t.carryOut(ctx, now, later)
}

// carryOut runs calls, and then ends the turn if anything waits for a human.
func (t *turn) carryOut(ctx context.Context, now []agentsvc.ToolCall, later []agentsvc.Approval) error {
	wanting, err := t.perform(ctx, now)
	if err != nil {
		return err
	}
	return t.wait(append(later, wanting...))
}

// needsApproval reports whether a human must agree before c runs. A call that cannot run bothers nobody.
func (t *turn) needsApproval(ctx context.Context, c agentsvc.ToolCall) bool {
	return t.o.Tools.Approval(c.Name).Required && t.o.Tools.Check(ctx, c) == nil
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

// wait ends the turn until a human has decided, or supplied what is missing, if there is anything to wait for.
func (t *turn) wait(approvals []agentsvc.Approval) error {
	for _, a := range approvals {
		if !t.yield(agentsvc.Event{Approval: &a}, nil) {
			return errStopped
		}
	}
	if len(approvals) == 0 {
		return nil
	}
	t.yield(agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Waiting(approvals)}}, nil)
	return errStopped
}

// wants returns what the turn asks its caller for, so that a tool can do what it could not. It returns an
// [agentsvc.InvalidError] if it has asked for that often enough.
func (t *turn) wants(w *tool.CredentialError, call agentsvc.ToolCall) (agentsvc.Approval, error) {
	if t.inv.Asked[w.Tool] >= maxAsks {
		return agentsvc.Approval{}, agentsvc.Invalid("", "%v; %d were supplied in this turn", w, maxAsks)
	}
	call.Thought = ""
	return w.Approval(call), nil
}

// done is a call that has ended: with a result, or without an effect, for want of a credential. The result is not known of
// a call that failed as its turn was stopped: nobody can tell what it came to.
type done struct {
	i     int // in the order of the calls
	res   agentsvc.ToolResult
	known bool
	wants *agentsvc.Approval
}

// perform runs calls side by side, yields each result when it is there and appends them to the conversation in the
// order of the calls. It returns when all have ended, with what those need that had no effect. Where ctx ends before them,
// it still yields the results there are.
func (t *turn) perform(ctx context.Context, calls []agentsvc.ToolCall) ([]agentsvc.Approval, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan done, len(calls))
	for i, c := range calls {
		go func() {
			d := t.tool(ctx, c)
			d.i = i
			results <- d
		}()
	}
	inOrder := make([]done, len(calls))
	listening := true
	for range calls {
		d := <-results
		inOrder[d.i] = d
		if listening && d.known && !t.yield(agentsvc.Event{Result: &d.res}, nil) {
			listening = false
			cancel()
		}
	}
	if !listening {
		return nil, errStopped
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var wanting []agentsvc.Approval
	for i, d := range inOrder {
		if d.wants != nil {
			wanting = append(wanting, *d.wants)
		} else {
			t.talk = append(t.talk, agentsvc.Entry{Result: &inOrder[i].res})
		}
	}
	return wanting, nil
}

// tool runs one call to its end, or until a user cancels it.
func (t *turn) tool(ctx context.Context, c agentsvc.ToolCall) (d done) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	over := func() {}
	if t.inv.Running != nil {
		over = t.inv.Running(c.ID, stop)
	}
	var missing *tool.CredentialError
	d.res, missing = t.o.Tools.Run(ctx, c, string(t.inv.Task)+"/"+string(c.ID))
	over()
	d.known = !d.res.Failed || ctx.Err() == nil
	var cancelled *agentsvc.CancelledError
	switch {
	case errors.As(context.Cause(ctx), &cancelled):
		d.res.Failed, d.res.Text, d.known = true, cancelled.Error(), true
	case missing != nil:
		a, err := t.wants(missing, c)
		if err != nil {
			d.res.Text = err.Error()
			break
		}
		d.wants, d.known = &a, false
	}
	return d
}

// recover carries out the calls that an earlier attempt announced and recorded no result of, as far as it may. What a
// human agreed to, or supplied the credential for, runs. What nobody has been asked about yet waits for that. Of any other
// call it is unknown whether it took effect: a tool that is declared idempotent runs again, about the others a human is
// asked.
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
		if !ok {
			agreed, ok = last, settled.Supplied && (settled.Begun != nil || !t.needsApproval(ctx, c))
		}
		switch {
		case ok:
			if !t.yield(agentsvc.Event{Call: &agreed}, nil) { // it is on record before it runs
				return errStopped
			}
			now = append(now, agreed)
		case settled.Begun == nil && t.needsApproval(ctx, c):
			later = append(later, t.approval(c, agentsvc.ApproveCall))
		case t.o.Tools.Idempotent(c.Name):
			now = append(now, last)
		default:
			later = append(later, t.approval(last, agentsvc.ApproveRerun))
		}
	}
	return t.carryOut(ctx, now, later)
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
