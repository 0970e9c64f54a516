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

// Watch is who wants to know what an app's agents do. Each of its functions may be nil, and what nobody watches costs
// nothing. None is told what anybody said.
type Watch struct {
	// Spans says that calls may be recorded: whether one is, its context tells.
	Spans bool
	// Content has the spans of the operator's own app hold what models are asked and answer. Those of others never do.
	Content bool
	Asked   func(ctx context.Context, app string, c ModelCall)
	Called  func(ctx context.Context, app string, c ToolCall)
	// Ended is told what state an attempt of a run has brought its task to, "" if it will be tried again.
	Ended func(ctx context.Context, app string, run store.Run, state agentsvc.State, took time.Duration)
	// Exhausted is told of each call of a model that a budget refuses, or has wait.
	Exhausted func(app string)
	// Charged is told what has become due for a model's work, in billionths of the currency's unit.
	Charged func(ctx context.Context, app, model, currency string, nanos int64)
}

// ModelCall is one call of a model, tries after a failure included.
type ModelCall struct {
	Provider, Model string
	Took            time.Duration
	FirstChunk      time.Duration // until then; 0 = there was none
	Usage           agentsvc.Usage
	Fault           string // the kind of error, "" = none
}

// ToolCall is one call of a tool.
type ToolCall struct {
	Tool  string
	Took  time.Duration
	Fault string // the kind of error, "" = none
}

// spans is how the spans of something begin.
type spans struct {
	name  string
	start []trace.SpanStartOption
}

func spanOf(name, app string, more ...attribute.KeyValue) spans {
	return spans{name, []trace.SpanStartOption{trace.WithAttributes(append(more, trail.AppKey.String(app))...)}}
}

// watchModel returns m watched.
func (b *builder) watchModel(l *config.LLM, m llm.Provider) llm.Provider {
	if !b.watch.Spans && b.watch.Asked == nil {
		return m
	}
	w := watchedModel{Provider: m, app: b.tenant.Name, asked: b.watch.Asked, provider: l.Provider, model: l.Model, content: b.watch.Content && b.tenant.Own}
	if l.Provider == "gemini" {
		w.provider = semconv.GenAIProviderNameGCPGemini.Value.AsString()
	}
	w.span = spanOf("chat "+l.Model, w.app, semconv.GenAIOperationNameChat, semconv.GenAIProviderNameKey.String(w.provider), semconv.GenAIRequestModel(l.Model))
	w.span.start = append(w.span.start, trace.WithSpanKind(trace.SpanKindClient))
	return w
}

// watchedModel is a model whose calls leave a trail.
type watchedModel struct {
	llm.Provider
	span                 spans
	app, provider, model string
	asked                func(context.Context, string, ModelCall)
	content              bool
}

// Stream implements [llm.Provider].
func (m watchedModel) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		began := time.Now()
		ctx, span := trail.Start(ctx, m.span.name, m.span.start...)
		answer := answer{ModelCall: ModelCall{Provider: m.provider, Model: m.model}}
		if m.content && span.IsRecording() {
			answer.heard = &heard{}
			span.SetAttributes(asked(req)...)
		}
		defer func() {
			answer.Took, answer.Fault = time.Since(began), trail.Kind(answer.err)
			if span.IsRecording() {
				span.SetAttributes(answer.attributes()...)
			}
			trail.End(span, answer.err)
			if m.asked != nil {
				m.asked(ctx, m.app, answer.ModelCall)
			}
		}()
		for c, err := range m.Provider.Stream(ctx, req) {
			answer.note(began, c, err)
			if !yield(c, err) {
				return
			}
		}
	}
}

// answer is what becomes known of a model's answer.
type answer struct {
	ModelCall
	stop  llm.Stop
	err   error
	heard *heard // nil = what it says is not kept
}

func (a *answer) note(began time.Time, c llm.Chunk, err error) {
	if a.FirstChunk == 0 && err == nil {
		a.FirstChunk = time.Since(began)
	}
	if a.err = err; c.Usage != nil {
		a.Usage = *c.Usage
	}
	if c.Stop != "" {
		a.stop = c.Stop
	}
	a.heard.note(c)
}

func (a *answer) attributes() []attribute.KeyValue {
	u := a.Usage
	all := append(a.heard.attributes(a.stop),
		semconv.GenAIUsageInputTokens(int(u.InputTokens)), semconv.GenAIUsageOutputTokens(int(u.OutputTokens)),
		semconv.GenAIUsageCacheReadInputTokens(int(u.CacheReadTokens)), semconv.GenAIUsageCacheCreationInputTokens(int(u.CacheWriteTokens)),
		semconv.GenAIUsageReasoningOutputTokens(int(u.ReasoningTokens)), semconv.GenAIResponseTimeToFirstChunk(a.FirstChunk.Seconds()))
	if u.Model != "" {
		all = append(all, semconv.GenAIResponseModel(u.Model))
	}
	if a.stop != "" {
		all = append(all, semconv.GenAIResponseFinishReasons(string(a.stop)))
	}
	return all
}

// watchTool returns what makes tools watched, nil if nobody watches.
func (b *builder) watchTool() func(tool.Tool) tool.Tool {
	if !b.watch.Spans && b.watch.Called == nil {
		return nil
	}
	return func(t tool.Tool) tool.Tool {
		name := t.Spec().Name
		return watchedTool{t, spanOf("execute_tool "+name, b.tenant.Name, semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(name)),
			b.tenant.Name, name, b.watch.Called}
	}
}

// watchedTool is a tool whose calls leave a trail.
type watchedTool struct {
	tool.Tool
	span      spans
	app, name string
	called    func(context.Context, string, ToolCall)
}

// Call implements [tool.Tool].
func (t watchedTool) Call(ctx context.Context, in tool.Input) (text string, err error) {
	began := time.Now()
	ctx, span := trail.Start(ctx, t.span.name, t.span.start...)
	defer func() {
		trail.End(span, err)
		if t.called != nil {
			t.called(ctx, t.app, ToolCall{Tool: t.name, Took: time.Since(began), Fault: trail.Kind(err)})
		}
	}()
	return t.Tool.Call(ctx, in)
}

// watchAgent returns a as one whose turns have a span of their own.
func (b *builder) watchAgent(name string, a agent.Agent) agent.Agent {
	if !b.watch.Spans || a == nil {
		return a
	}
	return watchedAgent{a, spanOf("invoke_agent "+name, b.tenant.Name, semconv.GenAIOperationNameInvokeAgent, semconv.GenAIAgentName(name))}
}

// watchedAgent is an agent whose turns leave a trail.
type watchedAgent struct {
	agent.Agent
	span spans
}

// Run implements [agent.Agent].
func (a watchedAgent) Run(ctx context.Context, inv agent.Invocation) iter.Seq2[agentsvc.Event, error] {
	if !trail.Recorded(ctx) {
		return a.Agent.Run(ctx, inv)
	}
	return func(yield func(agentsvc.Event, error) bool) {
		ctx, span := trail.Start(ctx, a.span.name, a.span.start...)
		var last error
		defer func() { trail.End(span, last) }()
		for ev, err := range a.Agent.Run(ctx, inv) {
			last = err
			if !yield(ev, err) {
				return
			}
		}
	}
}

// leading returns c as one that tells whom it calls of the trace: servers of tools and other agents, which may have a part
// in it. The vendors of models have none.
func (b *builder) leading(c *http.Client) *http.Client {
	if !b.watch.Spans {
		return c
	}
	return trail.Lead(c)
}

// running is what the configuration asks of the runner, and who wants to know of runs.
func (b *builder) running(h House) runner.Options {
	o := checkpoints(b.cfg.Storage.Checkpoint)
	o.Longest, o.Memory = h.LongestRun, h.Memory
	if ended := b.watch.Ended; ended != nil {
		o.Ended = func(ctx context.Context, run store.Run, state agentsvc.State, took time.Duration) {
			ended(ctx, b.tenant.Name, run, state, took)
		}
	}
	return o
}
