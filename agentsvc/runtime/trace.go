package runtime

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
	"stoa/agentsvc/document/retrieval"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/store"
	"stoa/agentsvc/tool"
	"stoa/agentsvc/trail"
)

// Instrumentation is the process's receivers of what agents do, for traces and metrics. Each function may be nil, and
// costs nothing then. None gets text of a conversation.
type Instrumentation struct {
	// RecordSpans allows spans. Whether a call is recorded is decided where its trace begins.
	RecordSpans bool
	// RecordContent adds requests and responses of models to the spans of the operator's own app. Those of tenants
	// never have them.
	RecordContent bool
	// OnModelCall and OnToolCall are called after each call.
	OnModelCall func(ctx context.Context, app string, c ModelCall)
	OnToolCall  func(ctx context.Context, app string, c ToolCall)
	// OnRunEnded is called after each attempt of a run, with the state of the task; "" if the run will be retried.
	OnRunEnded func(ctx context.Context, app string, run store.Run, state agentsvc.State, took time.Duration)
	// OnDocumentSearch is called when a document store of an app was searched, OnSearchPart after each part of the search.
	OnDocumentSearch func(app string, o retrieval.Outcome, took time.Duration)
	OnSearchPart     func(p retrieval.Part, took time.Duration)
	// OnBudgetExhausted is called for each model call that a budget refuses or pauses.
	OnBudgetExhausted func(app string)
	// OnCharge is called with the charge of a model call, in nano-units of the currency.
	OnCharge func(ctx context.Context, app, model, currency string, nanos int64)
}

// ModelCall is one call of a model, including its retries.
type ModelCall struct {
	Provider, Model string
	Duration        time.Duration
	// TimeToFirstChunk is 0 if no chunk arrived.
	TimeToFirstChunk time.Duration
	Usage            agentsvc.Usage
	// ErrorKind is that of [trail.ErrorKind], "" for none.
	ErrorKind string
}

// ToolCall is one call of a tool.
type ToolCall struct {
	Tool     string
	Duration time.Duration
	// ErrorKind is that of [trail.ErrorKind], "" for none.
	ErrorKind string
}

// spanTemplate is the name and the options of a kind of span, computed once rather than for each call.
type spanTemplate struct {
	name    string
	options []trace.SpanStartOption
}

func newSpanTemplate(name, app string, more ...attribute.KeyValue) spanTemplate {
	return spanTemplate{name, []trace.SpanStartOption{trace.WithAttributes(append(more, trail.AppKey.String(app))...)}}
}

// tracing adds spans and metrics to models, tools and agents, which it decorates.
type tracing struct {
	tenant          Tenant
	instrumentation Instrumentation
}

// traceModel returns m with spans and metrics for its calls, or m itself if neither is wanted.
func (t tracing) traceModel(l *config.LLM, m llm.Provider) llm.Provider {
	if !t.instrumentation.RecordSpans && t.instrumentation.OnModelCall == nil {
		return m
	}
	w := tracedModel{Provider: m, app: t.tenant.Name, onCall: t.instrumentation.OnModelCall, provider: l.Provider, model: l.Model, recordContent: t.instrumentation.RecordContent && t.tenant.DefaultApp}
	// The conventions have a name of their own for this provider.
	// The span's provider is the name that the conventions define, not ours.
	if l.Provider == "gemini" {
		w.provider = semconv.GenAIProviderNameGCPGemini.Value.AsString()
	}
	w.span = newSpanTemplate("chat "+l.Model, w.app, semconv.GenAIOperationNameChat, semconv.GenAIProviderNameKey.String(w.provider), semconv.GenAIRequestModel(l.Model))
	w.span.options = append(w.span.options, trace.WithSpanKind(trace.SpanKindClient))
	return w
}

// tracedModel is a model whose calls have spans and metrics.
type tracedModel struct {
	llm.Provider
	// span, app, provider and model are set by traceModel, then read-only.
	span                 spanTemplate
	app, provider, model string
	// onCall may be nil.
	onCall func(context.Context, string, ModelCall)
	// recordContent adds the request and the response to the span.
	recordContent bool
}

// Stream implements [llm.Provider]. The span ends with the stream.
func (m tracedModel) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		began := time.Now()
		ctx, span := trail.StartSpan(ctx, m.span.name, m.span.options...)
		answer := observedAnswer{ModelCall: ModelCall{Provider: m.provider, Model: m.model}}
		if m.recordContent && span.IsRecording() {
			answer.content = &responseContent{}
			span.SetAttributes(requestAttributes(req)...)
		}
		// Deferred, since the consumer may stop the stream before its end.
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

// observedAnswer is what is known of a response so far.
type observedAnswer struct {
	ModelCall
	// stop is the reason that the vendor gave for the end of the response; err is the error that ended the stream.
	stop llm.StopReason
	err  error
	// content is nil if content is not recorded.
	content *responseContent
}

// observeChunk updates a by a chunk, or by the error that ends the stream.
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

// spanAttributes returns the attributes of the GenAI semantic conventions for the response.
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

// toolTracer returns a decorator that adds spans and metrics to a tool, nil if neither is wanted.
func (t tracing) toolTracer() func(tool.Tool) tool.Tool {
	if !t.instrumentation.RecordSpans && t.instrumentation.OnToolCall == nil {
		return nil
	}
	return func(next tool.Tool) tool.Tool {
		name := next.Spec().Name
		return tracedTool{next, newSpanTemplate("execute_tool "+name, t.tenant.Name, semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(name)),
			t.tenant.Name, name, t.instrumentation.OnToolCall}
	}
}

// tracedTool is a tool whose calls have spans and metrics.
type tracedTool struct {
	tool.Tool
	span      spanTemplate
	app, name string
	onCall    func(context.Context, string, ToolCall)
}

// Call implements [tool.Tool].
func (t tracedTool) Call(ctx context.Context, in tool.Call) (text string, err error) {
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

// traceAgent returns a with a span for each of its turns, or a itself if spans are off.
func (t tracing) traceAgent(name string, a agent.Agent) agent.Agent {
	if !t.instrumentation.RecordSpans || a == nil {
		return a
	}
	return tracedAgent{a, newSpanTemplate("invoke_agent "+name, t.tenant.Name, semconv.GenAIOperationNameInvokeAgent, semconv.GenAIAgentName(name))}
}

// tracedAgent is an agent whose turns have spans.
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

// propagateTrace returns c with the trace's header in each request. It is for tool servers and other agents, which may
// continue the trace, and not for model vendors, which have no use for it.
func (t tracing) propagateTrace(c *http.Client) *http.Client {
	if !t.instrumentation.RecordSpans {
		return c
	}
	return trail.WithPropagation(c)
}
