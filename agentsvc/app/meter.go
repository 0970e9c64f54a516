package app

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/task"
	"stoa/billing/usage"
	"stoa/tenancy/db"
)

// usageObserver counts what runs do. It implements [task.Observer].
type usageObserver struct{ meter *usage.Meter }

// newObserver returns the app's observer, nil if nothing is counted.
func (b *builder) newObserver() task.Observer {
	if b.meter == nil {
		return nil
	}
	return usageObserver{b.meter}
}

// AppendObservation implements [task.Observer]: usage rows join the transaction that appends the events.
func (o usageObserver) AppendObservation(b *db.Batch, x task.Observation) {
	o.meter.CountUsage(b, billingFacts(x))
}

// WriteObservation implements [task.Observer]: usage rows get a transaction of their own.
func (o usageObserver) WriteObservation(ctx context.Context, x task.Observation) error {
	return o.meter.WriteUsage(ctx, billingFacts(x))
}

// billingFacts converts an observation to billing's type: billing does not import task.
func billingFacts(x task.Observation) usage.RunFacts {
	return usage.RunFacts{
		Task: x.Run.Task, Turn: x.Run.Turn, Epoch: x.Run.Epoch, Agent: x.Run.Agent, Owner: x.Run.Owner, Events: x.Events, RunTime: x.Worked, TurnEnded: x.Ended,
	}
}

// meteredEmbedder is an embedder whose texts are counted as usage.
type meteredEmbedder struct {
	embedder.Embedder
	builder  *builder
	provider string
	model    string
}

// meterEmbedder returns e with its texts counted, or e itself if nothing is counted.
func (b *builder) meterEmbedder(c *config.Embedder, e embedder.Embedder) embedder.Embedder {
	if b.meter == nil {
		return e
	}
	return meteredEmbedder{e, b, c.Provider, c.Model}
}

// Embed implements [embedder.Embedder]. The vectors are returned even if the usage cannot be written, which is logged.
func (e meteredEmbedder) Embed(ctx context.Context, p embedder.Purpose, texts []string) ([][]float32, error) {
	vectors, err := e.Embedder.Embed(ctx, p, texts)
	if err != nil || len(texts) == 0 {
		return vectors, err
	}
	// Inside a turn the usage belongs to the run's agent and owner, outside of one to the owner of the session.
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
		e.builder.log.Warn("embedded texts could not be counted", "error", err)
	}
	return vectors, nil
}

// CheckBudget returns an [*agentsvc.BudgetExhaustedError] if a request to agent by owner would find a budget used up;
// see [budget.Gate].
func (a *App) CheckBudget(ctx context.Context, agent string, owner agentsvc.Owner) error {
	if a.budgetGate == nil {
		return nil
	}
	return a.budgetGate.CheckBudget(ctx, agent, owner)
}
