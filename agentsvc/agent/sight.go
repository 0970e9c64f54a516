package agent

import (
	"context"

	"stoa/agentsvc"
)

// Window decides how much of a conversation a model gets to see.
type Window interface {
	// Open begins a turn. What it returns is asked before each call of the model: it returns what to show of talk, and
	// what the model calls consumed that found that out, if any were made.
	Open() func(ctx context.Context, talk []agentsvc.Entry) (shown []agentsvc.Entry, used []agentsvc.Usage, err error)
}

// sight is what the model gets to see in a turn. It is made when it is first needed.
type sight struct {
	opened     bool
	fit        func(context.Context, []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error)
	background string
}

// see returns what to show the model of talk, and its system prompt.
func (t *turn) see(ctx context.Context, talk []agentsvc.Entry) (shown []agentsvc.Entry, system string, err error) {
	if !t.opened && t.o.Window != nil {
		t.fit = t.o.Window.Open()
	}
	if t.fit != nil {
		var used []agentsvc.Usage
		talk, used, err = t.fit(ctx, talk)
		for i := range used {
			if !t.yield(agentsvc.Event{Usage: &used[i]}, nil) {
				return nil, "", errStopped
			}
		}
		if err != nil {
			return nil, "", err
		}
	}
	if !t.opened && t.o.Background != nil {
		t.background = t.o.Background(ctx, talk)
	}
	t.opened = true
	return talk, paragraphs(t.system(t.inv.Global), t.background), nil
}
