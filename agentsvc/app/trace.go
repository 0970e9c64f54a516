package app

import (
	"context"
	"iter"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/config"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/runner"
	"stoa/agentsvc/store"
	"stoa/agentsvc/tool"
	"stoa/agentsvc/trail"
)

// Instrumentation is who wants to know what an app's agents do. Each of its functions may be nil, and what nobody watches costs
// nothing. None is told what anybody said.
type Instrumentation struct {
	// RecordSpans says that calls may be recorded: whether one is, its context tells.
	RecordSpans bool
	// RecordContent has the spans of the operator's own app hold what models are asked and answer. Those of others never do.
	RecordContent bool
	OnModelCall   func(ctx context.Context, app string, c ModelCall)
	OnToolCall    func(ctx context.Context, app string, c ToolCall)
	// OnRunEnded is told what state an attempt of a run has brought its task to, "" if it will be tried again.
	OnRunEnded func(ctx context.Context, app string, run store.Run, state agentsvc.State, took time.Duration)
	// OnBudgetExhausted is told of each call of a model that a budget refuses, or has wait.
	OnBudgetExhausted func(app string)
	// OnCharge is told what has become due for a model's work, in billionths of the currency's unit.
	OnCharge func(ctx context.Context, app, model, currency string, nanos int64)
}

// ModelCall is one call of a model, tries after a failure included.
type ModelCall struct {
	Provider, Model  string
	Duration         time.Duration
	TimeToFirstChunk time.Duration // until then; 0 = there was none
	Usage            agentsvc.Usage
	ErrorKind        string // the kind of error, "" = none
}

// ToolCall is one call of a tool.
type ToolCall struct {
	Tool      string
	Duration  time.Duration
	ErrorKind string // the kind of error, "" = none
}

// spanTemplate is how the spans of something begin.
type spanTemplate struct {
	name    string
	options []trace.SpanStartOption
}

func newSpanTemplate(name, app string, more ...attribute.KeyValue) spanTemplate {
	return spanTemplate{name, []trace.SpanStartOption{trace.WithAttributes(append(more, trail.AppKey.String(app))...)}}
}

// traceModel returns m watched.
func (b *builder) traceModel(l *config.LLM, m llm.Provider) llm.Provider {
	if !b.instrumentation.RecordSpans && b.instrumentation.OnModelCall == nil {
		return m
	}
	w := tracedModel{Provider: m, app: b.tenant.Name, onCall: b.instrumentation.OnModelCall, provider: l.Provider, model: l.Model, recordContent: b.instrumentation.RecordContent && b.tenant.DefaultApp}
	if l.Provider == "gemini" {
		w.provider = semconv.GenAIProviderNameGCPGemini.Value.AsString()
	}
	w.span = newSpanTemplate("chat "+l.Model, w.app, semconv.GenAIOperationNameChat, semconv.GenAIProviderNameKey.String(w.provider), semconv.GenAIRequestModel(l.Model))
	w.span.options = append(w.span.options, trace.WithSpanKind(trace.SpanKindClient))
	return w
}

// tracedModel is a model whose calls leave a trail.
type tracedModel struct {
	llm.Provider
	span                 spanTemplate
	app, provider, model string
	onCall               func(context.Context, string, ModelCall)
	recordContent        bool
}

// Stream implements [llm.Provider].
func (m tracedModel) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		began := time.Now()
		ctx, span := trail.StartSpan(ctx, m.span.name, m.span.options...)
		answer := observedAnswer{ModelCall: ModelCall{Provider: m.provider, Model: m.model}}
		if m.recordContent && span.IsRecording() {
			answer.content = &responseContent{}
			span.SetAttributes(requestAttributes(req)...)
		}
		defer func() {
			answer.Duration, answer.ErrorKind = time.Since(began), trail.ErrorKind(answer.err)
			if span.IsRecording() {
				span.SetAttributes(answer.spanAttributes()...)
			}
			trail.EndSpan(span, answer.err)
			if m.onCall != nil {
				m.onCall(ctx, m.app, answer.ModelCall)
			}
		}()
		for c, err := range m.Provider.Stream(ctx, req) {
			answer.observeChunk(began, c, err)
			if !yield(c, err) {
				return
			}
		}
	}
}

// observedAnswer is what becomes known of a model's answer.
type observedAnswer struct {
	ModelCall
	stop    llm.StopReason
	err     error
	content *responseContent // nil = what it says is not kept
}

func (a *observedAnswer) observeChunk(began time.Time, c llm.Chunk, err error) {
	if a.TimeToFirstChunk == 0 && err == nil {
		a.TimeToFirstChunk = time.Since(began)
	}
	if a.err = err; c.Usage != nil {
		a.Usage = *c.Usage
	}
	if c.Stop != "" {
		a.stop = c.Stop
	}
	a.content.addChunk(c)
}

func (a *observedAnswer) spanAttributes() []attribute.KeyValue {
	u := a.Usage
	all := append(a.content.spanAttributes(a.stop),
		semconv.GenAIUsageInputTokens(int(u.InputTokens)), semconv.GenAIUsageOutputTokens(int(u.OutputTokens)),
		semconv.GenAIUsageCacheReadInputTokens(int(u.CacheReadTokens)), semconv.GenAIUsageCacheCreationInputTokens(int(u.CacheWriteTokens)),
		semconv.GenAIUsageReasoningOutputTokens(int(u.ReasoningTokens)), semconv.GenAIResponseTimeToFirstChunk(a.TimeToFirstChunk.Seconds()))
	if u.Model != "" {
		all = append(all, semconv.GenAIResponseModel(u.Model))
	}
	if a.stop != "" {
		all = append(all, semconv.GenAIResponseFinishReasons(string(a.stop)))
	}
	return all
}

// toolTracer returns what makes tools watched, nil if nobody watches.
func (b *builder) toolTracer() func(tool.Tool) tool.Tool {
	if !b.instrumentation.RecordSpans && b.instrumentation.OnToolCall == nil {
		return nil
	}
	return func(t tool.Tool) tool.Tool {
		name := t.Spec().Name
		return tracedTool{t, newSpanTemplate("execute_tool "+name, b.tenant.Name, semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(name)),
			b.tenant.Name, name, b.instrumentation.OnToolCall}
	}
}

// tracedTool is a tool whose calls leave a trail.
type tracedTool struct {
	tool.Tool
	span      spanTemplate
	app, name string
	onCall    func(context.Context, string, ToolCall)
}

// Call implements [tool.Tool].
func (t tracedTool) Call(ctx context.Context, in tool.Input) (text string, err error) {
	began := time.Now()
	ctx, span := trail.StartSpan(ctx, t.span.name, t.span.options...)
	defer func() {
		trail.EndSpan(span, err)
		if t.onCall != nil {
			t.onCall(ctx, t.app, ToolCall{Tool: t.name, Duration: time.Since(began), ErrorKind: trail.ErrorKind(err)})
		}
	}()
	return t.Tool.Call(ctx, in)
}

// traceAgent returns a as one whose turns have a span of their own.
func (b *builder) traceAgent(name string, a agent.Agent) agent.Agent {
	if !b.instrumentation.RecordSpans || a == nil {
		return a
	}
	return tracedAgent{a, newSpanTemplate("invoke_agent "+name, b.tenant.Name, semconv.GenAIOperationNameInvokeAgent, semconv.GenAIAgentName(name))}
}

// tracedAgent is an agent whose turns leave a trail.
type tracedAgent struct {
	agent.Agent
	span spanTemplate
}

// Run implements [agent.Agent].
func (a tracedAgent) Run(ctx context.Context, inv agent.Invocation) iter.Seq2[agentsvc.Event, error] {
	if !trail.IsRecorded(ctx) {
		return a.Agent.Run(ctx, inv)
	}
	return func(yield func(agentsvc.Event, error) bool) {
		ctx, span := trail.StartSpan(ctx, a.span.name, a.span.options...)
		var last error
		defer func() { trail.EndSpan(span, last) }()
		for ev, err := range a.Agent.Run(ctx, inv) {
			last = err
			if !yield(ev, err) {
				return
			}
		}
	}
}

// propagateTrace returns c as one that tells whom it calls of the trace: servers of tools and other agents, which may have a part
// in it. The vendors of models have none.
func (b *builder) propagateTrace(c *http.Client) *http.Client {
	if !b.instrumentation.RecordSpans {
		return c
	}
	return trail.WithPropagation(c)
}

// runnerOptions is what the configuration asks of the runner, and who wants to know of runs.
func (b *builder) runnerOptions(h Dependencies) runner.Options {
	o := checkpointOptions(b.cfg.Storage.Checkpoint)
	o.MaxDuration, o.Memory = h.MaxRunTime, h.Memory
	if ended := b.instrumentation.OnRunEnded; ended != nil {
		o.OnAttemptEnd = func(ctx context.Context, run store.Run, state agentsvc.State, took time.Duration) {
			ended(ctx, b.tenant.Name, run, state, took)
		}
	}
	return o
}
