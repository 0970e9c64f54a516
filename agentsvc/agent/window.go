package agent

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// Window selects the part of a conversation that fits the model's context. Implementations are in package session; one
// may call a model to summarise.
type Window interface {
	// Open begins a turn and returns the function that is called before each model call of the turn. base has the run
	// and the memory of the turn, for model calls of the window itself. The function returns the entries to send and the
	// usage of model calls that it made itself, which is recorded also if it returns an error. It is called by one
	// goroutine at a time.
	Open(base llm.Request) func(ctx context.Context, conversation []agentsvc.Entry) (shown []agentsvc.Entry, used []agentsvc.Usage, err error)
}

// modelView is what a turn sends to its model in addition to the recorded conversation. It is initialised by the first
// selectConversation, since a resumed turn may end without any model call.
type modelView struct {
	opened bool
	// fitWindow is the turn's window function; nil: the whole conversation is sent.
	fitWindow func(context.Context, []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error)
	// background is what Options.Background returned, fixed for the turn so that the system prompt stays the same and a
	// vendor can cache it.
	background string
}

// selectConversation returns the entries to send to the model and the system prompt. It yields the usage of the
// window's own model calls.
func (r *llmRun) selectConversation(ctx context.Context, conversation []agentsvc.Entry) (shown []agentsvc.Entry, system string, err error) {
	if !r.view.opened && r.options.Window != nil {
		r.view.fitWindow = r.options.Window.Open(llm.Request{RunScope: r.inv.RunScope, Memory: r.inv.Memory})
	}
	if r.view.fitWindow != nil {
		var used []agentsvc.Usage
		conversation, used, err = r.view.fitWindow(ctx, conversation)
		for i := range used {
			if !r.yield(agentsvc.Event{Usage: &used[i]}, nil) {
				return nil, "", errStopped
			}
		}
		if err != nil {
			return nil, "", err
		}
	}
	if !r.view.opened && r.options.Background != nil {
		r.view.background = r.options.Background(ctx, r.inv.RunScope, conversation)
	}
	r.view.opened = true
	return conversation, joinParagraphs(r.newSystemPrompt(r.inv.GlobalInstruction), r.view.background), nil
}
