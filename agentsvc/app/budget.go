package app

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
	"stoa/agentsvc/session"
	"stoa/agentsvc/task"
	"stoa/billing"
)

// Of the answers of models that a budget applies to: how many tokens one may have where max_tokens is not configured, and how
// many are still of use where the budget has no room for that.
const (
	defaultMaxOutput = 8192
	minUsefulOutput  = 64
)

// meterModel returns m with its calls counted, and held to the app's plan and budgets.
func (b *builder) meterModel(l *config.LLM, m llm.Provider) llm.Provider {
	if b.meter == nil {
		return m
	}
	out := meteredModel{
		app: b.tenant.Name, onExhausted: b.instrumentation.OnBudgetExhausted, next: m, provider: l.Provider, model: l.Model, meter: b.meter, budgetGate: b.budgetGate, configuredMaxOutput: int64(l.MaxTokens), maxOutput: int64(l.MaxTokens), minOutput: minUsefulOutput,
		countTokens: session.NewTokenCounter(l.Provider, l.Model), log: b.log,
	}
	if onCharge := b.instrumentation.OnCharge; onCharge != nil {
		out.onCharge = func(ctx context.Context, u agentsvc.Usage) {
			if w := b.meter.PriceCall(u); w.Charge > 0 {
				onCharge(ctx, b.tenant.Name, u.Model, w.Currency, int64(w.Charge))
			}
		}
	}
	if l.Provider == "scripted" {
		out.trustsUsage = b.tenant.DefaultApp
		out.countTokens, out.model = func(text string) int { return len(strings.Fields(text)) }, "scripted"
		if l.Model != "" {
			out.model = l.Model
		}
	}
	if out.maxOutput == 0 {
		out.maxOutput = defaultMaxOutput
	}
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

// checkModelInPlan refuses a model that the app's plan does not have, where the app is only tried. One that is served may have been
// put on the plan, or the plan changed, before: its other agents work on, and calls of that model fail.
func (b *builder) checkModelInPlan(l *config.LLM) error {
	if b.budgetGate == nil || b.budgetGate.AllowsModel(l.Provider, usageModelName(l)) {
		return nil
	}
	if !b.tenant.DryRun {
		b.log.Warn("the app's plan does not have a model of its configuration: calls of it fail", "plan", b.tenant.Plan, "model", l.Provider+"/"+usageModelName(l))
		return nil
	}
	return agentsvc.NewInvalidError("model", "%s/%s is not among the models of the plan %s", l.Provider, usageModelName(l), b.tenant.Plan)
}

// usageModelName is what usage calls a model.
func usageModelName(l *config.LLM) string {
	if l.Provider == "scripted" && l.Model == "" {
		return "scripted"
	}
	return l.Model
}

// findBudgetChange returns why the budget that a task waits for has room again, nil where it has none.
func (b *builder) findBudgetChange(ctx context.Context, w task.BudgetWait) (*task.BudgetChange, error) {
	if b.budgetGate == nil {
		return &task.BudgetChange{}, nil
	}
	r, err := b.budgetGate.CheckAvailability(ctx, w.ID, w.Needs)
	return (*task.BudgetChange)(r), err
}

// meteredModel is a model whose calls are counted and held to budgets.
type meteredModel struct {
	app                 string
	onExhausted         func(app string) // nil = nobody wants to know
	next                llm.Provider
	provider            string
	model               string
	meter               *billing.Meter
	budgetGate          *billing.BudgetGate
	countTokens         session.TokenCounter
	trustsUsage         bool                                  // what it says about its usage is counted as it stands
	configuredMaxOutput int64                                 // of an answer, as configured; 0 = nothing bounds it
	maxOutput           int64                                 // of an answer, where a budget applies
	minOutput           int64                                 // that is of use
	onCharge            func(context.Context, agentsvc.Usage) // nil = nobody wants to know
	log                 *slog.Logger
}

// Stream implements [llm.Provider].
func (m meteredModel) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		if !m.budgetGate.AllowsModel(m.provider, m.model) {
			yield(llm.Chunk{}, agentsvc.NewInvalidError("", "the app's plan does not have the model %s/%s", m.provider, m.model))
			return
		}
		c := meteredCall{meteredModel: m, recorder: agentsvc.UsageRecorderFromContext(ctx), req: req}
		c.usage = agentsvc.Usage{Call: agentsvc.NewID(), StartedAt: time.Now().UTC().Truncate(time.Microsecond), Provider: m.provider, Model: m.model}
		if err := c.reserveBudget(ctx); err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		defer c.settleUsage(ctx)
		for chunk, err := range m.next.Stream(ctx, c.req) {
			c.observeChunk(ctx, &chunk, err)
			if !yield(chunk, err) {
				return
			}
		}
	}
}

// meteredCall is one call of a metered model.
type meteredCall struct {
	meteredModel
	recorder        *agentsvc.UsageRecorder // nil = nobody in particular
	req             llm.Request
	reservation     *billing.Reservation // nil = no budget applies
	usage           agentsvc.Usage
	reported        bool  // by the vendor
	started         bool  // the answer has
	failed          bool  // the vendor has, or said that it would not
	estimatedTokens int64 // tokens, as they are estimated
	receivedBytes   int64 // bytes
}

// newBudgetRequest names the call to the budgets.
func (c *meteredCall) newBudgetRequest() billing.UsageRequest {
	request := billing.UsageRequest{Call: c.usage.Call, Provider: c.provider, Model: c.model}
	if c.recorder != nil {
		request.Task, request.Epoch, request.Agent, request.Owner = c.recorder.Task, c.recorder.Epoch, c.recorder.Agent, c.recorder.Owner
	}
	return request
}

// reserveBudget takes what the call may cost from the budgets that apply to it, and bounds the answer to that.
func (c *meteredCall) reserveBudget(ctx context.Context) (err error) {
	if !c.budgetGate.HasBudgets() {
		return nil
	}
	request := c.newBudgetRequest()
	request.Input, request.Output, request.MinOutput = c.countInput(), c.req.TokenLimit(c.maxOutput), c.minOutput
	if c.reservation, err = c.budgetGate.ReserveUsage(ctx, request); c.reservation != nil {
		c.req.MaxTokens, c.usage.StartedAt = c.reservation.Output, c.reservation.Began
	}
	if c.onExhausted != nil && errors.As(err, new(*agentsvc.BudgetExhaustedError)) {
		c.onExhausted(c.app)
	}
	return err
}

// countInput counts what the call sends, rather high than low.
func (c *meteredCall) countInput() int64 {
	n := session.CountRequest(c.countTokens, c.req)
	if c.provider != "scripted" {
		n += n / 4 // tokenizers differ, and so do the words around what is said
	}
	return int64(n)
}

// observeChunk takes note of a piece of the answer, and names the call where it tells what that used.
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
		return
	}
	u := c.clampUsage(ctx, *chunk.Usage)
	u.Call, u.StartedAt = c.usage.Call, c.usage.StartedAt
	u.Provider, u.Model = c.provider, c.model
	c.usage, c.reported, chunk.Usage = u, true, &u
	c.reportUsage()
}

func (c *meteredCall) countOutput(text string) {
	c.estimatedTokens += int64(session.EstimateTokens(text))
	c.receivedBytes += int64(len(text))
}

func (c *meteredCall) reportUsage() {
	if c.recorder != nil {
		c.recorder.Record(c.usage)
	}
}

// settleTimeout bounds how long it may take to write down what a call has used, whose caller may be gone.
const settleTimeout = 5 * time.Second

// settleUsage ends the call. Where the vendor did not say what it used, because it was broken off or never does, that is estimated,
// at no more than the call was bounded to; a call that failed before its answer began has used nothing.
func (c *meteredCall) settleUsage(ctx context.Context) {
	if !c.reported && (c.started || !c.failed) {
		if maximum := c.req.MaxTokens; maximum > 0 {
			c.estimatedTokens = min(c.estimatedTokens, maximum)
		}
		c.usage.InputTokens, c.usage.OutputTokens, c.usage.Estimated = c.countInput(), c.estimatedTokens, true
		c.reported = true
		c.reportUsage()
	}
	if c.reported && c.onCharge != nil {
		c.onCharge(ctx, c.usage)
	}
	if c.reservation == nil && !c.budgetGate.HasBudgets() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	var err error
	switch {
	case c.reservation == nil && c.reported:
		err = c.budgetGate.RecordUnreserved(ctx, c.meter, c.newBudgetRequest(), c.usage)
	case c.reservation == nil:
	case c.reported:
		err = c.reservation.SettleUsage(ctx, c.meter, c.usage)
	default:
		err = c.reservation.ReleaseUsage(ctx)
	}
	if err != nil { // the reservation lapses, and with it the balance is worked out anew
		c.log.Warn("what a model call has used could not be settled with its budgets at once", "error", err)
	}
}
