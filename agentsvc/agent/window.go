package agent

import (
	"context"

	"stoa/agentsvc"
)

// Window decides how much of a conversation a model gets to see.
type Window interface {
	// Open begins a turn. What it returns is asked before each call of the model: it returns what to show of talk, and
	// what the model calls consumed that found that out, if any were made.
	Open() func(ctx context.Context, conversation []agentsvc.Entry) (shown []agentsvc.Entry, used []agentsvc.Usage, err error)
}

// modelView is what the model gets to see in a turn. It is made when it is first needed.
type modelView struct {
	opened     bool
	fitWindow  func(context.Context, []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error)
	background string
}

// selectConversation returns what to show the model of talk, and its system prompt.
func (t *llmRun) selectConversation(ctx context.Context, conversation []agentsvc.Entry) (shown []agentsvc.Entry, system string, err error) {
	if !t.opened && t.options.Window != nil {
		t.fitWindow = t.options.Window.Open()
	}
	if t.fitWindow != nil {
		var used []agentsvc.Usage
		conversation, used, err = t.fitWindow(ctx, conversation)
		for i := range used {
			if !t.yield(agentsvc.Event{Usage: &used[i]}, nil) {
				return nil, "", errStopped
			}
		}
		if err != nil {
			return nil, "", err
		}
	}
	if !t.opened && t.options.Background != nil {
		t.background = t.options.Background(ctx, conversation)
	}
	t.opened = true
	return conversation, joinParagraphs(t.newSystemPrompt(t.inv.GlobalInstruction), t.background), nil
}
