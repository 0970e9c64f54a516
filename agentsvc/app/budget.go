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
	boundedOutput = 8192
	leastOutput   = 64
)

// metered returns m with its calls counted, and held to the app's plan and budgets.
func (b *builder) metered(l *config.LLM, m llm.Provider) llm.Provider {
	if b.meter == nil {
		return m
	}
	out := metered{
		app: b.tenant.Name, exhausted: b.watch.Exhausted, next: m, provider: l.Provider, model: l.Model, meter: b.meter, allowance: b.allowance, most: int64(l.MaxTokens), output: int64(l.MaxTokens), least: leastOutput,
		count: session.CounterFor(l.Provider, l.Model), log: b.log,
	}
	if charged := b.watch.Charged; charged != nil {
		out.charged = func(ctx context.Context, u agentsvc.Usage) {
			if w := b.meter.Worth(u); w.Charge > 0 {
				charged(ctx, b.tenant.Name, u.Model, w.Currency, int64(w.Charge))
			}
		}
	}
	if l.Provider == "scripted" {
		out.trusted = b.tenant.Own
		out.count, out.model = func(text string) int { return len(strings.Fields(text)) }, "scripted"
		if l.Model != "" {
			out.model = l.Model
		}
	}
	if out.output == 0 {
		out.output = boundedOutput
	}
	if t := l.Thinking; t != nil && t.Enabled {
		thinking := int64(max(t.BudgetTokens, 1024))
		out.least += thinking
		if l.MaxTokens == 0 {
			out.output += thinking
		}
	}
	out.least = min(out.least, out.output)
	return out
}

// allowed refuses a model that the app's plan does not have, where the app is only tried. One that is served may have been
// put on the plan, or the plan changed, before: its other agents work on, and calls of that model fail.
func (b *builder) allowed(l *config.LLM) error {
	if b.allowance == nil || b.allowance.Allows(l.Provider, modelOf(l)) {
		return nil
	}
	if !b.tenant.Trial {
		b.log.Warn("the app's plan does not have a model of its configuration: calls of it fail", "plan", b.tenant.Plan, "model", l.Provider+"/"+modelOf(l))
		return nil
	}
	return agentsvc.Invalid("model", "%s/%s is not among the models of the plan %s", l.Provider, modelOf(l), b.tenant.Plan)
}

// modelOf is what usage calls a model.
func modelOf(l *config.LLM) string {
	if l.Provider == "scripted" && l.Model == "" {
		return "scripted"
	}
	return l.Model
}

// room returns why the budget that a task waits for has room again, nil where it has none.
func (b *builder) room(ctx context.Context, w task.BudgetWait) (*task.Relief, error) {
	if b.allowance == nil {
		return &task.Relief{}, nil
	}
	r, err := b.allowance.Room(ctx, w.ID, w.Needs)
	return (*task.Relief)(r), err
}

// metered is a model whose calls are counted and held to budgets.
type metered struct {
	app       string
	exhausted func(app string) // nil = nobody wants to know
	next      llm.Provider
	provider  string
	model     string
	meter     *billing.Meter
	allowance *billing.Allowance
	count     session.Counter
	trusted   bool                                  // what it says about its usage is counted as it stands
	most      int64                                 // of an answer, as configured; 0 = nothing bounds it
	output    int64                                 // of an answer, where a budget applies
	least     int64                                 // that is of use
	charged   func(context.Context, agentsvc.Usage) // nil = nobody wants to know
	log       *slog.Logger
}

// Stream implements [llm.Provider].
func (m metered) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		if !m.allowance.Allows(m.provider, m.model) {
			yield(llm.Chunk{}, agentsvc.Invalid("", "the app's plan does not have the model %s/%s", m.provider, m.model))
			return
		}
		c := spending{metered: m, by: agentsvc.SpendingOf(ctx), req: req}
		c.used = agentsvc.Usage{Call: agentsvc.NewID(), Began: time.Now().UTC().Truncate(time.Microsecond), Provider: m.provider, Model: m.model}
		if err := c.reserve(ctx); err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		defer c.settle(ctx)
		for chunk, err := range m.next.Stream(ctx, c.req) {
			c.see(ctx, &chunk, err)
			if !yield(chunk, err) {
				return
			}
		}
	}
}

// spending is one call of a metered model.
type spending struct {
	metered
	by       *agentsvc.Spending // nil = nobody in particular
	req      llm.Request
	reserved *billing.Reservation // nil = no budget applies
	used     agentsvc.Usage
	reported bool  // by the vendor
	begun    bool  // the answer has
	failed   bool  // the vendor has, or said that it would not
	said     int64 // tokens, as they are estimated
	heard    int64 // bytes
}

// ask names the call to the budgets.
func (c *spending) ask() billing.Ask {
	ask := billing.Ask{Call: c.used.Call, Provider: c.provider, Model: c.model}
	if c.by != nil {
		ask.Task, ask.Epoch, ask.Agent, ask.Owner = c.by.Task, c.by.Epoch, c.by.Agent, c.by.Owner
	}
	return ask
}

// reserve takes what the call may cost from the budgets that apply to it, and bounds the answer to that.
func (c *spending) reserve(ctx context.Context) (err error) {
	if !c.allowance.Bounded() {
		return nil
	}
	ask := c.ask()
	ask.Input, ask.Output, ask.Least = c.input(), c.req.Most(c.output), c.least
	if c.reserved, err = c.allowance.Reserve(ctx, ask); c.reserved != nil {
		c.req.MaxTokens, c.used.Began = c.reserved.Output, c.reserved.Began
	}
	if c.exhausted != nil && errors.As(err, new(*agentsvc.ExhaustedError)) {
		c.exhausted(c.app)
	}
	return err
}

// input counts what the call sends, rather high than low.
func (c *spending) input() int64 {
	n := session.Size(c.count, c.req)
	if c.provider != "scripted" {
		n += n / 4 // tokenizers differ, and so do the words around what is said
	}
	return int64(n)
}

// see takes note of a piece of the answer, and names the call where it tells what that used.
func (c *spending) see(ctx context.Context, chunk *llm.Chunk, err error) {
	var upstream *llm.Error
	c.failed = c.failed || errors.As(err, &upstream)
	if err != nil {
		return
	}
	c.begun = true
	c.hear(chunk.Text)
	if chunk.ToolCall != nil {
		c.hear(chunk.ToolCall.Name)
		c.hear(string(chunk.ToolCall.Arguments))
	}
	if chunk.Usage == nil {
		return
	}
	u := c.plausible(ctx, *chunk.Usage)
	u.Call, u.Began = c.used.Call, c.used.Began
	u.Provider, u.Model = c.provider, c.model
	c.used, c.reported, chunk.Usage = u, true, &u
	c.tell()
}

func (c *spending) hear(text string) {
	c.said += int64(session.Estimate(text))
	c.heard += int64(len(text))
}

func (c *spending) tell() {
	if c.by != nil {
		c.by.Tell(c.used)
	}
}

// settling bounds how long it may take to write down what a call has used, whose caller may be gone.
const settling = 5 * time.Second

// settle ends the call. Where the vendor did not say what it used, because it was broken off or never does, that is estimated,
// at no more than the call was bounded to; a call that failed before its answer began has used nothing.
func (c *spending) settle(ctx context.Context) {
	if !c.reported && (c.begun || !c.failed) {
		if most := c.req.MaxTokens; most > 0 {
			c.said = min(c.said, most)
		}
		c.used.InputTokens, c.used.OutputTokens, c.used.Estimated = c.input(), c.said, true
		c.reported = true
		c.tell()
	}
	if c.reported && c.charged != nil {
		c.charged(ctx, c.used)
	}
	if c.reserved == nil && !c.allowance.Bounded() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	var err error
	switch {
	case c.reserved == nil && c.reported:
		err = c.allowance.Spent(ctx, c.meter, c.ask(), c.used)
	case c.reserved == nil:
	case c.reported:
		err = c.reserved.Settle(ctx, c.meter, c.used)
	default:
		err = c.reserved.Release(ctx)
	}
	if err != nil { // the reservation lapses, and with it the balance is worked out anew
		c.log.Warn("what a model call has used could not be settled with its budgets at once", "error", err)
	}
}
