package app

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/task"
	"stoa/billing"
	"stoa/tenancy/db"
)

// observer has what runs do counted.
type observer struct{ meter *billing.Meter }

// observer returns that of the app, nil where nothing is counted.
func (b *builder) observer() task.Observer {
	if b.meter == nil {
		return nil
	}
	return observer{b.meter}
}

// Observe implements [task.Observer].
func (o observer) Observe(b *db.Batch, x task.Observed) { o.meter.Count(b, facts(x)) }

// Write implements [task.Observer].
func (o observer) Write(ctx context.Context, x task.Observed) error {
	return o.meter.Write(ctx, facts(x))
}

func facts(x task.Observed) billing.Facts {
	return billing.Facts{
		Task: x.Run.Task, Turn: x.Run.Turn, Epoch: x.Run.Epoch, Agent: x.Run.Agent, Owner: x.Run.Owner, Events: x.Events, Worked: x.Worked, Ended: x.Ended,
	}
}

// countedEmbedder is an embedder whose texts are counted.
type countedEmbedder struct {
	embedder.Embedder
	b        *builder
	provider string
	model    string
}

// counted returns e with its texts counted.
func (b *builder) counted(c *config.Embedder, e embedder.Embedder) embedder.Embedder {
	if b.meter == nil {
		return e
	}
	return countedEmbedder{e, b, c.Provider, c.Model}
}

// Embed implements [embedder.Embedder].
func (e countedEmbedder) Embed(ctx context.Context, p embedder.Purpose, texts []string) ([][]float32, error) {
	vectors, err := e.Embedder.Embed(ctx, p, texts)
	if err != nil || len(texts) == 0 {
		return vectors, err
	}
	var agent string
	var owner agentsvc.Owner
	if by := agentsvc.SpendingOf(ctx); by != nil {
		agent, owner = by.Agent, by.Owner
	} else if key, ok := agentsvc.SessionOf(ctx); ok {
		owner = key.Owner
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	if err := e.b.meter.Embedded(ctx, agent, owner, e.provider, e.model, len(texts)); err != nil {
		e.b.log.Warn("texts that were made vectors could not be counted", "error", err)
	}
	return vectors, nil
}

// Afford returns an [*agentsvc.ExhaustedError] if a call of an agent by owner would find a budget used up.
func (a *App) Afford(ctx context.Context, agent string, owner agentsvc.Owner) error {
	if a.allowance == nil {
		return nil
	}
	return a.allowance.Check(ctx, agent, owner)
}
