package runtime

import (
	"cmp"
	"context"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/session"
	"stoa/billing/budget"
	"stoa/billing/usage"
)

// hashingProvider is the embedder that runs in Stoa.
const hashingProvider = "hashing"

// meterEmbedder returns e with its calls counted and bound by the budgets, or e itself if nothing is counted.
func (met metering) meterEmbedder(cfg *config.Embedder, e embedder.Embedder) embedder.Embedder {
	if met.meter == nil {
		return e
	}
	return meteredEmbedder{e, met, cfg.Provider, usageEmbedderName(cfg, e)}
}

// usageEmbedderName returns the name of an embedder's model in usage rows, prices and budgets. It is never empty: an empty
// one fits each budget of a model.
func usageEmbedderName(cfg *config.Embedder, e embedder.Embedder) string {
	if cfg.Provider == hashingProvider {
		return hashingProvider
	}
	_, usual, _ := strings.Cut(e.Model(), "/") // the vendor's usual model, if none is configured, and the dimension
	usual, _, _ = strings.Cut(usual, "/")
	return cmp.Or(cfg.Model, usual, cfg.Provider)
}

// meteredEmbedder is an [embedder.Embedder] whose calls are counted and bound by budgets. It is immutable and shared by all
// calls.
type meteredEmbedder struct {
	embedder.Embedder
	metering
	provider string
	model    string
}

// Embed implements [embedder.Embedder]. It reserves the budget before the first byte is sent, and settles it afterwards.
// The error has the detail [*agentsvc.ExhaustedBudget] if a budget does not cover the texts. The vectors are returned even
// if the usage cannot be written, which is logged.
func (e meteredEmbedder) Embed(ctx context.Context, payer agentsvc.Payer, p embedder.Purpose, texts []string) ([][]float32, error) {
	if len(texts) == 0 {
		return e.Embedder.Embed(ctx, payer, p, texts)
	}
	c := e.newCall(payer, texts)
	if err := c.reserveBudget(ctx); err != nil {
		return nil, err
	}
	vectors, err := e.Embedder.Embed(ctx, payer, p, texts)
	endReservation := func() { c.endReservation(ctx, err == nil) }
	if payer.Defer != nil {
		payer.Defer(endReservation)
	} else {
		endReservation()
	}
	return vectors, err
}

// embedderCall is one call of a meteredEmbedder. It is used by one goroutine.
type embedderCall struct {
	meteredEmbedder
	request budget.Request
	// used is what the call uses if it succeeds. Its tokens are estimated, since not all vendors report them: so they are
	// the same before and after the call.
	used agentsvc.Usage
	// reservation is nil if no budget applies.
	reservation *budget.CostReservation
}

// newCall returns a call that embeds texts.
func (e meteredEmbedder) newCall(payer agentsvc.Payer, texts []string) embedderCall {
	tokens := 0
	for _, text := range texts {
		tokens += session.EstimateTokens(text)
	}
	id := "embedding." + agentsvc.NewID()
	return embedderCall{
		meteredEmbedder: e,
		request: budget.Request{
			Call: id, Agent: payer.Agent, Owner: payer.Owner, Provider: e.provider, Model: e.model, Input: int64(tokens), Texts: int64(len(texts)), IsLocal: e.provider == hashingProvider,
		},
		used: agentsvc.Usage{Call: id, StartedAt: time.Now().UTC().Truncate(time.Microsecond), Provider: e.provider, Model: e.model, InputTokens: int64(tokens)},
	}
}

// reserveBudget reserves what the call uses in the budgets that apply.
func (c *embedderCall) reserveBudget(ctx context.Context) (err error) {
	if c.reservation, err = c.budgetGate.ReserveBudget(ctx, c.request); c.reservation != nil {
		c.used.StartedAt = c.reservation.Began
	}
	if hook := c.instrumentation.OnBudgetExhausted; hook != nil && agentsvc.DetailOf[*agentsvc.ExhaustedBudget](err) != nil {
		hook(c.tenant.Name)
	}
	return err
}

// endReservation writes the usage row and ends the reservation, if there is one. A call that failed has used nothing:
// its reservation is released.
func (c *embedderCall) endReservation(ctx context.Context, succeeded bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	var err error
	switch {
	case c.reservation != nil && succeeded:
		err = c.reservation.SettleReservation(ctx, c.meter, c.used)
	case c.reservation != nil:
		err = c.reservation.ReleaseReservation(ctx)
	case succeeded:
		err = c.writeUnreserved(ctx)
	}
	if err != nil {
		c.log.Warn("the usage of an embedder could not be recorded yet", "error", err)
	}
}

// writeUnreserved writes the usage row of a call to which no budget applied when it began. A budget that was created since
// then must count it.
func (c *embedderCall) writeUnreserved(ctx context.Context) error {
	err := c.meter.WriteUsage(ctx, usage.RunFacts{Agent: c.request.Agent, Owner: c.request.Owner, Embedding: &usage.Embedding{
		Call: c.used.Call, StartedAt: c.used.StartedAt, Provider: c.provider, Model: c.model, Texts: c.request.Texts, Tokens: c.used.InputTokens,
	}})
	if err != nil || !c.budgetGate.HasBudgets() {
		return err
	}
	return c.budgetGate.RecordUnreserved(ctx, c.meter, c.request, c.used)
}
