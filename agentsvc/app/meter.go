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

// usageObserver has what runs do counted.
type usageObserver struct{ meter *billing.Meter }

// newObserver returns that of the app, nil where nothing is counted.
func (b *builder) newObserver() task.Observer {
	if b.meter == nil {
		return nil
	}
	return usageObserver{b.meter}
}

// AppendObservation implements [task.Observer].
func (o usageObserver) AppendObservation(b *db.Batch, x task.Observation) {
	o.meter.CountUsage(b, billingFacts(x))
}

// WriteObservation implements [task.Observer].
func (o usageObserver) WriteObservation(ctx context.Context, x task.Observation) error {
	return o.meter.WriteUsage(ctx, billingFacts(x))
}

func billingFacts(x task.Observation) billing.RunFacts {
	return billing.RunFacts{
		Task: x.Run.Task, Turn: x.Run.Turn, Epoch: x.Run.Epoch, Agent: x.Run.Agent, Owner: x.Run.Owner, Events: x.Events, RunTime: x.Worked, TurnEnded: x.Ended,
	}
}

// meteredEmbedder is an embedder whose texts are counted.
type meteredEmbedder struct {
	embedder.Embedder
	builder  *builder
	provider string
	model    string
}

// meterEmbedder returns e with its texts counted.
func (b *builder) meterEmbedder(c *config.Embedder, e embedder.Embedder) embedder.Embedder {
	if b.meter == nil {
		return e
	}
	return meteredEmbedder{e, b, c.Provider, c.Model}
}

// Embed implements [embedder.Embedder].
func (e meteredEmbedder) Embed(ctx context.Context, p embedder.Purpose, texts []string) ([][]float32, error) {
	vectors, err := e.Embedder.Embed(ctx, p, texts)
	if err != nil || len(texts) == 0 {
		return vectors, err
	}
	var agent string
	var owner agentsvc.Owner
	if by := agentsvc.UsageRecorderFromContext(ctx); by != nil {
		agent, owner = by.Agent, by.Owner
	} else if key, ok := agentsvc.SessionFromContext(ctx); ok {
		owner = key.Owner
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if err := e.builder.meter.RecordEmbeddings(ctx, agent, owner, e.provider, e.model, len(texts)); err != nil {
		e.builder.log.Warn("texts that were made vectors could not be counted", "error", err)
	}
	return vectors, nil
}

// CheckBudget returns an [*agentsvc.BudgetExhaustedError] if a call of an agent by owner would find a budget used up.
func (a *App) CheckBudget(ctx context.Context, agent string, owner agentsvc.Owner) error {
	if a.budgetGate == nil {
		return nil
	}
	return a.budgetGate.CheckBudget(ctx, agent, owner)
}
