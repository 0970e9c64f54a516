package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// errStopped reports that the run is over: either the consumer stopped the iteration, or the turn's last event was
// yielded. It never leaves the package.
var errStopped = errors.New("stopped")

// maxCalls bounds the tool calls of one answer of a model: all of them run at the same time.
const maxCalls = 128

// maxCredentialRequests bounds the requests for one tool's credential in a turn. Without it, a credential that the
// other side keeps refusing would make the turn ask forever.
const maxCredentialRequests = 3

// toolCalls executes the tool calls of a turn and asks a human where they need one. It belongs to the goroutine that
// iterates over Run; only callTool is called from others.
type toolCalls struct {
	*turnRecorder
	// set holds the tools that the turn can call, see llmRun.loadTools.
	set *tool.Set
}

// beginCalls executes the calls of a message that was just recorded. Calls that need no approval run at once,
// concurrently. If others need one, or a call lacks its caller's credential, the turn ends after that and waits for a
// human.
func (t *toolCalls) beginCalls(ctx context.Context, calls []agentsvc.ToolCall) error {
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
	return t.callTools(ctx, now, later)
}

// needsApproval reports whether a human must approve c before it runs. A call that fails its checks (unknown tool,
// arguments that do not fit the schema) needs none: it has no effect, and its error goes to the model at once.
func (t *toolCalls) needsApproval(ctx context.Context, c agentsvc.ToolCall) bool {
	return t.set.ApprovalFor(c.Name).Required && t.set.CheckCall(ctx, c) == nil
}

// newApproval returns the approval request for a call. The prompt is the tool's own, or a default.
func (t *toolCalls) newApproval(c agentsvc.ToolCall, kind agentsvc.ApprovalKind) agentsvc.Approval {
	// Thought is opaque vendor data for the next model call; the request is shown to a human.
	c.Thought = ""
	a := t.set.ApprovalFor(c.Name)
	switch {
	case kind == agentsvc.ApproveRerun:
		a.Prompt = fmt.Sprintf("A call of %s was interrupted, and whether it took effect is unknown. Run it again?", c.Name)
	case a.Prompt == "":
		a.Prompt = fmt.Sprintf("May %s run?", c.Name)
	}
	return agentsvc.Approval{Call: c, Kind: kind, Prompt: a.Prompt, Timeout: a.Timeout}
}

// waitForHuman yields the approvals and the status that ends the turn, and returns errStopped. Without approvals it
// yields nothing and returns nil. The runner keeps the approvals and commits them in one transaction with the status.
func (t *toolCalls) waitForHuman(approvals []agentsvc.Approval) error {
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

// newCredentialRequest returns the request for the credential that a tool lacks. It returns an error with
// [agentsvc.CodeInvalid] if the turn has asked maxCredentialRequests times for it.
func (t *toolCalls) newCredentialRequest(w *tool.CredentialError, call agentsvc.ToolCall) (agentsvc.Approval, error) {
	if t.inv.CredentialRequests[w.Tool] >= maxCredentialRequests {
		return agentsvc.Approval{}, agentsvc.NewInvalidError("", "%v; %d were supplied in this turn", w, maxCredentialRequests)
	}
	call.Thought = ""
	return w.NewApproval(call), nil
}

// toolOutcome is the end of one call: a result, or a request for the credential without which the call had no effect.
type toolOutcome struct {
	// index is the position of the call among those that run together.
	index int
	res   agentsvc.ToolResult
	// known reports that res may be recorded. It is false for a call that failed while its context was ended: the
	// failure may be the cancellation's, and a recorded failure would hide that the effect may have taken place.
	known bool
	// credentialRequest is non-nil if the call lacked its caller's credential.
	credentialRequest *agentsvc.Approval
}

// callTools runs the calls of now concurrently, yields each result when it is there and appends the results to the
// conversation in the order of the calls. Then it ends the turn if later, or a credential that a call lacked, waits for
// a human. If ctx ends, or the consumer stops, it still waits for the calls, since their goroutines must not outlive the
// turn; results that arrive after ctx ended are still yielded, because their effects have taken place.
func (t *toolCalls) callTools(ctx context.Context, now []agentsvc.ToolCall, later []agentsvc.Approval) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The buffer lets every goroutine send and end, whatever happens to the receiver.
	results := make(chan toolOutcome, len(now))
	for i, c := range now {
		go func() {
			startedAt := time.Now()
			d := t.callTool(ctx, c)
			d.index, d.res.Took = i, time.Since(startedAt).Truncate(time.Microsecond) // as it is stored
			results <- d
		}()
	}
	inOrder := make([]toolOutcome, len(now))
	listening := true
	for range now {
		d := <-results
		inOrder[d.index] = d
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
	for i, d := range inOrder {
		if d.credentialRequest != nil {
			later = append(later, *d.credentialRequest)
		} else {
			t.conversation = append(t.conversation, agentsvc.Entry{Result: &inOrder[i].res})
		}
	}
	return t.waitForHuman(later)
}

// callTool runs one call until it ends, ctx ends, or a user cancels it alone. It is safe to be called from several
// goroutines. The key it gives the tool (task/call) is the same in each attempt, so that a tool can use it as an
// idempotency key.
func (t *toolCalls) callTool(ctx context.Context, c agentsvc.ToolCall) (d toolOutcome) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	over := func() {}
	if t.inv.RegisterCall != nil {
		over = t.inv.RegisterCall(c.ID, stop)
	}
	var missing *tool.CredentialError
	d.res, missing = t.set.Call(ctx, t.inv.RunScope, c, string(t.inv.Task)+"/"+string(c.ID))
	// Called at once, not deferred: a cancellation that comes after the call has ended must not be accepted.
	over()
	d.known = !d.res.Failed || ctx.Err() == nil
	var cancelled *agentsvc.CallCancelledError
	switch {
	// A user cancelled this call: the failure is final and known, although the effect may have taken place.
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

// resumeCalls executes the calls that an earlier attempt announced and that have no result: llmRun.runSteps hands it to
// routeCalls. This is where a decision resumes a turn. A rejected call does not get here, because a rejection ends the
// task (package task). For each call, in this order:
//
//   - approved, with arguments whose hash is the approved one: it runs with those arguments, after a Call event is
//     recorded.
//   - its credential was supplied, and it has been approved or needs no approval: it runs, after a Call event.
//   - not started and needs approval: a human is asked.
//   - started, so that its effect is unknown: an idempotent tool runs again, for any other a human is asked
//     (ApproveRerun).
func (t *toolCalls) resumeCalls(ctx context.Context, open []agentsvc.ToolCall) error {
	var now []agentsvc.ToolCall
	var later []agentsvc.Approval
	for _, c := range open {
		state := t.inv.CallStates[CallKey{t.inv.Frame, c.ID}]
		last := c
		if state.Begun != nil {
			last.Arguments = state.Begun.Arguments
		}
		agreed, ok := agentsvc.ToolCall{}, false
		if state.Decision != nil {
			agreed, ok = state.Decision.ApplyToCall(last)
		}
		if !ok {
			agreed, ok = last, state.Supplied && (state.Begun != nil || !t.needsApproval(ctx, c))
		}
		switch {
		case ok:
			// The Call event consumes the decision and records the arguments, so that a crash after it is known to be
			// of unknown effect.
			if !t.yield(agentsvc.Event{Call: &agreed}, nil) {
				return errStopped
			}
			now = append(now, agreed)
		case state.Begun == nil && t.needsApproval(ctx, c):
			later = append(later, t.newApproval(c, agentsvc.ApproveCall))
		case t.set.IsIdempotent(c.Name):
			now = append(now, last)
		default:
			later = append(later, t.newApproval(last, agentsvc.ApproveRerun))
		}
	}
	return t.callTools(ctx, now, later)
}

// findOpenCalls returns the tool calls of the conversation's last message that have no result. The results of a message
// follow it directly, so the search stops at the first entry that is none.
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
