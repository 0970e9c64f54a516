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

// maxCredentialRequests bounds how often a turn asks for the credential of one tool.
const maxCredentialRequests = 3

// startCalls carries out calls that were announced just now: those that need nobody's approval run, and if there are others, or
// some that lack their caller's credential, the turn then ends until a human has seen to them.
func (t *llmRun) startCalls(ctx context.Context, calls []agentsvc.ToolCall) error {
	if len(calls) > maxCalls {
		return agentsvc.NewInvalidError("", "the model asked for %d tool calls at once, at most %d are run", len(calls), maxCalls)
	}
	var now []agentsvc.ToolCall
	var later []agentsvc.Approval
	for _, c := range calls {
		if t.needsApproval(ctx, c) {
			later = append(later, t.newApproval(c, agentsvc.ApproveCall))
		} else {
			now = append(now, c)
		}
	}
	return t.runCallsAndWait(ctx, now, later)
}

// runCallsAndWait runs calls, and then ends the turn if anything waits for a human.
func (t *llmRun) runCallsAndWait(ctx context.Context, now []agentsvc.ToolCall, later []agentsvc.Approval) error {
	credentialRequests, err := t.runTools(ctx, now)
	if err != nil {
		return err
	}
	return t.waitForHuman(append(later, credentialRequests...))
}

// needsApproval reports whether a human must agree before c runs. A call that cannot run bothers nobody.
func (t *llmRun) needsApproval(ctx context.Context, c agentsvc.ToolCall) bool {
	return t.options.Tools.ApprovalFor(c.Name).Required && t.options.Tools.CheckCall(ctx, c) == nil
}

// newApproval is what a human is asked about a call.
func (t *llmRun) newApproval(c agentsvc.ToolCall, kind agentsvc.ApprovalKind) agentsvc.Approval {
	c.Thought = ""
	a := t.options.Tools.ApprovalFor(c.Name)
	switch {
	case kind == agentsvc.ApproveRerun:
		a.Prompt = fmt.Sprintf("A call of %s was interrupted, and whether it took effect is unknown. Run it again?", c.Name)
	case a.Prompt == "":
		a.Prompt = fmt.Sprintf("May %s run?", c.Name)
	}
	return agentsvc.Approval{Call: c, Kind: kind, Prompt: a.Prompt, Timeout: a.Timeout}
}

// waitForHuman ends the turn until a human has decided, or supplied what is missing, if there is anything to wait for.
func (t *llmRun) waitForHuman(approvals []agentsvc.Approval) error {
	for _, a := range approvals {
		if !t.yield(agentsvc.Event{Approval: &a}, nil) {
			return errStopped
		}
	}
	if len(approvals) == 0 {
		return nil
	}
	t.yield(agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.WaitingState(approvals)}}, nil)
	return errStopped
}

// newCredentialRequest returns what the turn asks its caller for, so that a tool can do what it could not. It returns an
// [agentsvc.InvalidError] if it has asked for that often enough.
func (t *llmRun) newCredentialRequest(w *tool.CredentialError, call agentsvc.ToolCall) (agentsvc.Approval, error) {
	if t.inv.CredentialRequests[w.Tool] >= maxCredentialRequests {
		return agentsvc.Approval{}, agentsvc.NewInvalidError("", "%v; %d were supplied in this turn", w, maxCredentialRequests)
	}
	call.Thought = ""
	return w.NewApproval(call), nil
}

// toolOutcome is a call that has ended: with a result, or without an effect, for want of a credential. The result is not known of
// a call that failed as its turn was stopped: nobody can tell what it came to.
type toolOutcome struct {
	index             int // in the order of the calls
	res               agentsvc.ToolResult
	known             bool
	credentialRequest *agentsvc.Approval
}

// runTools runs calls side by side, yields each result when it is there and appends them to the conversation in the
// order of the calls. It returns when all have ended, with what those need that had no effect. Where ctx ends before them,
// it still yields the results there are.
func (t *llmRun) runTools(ctx context.Context, calls []agentsvc.ToolCall) ([]agentsvc.Approval, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan toolOutcome, len(calls))
	for i, c := range calls {
		go func() {
			d := t.runTool(ctx, c)
			d.index = i
			results <- d
		}()
	}
	inOrder := make([]toolOutcome, len(calls))
	listening := true
	for range calls {
		d := <-results
		inOrder[d.index] = d
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
	var credentialRequests []agentsvc.Approval
	for i, d := range inOrder {
		if d.credentialRequest != nil {
			credentialRequests = append(credentialRequests, *d.credentialRequest)
		} else {
			t.conversation = append(t.conversation, agentsvc.Entry{Result: &inOrder[i].res})
		}
	}
	return credentialRequests, nil
}

// runTool runs one call to its end, or until a user cancels it.
func (t *llmRun) runTool(ctx context.Context, c agentsvc.ToolCall) (d toolOutcome) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	over := func() {}
	if t.inv.RegisterCall != nil {
		over = t.inv.RegisterCall(c.ID, stop)
	}
	var missing *tool.CredentialError
	d.res, missing = t.options.Tools.ExecuteCall(ctx, c, string(t.inv.Task)+"/"+string(c.ID))
	over()
	d.known = !d.res.Failed || ctx.Err() == nil
	var cancelled *agentsvc.CallCancelledError
	switch {
	case errors.As(context.Cause(ctx), &cancelled):
		d.res.Failed, d.res.Text, d.known = true, cancelled.Error(), true
	case missing != nil:
		a, err := t.newCredentialRequest(missing, c)
		if err != nil {
			d.res.Text = err.Error()
			break
		}
		d.credentialRequest, d.known = &a, false
	}
	return d
}

// resumeCalls carries out the calls that an earlier attempt announced and recorded no result of, as far as it may. What a
// human agreed to, or supplied the credential for, runs. What nobody has been asked about yet waits for that. Of any other
// call it is unknown whether it took effect: a tool that is declared idempotent runs again, about the others a human is
// asked.
func (t *llmRun) resumeCalls(ctx context.Context, open []agentsvc.ToolCall) error {
	var now []agentsvc.ToolCall
	var later []agentsvc.Approval
	for _, c := range open {
		settled := t.inv.CallStates[CallKey{t.inv.Frame, c.ID}]
		last := c
		if settled.Begun != nil {
			last.Arguments = settled.Begun.Arguments
		}
		agreed, ok := agentsvc.ToolCall{}, false
		if settled.Decision != nil {
			agreed, ok = settled.Decision.ApplyToCall(last)
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
			later = append(later, t.newApproval(c, agentsvc.ApproveCall))
		case t.options.Tools.IsIdempotent(c.Name):
			now = append(now, last)
		default:
			later = append(later, t.newApproval(last, agentsvc.ApproveRerun))
		}
	}
	return t.runCallsAndWait(ctx, now, later)
}

// findOpenCalls returns the tool calls of the conversation's last agent message that have no result.
func findOpenCalls(conversation []agentsvc.Entry) []agentsvc.ToolCall {
	answered := map[agentsvc.CallID]bool{}
	for _, e := range slices.Backward(conversation) {
		if e.Result != nil {
			answered[e.Result.Call] = true
			continue
		}
		return slices.DeleteFunc(slices.Clone(e.Message.ToolCalls), func(c agentsvc.ToolCall) bool { return answered[c.ID] })
	}
	return nil
}
