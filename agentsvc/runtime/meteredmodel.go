package runtime

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/pattern"
	"stoa/agentsvc/session"
	"stoa/billing/budget"
	"stoa/billing/usage"
	"stoa/tenancy/db"
)

// Bounds of responses under a budget. They apply only if a budget does.
const (
	// defaultMaxOutput is the length of a response, in tokens, if max_tokens is not configured: a reservation needs a
	// bound.
	defaultMaxOutput = 8192
	// minUsefulOutput is the shortest length to which a response is bounded if the budget does not cover more.
	minUsefulOutput = 64
)

// meterModel returns m with its calls counted and bound by the app's plan and budgets, or m itself if nothing is
// counted.
func (met metering) meterModel(l *config.LLM, m llm.Provider) llm.Provider {
	if met.meter == nil {
		return m
	}
	out := meteredModel{
		tenant: met.tenant.ID, app: met.tenant.Name, onExhausted: met.instrumentation.OnBudgetExhausted, next: m, provider: l.Provider, model: l.Model, meter: met.meter, budgetGate: met.budgetGate, configuredMaxOutput: int64(l.MaxTokens), maxOutput: int64(l.MaxTokens), minOutput: minUsefulOutput,
		countTokens: session.NewTokenCounter(l.Provider, l.Model), log: met.log,
	}
	if onCharge := met.instrumentation.OnCharge; onCharge != nil {
		out.onCharge = func(ctx context.Context, u agentsvc.Usage) {
			if w := met.meter.PriceCall(u); w.Charge > 0 {
				onCharge(ctx, met.tenant.Name, u.Model, w.Currency, int64(w.Charge))
			}
		}
	}
	// A scripted model counts words, as its script's usage does. Its name in usage rows must not be empty.
	if l.Provider == "scripted" {
		out.trustsUsage = met.tenant.DefaultApp
		out.countTokens, out.model = func(_ *pattern.StepBudget, text string) int { return len(strings.Fields(text)) }, "scripted"
		if l.Model != "" {
			out.model = l.Model
		}
	}
	if out.maxOutput == 0 {
		out.maxOutput = defaultMaxOutput
	}
	// A budget for thinking comes in addition: vendors reject a max_tokens below it. 1024 is Anthropic's smallest
	// thinking budget.
	if t := l.Thinking; t != nil && t.Enabled {
		thinking := int64(max(t.BudgetTokens, 1024))
		out.minOutput += thinking
		if l.MaxTokens == 0 {
			out.maxOutput += thinking
		}
	}
	out.minOutput = min(out.minOutput, out.maxOutput)
	return out
}

// checkModelInPlan returns an error with [agentsvc.CodeInvalid] in a dry run if the app's plan does not allow a model. In a
// served app the plan may have changed since: the other agents go on and calls of that model fail.
func (met metering) checkModelInPlan(l *config.LLM) error {
	if met.budgetGate == nil || met.budgetGate.AllowsModel(l.Provider, usageModelName(l)) {
		return nil
	}
	if !met.tenant.DryRun {
		met.log.Warn("the app's plan does not have a model of its configuration: calls of it fail", "plan", met.tenant.Plan, "model", l.Provider+"/"+usageModelName(l))
		return nil
	}
	return agentsvc.NewInvalidError("model", "%s/%s is not among the models of the plan %s", l.Provider, usageModelName(l), met.tenant.Plan)
}

// usageModelName returns the name of a model in usage rows and plan patterns.
func usageModelName(l *config.LLM) string {
	if l.Provider == "scripted" && l.Model == "" {
		return "scripted"
	}
	return l.Model
}

// meteredModel is an [llm.Provider] whose calls are counted and bound by budgets. It is immutable and shared by all
// calls.
type meteredModel struct {
	tenant db.ID
	app    string
	// onExhausted is called when a budget refuses a call; it may be nil.
	onExhausted func(app string)
	next        llm.Provider
	// provider and model are the names that usage rows, prices and budgets use.
	provider string
	model    string
	meter    *usage.Meter
	// budgetGate reserves before a call, meter makes the usage row after it.
	budgetGate  *budget.Gate
	countTokens session.TokenCounter
	// trustsUsage means that the reported usage is counted without bounds.
	trustsUsage bool
	// configuredMaxOutput is max_tokens of the configuration, 0 if there is none.
	configuredMaxOutput int64
	// maxOutput bounds a response if a budget applies, minOutput is the least to which a budget may shorten it; both in
	// tokens.
	maxOutput int64
	minOutput int64
	// onCharge is called with the usage of each call that costs something; it may be nil.
	onCharge func(context.Context, agentsvc.Usage)
	log      *slog.Logger
}

// Stream implements [llm.Provider]. It reserves the budget before the first byte is sent, and settles it when the
// stream ends, however it ends.
func (m meteredModel) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		if !m.budgetGate.AllowsModel(m.provider, m.model) {
			yield(llm.Chunk{}, agentsvc.NewInvalidError("", "the app's plan does not have the model %s/%s", m.provider, m.model))
			return
		}
		c := meteredCall{meteredModel: m, recorder: req.Usage, req: req, sentAt: time.Now()}
		c.usage = agentsvc.Usage{Call: agentsvc.NewID(), StartedAt: c.sentAt.UTC().Truncate(time.Microsecond), Provider: m.provider, Model: m.model}
		if err := c.reserveBudget(ctx); err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		c.sentAt = time.Now()
		defer c.endReservation(ctx)
		for chunk, err := range m.next.Stream(ctx, c.req) {
			c.observeChunk(ctx, &chunk, err)
			if err != nil {
				err = &llm.ModelError{Model: m.model, Err: err}
			}
			if !yield(chunk, err) {
				return
			}
		}
	}
}

// meteredCall is one call of a meteredModel. It is used by one goroutine.
type meteredCall struct {
	meteredModel
	// recorder collects the usage of the run; nil outside of a run.
	recorder *agentsvc.UsageRecorder
	// req is the request, with MaxTokens lowered to the reservation.
	req llm.Request
	// inputTokens is what countInput has counted, 0 before that.
	inputTokens int64
	// reservation is nil if no budget applies.
	reservation *budget.CostReservation
	// usage has the call's id and begin from the start, and the quantities once they are known.
	usage agentsvc.Usage
	// sentAt is when the budgets had covered the call, by the clock of this process: StartedAt may be the database's.
	sentAt time.Time
	// usageKnown means that the vendor has reported the usage, or that it was estimated.
	usageKnown bool
	// started means that a chunk has arrived.
	started bool
	// failed means that the vendor returned an error.
	failed bool
	// estimatedTokens estimates the response so far, for a vendor that reports no usage.
	estimatedTokens int64
	// receivedBytes is the length of the response so far, which bounds what the vendor may report.
	receivedBytes int64
}

// newBudgetRequest returns the call as budgets identify it, without quantities.
func (c *meteredCall) newBudgetRequest() budget.Request {
	request := budget.Request{Call: c.usage.Call, Provider: c.provider, Model: c.model}
	if c.recorder != nil {
		request.Task, request.Epoch, request.Agent, request.Owner = c.recorder.Task, c.recorder.Epoch, c.recorder.Agent, c.recorder.Owner
	}
	return request
}

// reserveBudget reserves what the call can cost in the budgets that apply, and bounds the response to the reservation.
// The error has the detail [*agentsvc.ExhaustedBudget] if a budget does not cover it.
func (c *meteredCall) reserveBudget(ctx context.Context) (err error) {
	if !c.budgetGate.HasBudgets() {
		return nil
	}
	request := c.newBudgetRequest()
	request.Input, request.Output, request.MinOutput = c.countInput(ctx), c.req.TokenLimit(c.maxOutput), c.minOutput
	if c.reservation, err = c.budgetGate.ReserveBudget(ctx, request); c.reservation != nil {
		c.req.MaxTokens, c.usage.StartedAt = c.reservation.Output, c.reservation.Began
	}
	if c.onExhausted != nil && agentsvc.DetailOf[*agentsvc.ExhaustedBudget](err) != nil {
		c.onExhausted(c.app)
	}
	return err
}

// countInput returns an upper estimate of the tokens that the call sends. It counts them once; if ctx has ended before,
// they are estimated by their bytes.
func (c *meteredCall) countInput(ctx context.Context) int64 {
	if c.inputTokens > 0 {
		return c.inputTokens
	}
	n := session.CountRequest(pattern.NewStepBudget(ctx, string(c.tenant), 0), c.countTokens, c.req)
	if c.provider != "scripted" {
		// A quarter more: tokenizers differ between vendors, and so do the tokens around the messages.
		n += n / 4
	}
	c.inputTokens = int64(n)
	return c.inputTokens
}

// observeChunk records a chunk of the response. If the chunk reports usage it sets the call's id, begin and model in
// it, so that the usage row gets the same key wherever it is written; the last chunk gets the estimate if none did.
func (c *meteredCall) observeChunk(ctx context.Context, chunk *llm.Chunk, err error) {
	var upstream *llm.Error
	c.failed = c.failed || errors.As(err, &upstream)
	if err != nil {
		return
	}
	c.started = true
	c.countOutput(chunk.Text)
	if chunk.ToolCall != nil {
		c.countOutput(chunk.ToolCall.Name)
		c.countOutput(string(chunk.ToolCall.Arguments))
	}
	if chunk.Usage == nil {
		// An estimate belongs on the task's log like a reported usage.
		if chunk.Stop != "" && c.estimateUsage(ctx) {
			u := c.usage
			chunk.Usage = &u
		}
		return
	}
	u := c.clampUsage(ctx, *chunk.Usage)
	u.Call, u.StartedAt, u.Took = c.usage.Call, c.usage.StartedAt, c.elapsed()
	u.Provider, u.Model = c.provider, c.model
	c.usage, c.usageKnown, chunk.Usage = u, true, &u
	c.reportUsage()
}

// elapsed returns the time since the call was sent, as precisely as it is stored.
func (c *meteredCall) elapsed() time.Duration { return time.Since(c.sentAt).Truncate(time.Microsecond) }

// countOutput adds a text of the response to the estimate.
func (c *meteredCall) countOutput(text string) {
	c.estimatedTokens += int64(session.EstimateTokens(text))
	c.receivedBytes += int64(len(text))
}

// reportUsage passes the usage to the run's recorder, which puts it on the log of the task.
func (c *meteredCall) reportUsage() {
	if c.recorder != nil {
		c.recorder.Record(c.usage)
	}
}

// settleTimeout bounds how long it may take to record what a call has used. The caller may be gone by then.
const settleTimeout = 5 * time.Second

// estimateUsage estimates the usage, up to the bound of the call, if the vendor reported none because the stream was
// aborted or by its nature, and returns whether it did. A call that failed before its response began has used nothing.
func (c *meteredCall) estimateUsage(ctx context.Context) bool {
	if c.usageKnown || c.failed && !c.started {
		return false
	}
	if maximum := c.req.MaxTokens; maximum > 0 {
		c.estimatedTokens = min(c.estimatedTokens, maximum)
	}
	c.usage.InputTokens, c.usage.OutputTokens, c.usage.Estimated = c.countInput(ctx), c.estimatedTokens, true
	c.usage.Took = c.elapsed()
	c.usageKnown = true
	c.reportUsage()
	return true
}

// endReservation reports the usage and ends the reservation, if there is one: it is settled if there is usage, else
// released. A budget that was created during the call counts the usage too.
func (c *meteredCall) endReservation(ctx context.Context) {
	c.estimateUsage(ctx)
	if c.usageKnown && c.onCharge != nil {
		c.onCharge(ctx, c.usage)
	}
	if c.reservation == nil && !c.budgetGate.HasBudgets() {
		return
	}
	// The request's context may have ended; the usage must be recorded all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	var err error
	switch {
	case c.reservation == nil && c.usageKnown:
		// No budget applied when the call began. One that was created since then must count it.
		err = c.budgetGate.RecordUnreserved(ctx, c.meter, c.newBudgetRequest(), c.usage)
	case c.reservation == nil:
	case c.usageKnown:
		err = c.reservation.SettleReservation(ctx, c.meter, c.usage)
	default:
		err = c.reservation.ReleaseReservation(ctx)
	}
	// The reservation expires, and its balances are then computed from the usage rows.
	if err != nil {
		c.log.Warn("the usage of a model call could not be settled with its budgets yet", "error", err)
	}
}
