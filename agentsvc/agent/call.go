package agent

import (
	"context"
	"errors"
	"slices"

	"stoa/agentsvc"
)

// errStopped says that nobody listens any more.
var errStopped = errors.New("stopped")

// maxCalls bounds the tool calls that one answer of a model may ask for.
const maxCalls = 128

// call runs the calls side by side, yields each result when it is there and appends them to the conversation in the
// order of the calls. It returns when all have ended.
func (t *turn) call(ctx context.Context, calls []agentsvc.ToolCall) error {
	if len(calls) > maxCalls {
		return agentsvc.Invalid("", "the model asked for %d tool calls at once, at most %d are run", len(calls), maxCalls)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type done struct {
		i   int
		res agentsvc.ToolResult
	}
	results := make(chan done, len(calls))
	for i, c := range calls {
		go func() { results <- done{i, t.o.Tools.Run(ctx, c, string(t.inv.Task)+"/"+string(c.ID))} }()
	}
	inOrder := make([]agentsvc.ToolResult, len(calls))
	listening := true
	for range calls {
		d := <-results
		inOrder[d.i] = d.res
		if listening && ctx.Err() == nil && !t.yield(agentsvc.Event{Result: &d.res}, nil) {
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

// recover settles the calls that an earlier attempt announced and recorded no result of. Whether they took effect is
// unknown: a tool that is declared idempotent runs again, of any other the model is told.
func (t *turn) recover(ctx context.Context, open []agentsvc.ToolCall) error {
	again := slices.DeleteFunc(slices.Clone(open), func(c agentsvc.ToolCall) bool { return !t.o.Tools.Idempotent(c.Name) })
	for _, c := range open {
		if t.o.Tools.Idempotent(c.Name) {
			continue
		}
		res := agentsvc.ToolResult{
			Call: c.ID, Name: c.Name, Failed: true,
			Text: "The call was interrupted. Whether it took effect is unknown; it was not repeated.",
		}
		if !t.yield(agentsvc.Event{Result: &res}, nil) {
			return errStopped
		}
		t.talk = append(t.talk, agentsvc.Entry{Result: &res})
	}
	return t.call(ctx, again)
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
