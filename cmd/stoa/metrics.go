package main

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"

	"stoa/agentsvc"
	"stoa/agentsvc/app"
	"stoa/agentsvc/guardrail"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/trigger"
)

// meters count what the process does. Nil ones count nothing.
type meters struct {
	registry *prometheus.Registry
	provider *sdk.MeterProvider
	figures  []figure // all that there are
	wrong    error    // the first figure that could not be made

	requests, refused, limited, verdicts, notifications, swept, runs, tokens, tools, loads, evictions, ticks, deliveries counter
	cost                                                                                                                 metric.Float64Counter
	duration, runDuration, toolDuration, loadDuration                                                                    metric.Float64Histogram
	groups                                                                                                               metric.Int64Histogram
	asked                                                                                                                genaiconv.ClientOperationDuration
	used                                                                                                                 genaiconv.ClientTokenUsage
	first                                                                                                                genaiconv.ClientOperationTimeToFirstChunk

	agents, rails, models *busiest
	apps                  *busiest // nil: nothing carries an app
	sets                  sets
}

// How many apps, agents and guardrails of apps, and models have a label of their own; the rest is "other".
const (
	topApps   = 50
	topAgents = 200
	topRails  = 100
	topModels = 50
)

// newMeters returns the meters of a process. withApps has them count by app as well. Beside Prometheus, more may read them.
func newMeters(withApps bool, more ...sdk.Reader) (*meters, error) {
	m := &meters{registry: prometheus.NewRegistry(), agents: newBusiest(topAgents), rails: newBusiest(topRails), models: newBusiest(topModels)}
	if withApps {
		m.apps = newBusiest(topApps)
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(otelprom.WithRegisterer(m.registry), otelprom.WithoutTargetInfo(), otelprom.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	o := []sdk.Option{sdk.WithReader(exporter), sdk.WithCardinalityLimit(maxSets)}
	for _, r := range more {
		o = append(o, sdk.WithReader(r))
	}
	m.provider = sdk.NewMeterProvider(o...)
	m.define()
	return m, m.wrong
}

// define makes the figures that are counted as things happen.
func (m *meters) define() {
	m.requests = m.counter("service_requests", "Requests to agents.", "agent", "app")
	m.duration = m.histogram("service_request_duration", "s", "Time from a request's arrival to the end of its answer.", seconds, "route", "status")
	m.refused = m.counter("stoa_request_errors", "Requests that were answered with an error, by its code. RESOURCE_EXHAUSTED is a limit that was reached.", "code", "app")
	m.limited = m.counter("stoa_limit_refusals", "Calls that a limit refused, by its rule: whose calls it counts, what (count or token) and the window; budget stands for every budget, "+
		"at the door and before a call of a model in the middle of a task, those that wait for room included.", "rule", "app")
	m.runs = m.counter("stoa_runs", "Attempts of runs, by the state that they brought their task to: a state of tasks, or retry, cancelled, lost (to another process), "+
		"postponed (the app is suspended), stopped (with the process), unrecorded, dead (given up).", "state", "app")
	m.runDuration = m.histogram("stoa_run_duration", "s", "Time of an attempt of a run, from its worker's start.", seconds, "state")
	m.tokens = m.counter("stoa_model_tokens", "Tokens that models reported, by class: input, output, cache_read, cache_write, reasoning. The classes overlap: "+
		"what is read from a cache is input as well, reasoning is output.", "class", "model", "app")
	m.cost = m.floatCounter("stoa_model_cost", "What has become due for the work of models, in the currency.", "currency", "model", "app")
	m.tools = m.counter("stoa_tool_calls", "Calls of tools; fault is the kind of error, empty where there was none.", "fault", "app")
	m.toolDuration = m.histogram("stoa_tool_duration", "s", "Time of a tool's call.", seconds, "fault")
	m.ticks = m.counter("stoa_schedule_ticks", "Ticks of schedules: started, refused (by a limit or a budget), failed (tried again).", "outcome", "app")
	m.deliveries = m.counter("stoa_webhook_deliveries", "Deliveries to webhooks: started, repeated (led to the task of the first), unsigned, refused (by a limit or a budget), invalid, failed.", "outcome", "app")
	m.verdicts = m.counter("stoa_guardrail_verdicts", "Checks of guardrails that struck.", "guardrail", "action", "shadow", "app")
	m.notifications = m.counter("stoa_notifications", "Notifications that were sent outside: delivered, failed (they will be sent again), dead (they will not).", "outcome", "app")
	m.swept = m.counter("stoa_retention_deleted", "What was deleted because it was kept long enough.", "kind")
	m.loads = m.counter("stoa_app_loads", "Apps that were built, at their first call or after a change.", "outcome")
	m.loadDuration = m.histogram("stoa_app_load_duration", "s", "Time of reading and building an app.", seconds)
	m.evictions = m.counter("stoa_app_evictions", "Apps that were given up because nobody called them or others needed the room.")
	groups, err := m.meter().Int64Histogram("stoa_db_group_size", metric.WithDescription("Writes that shared a commit."),
		metric.WithExplicitBucketBoundaries(1, 2, 4, 8, 16, 32, 64, 128))
	m.groups = groups
	m.note("stoa_db_group_size", "histogram", "Writes that shared a commit.", err)
	m.asked, err = genaiconv.NewClientOperationDuration(m.meter(), metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92))
	m.note("gen_ai_client_operation_duration_seconds", "histogram", m.asked.Description(), err,
		"gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "error_type")
	m.first, err = genaiconv.NewClientOperationTimeToFirstChunk(m.meter(), metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24))
	m.note("gen_ai_client_operation_time_to_first_chunk_seconds", "histogram", m.first.Description(), err,
		"gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
	m.used, err = genaiconv.NewClientTokenUsage(m.meter(), metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864))
	m.note("gen_ai_client_token_usage", "histogram", m.used.Description(), err,
		"gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_token_type")
}

var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

func (m *meters) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// of returns labels with the app, "" for what is not known to be of one, where apps may be told.
func (m *meters) of(app string, l labels) metric.MeasurementOption {
	if m.apps != nil {
		l[len(l)-1] = label{"app", m.apps.label(app)}
	}
	return m.sets.of(l)
}

// classes are the classes of HTTP statuses, by their first digit.
var classes = [10]string{1: "1xx", 2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx"}

// observe counts one answered request.
func (m *meters) observe(o surface.Observation) {
	ctx := context.Background()
	m.duration.Record(ctx, o.Duration.Seconds(), m.sets.of(labels{{"route", o.Route}, {"status", classes[o.Status/100%10]}}))
	if o.Code != "" {
		m.refused.Add(ctx, 1, m.of(o.App, labels{{"code", string(o.Code)}}))
	}
	if o.Agent == "" {
		return
	}
	if m.agents.label(o.App+"/"+o.Agent) == other {
		o.Agent = other
	}
	m.requests.Add(ctx, 1, m.of(o.App, labels{{"agent", o.Agent}}))
}

// refuse counts a call that a limit or a budget has refused.
func (m *meters) refuse(app, rule string) {
	m.limited.Add(context.Background(), 1, m.of(app, labels{{"rule", rule}}))
}

// tick counts a tick of a schedule that was due.
func (m *meters) tick(app string, err error) {
	outcome := "started"
	switch {
	case errors.Is(err, trigger.ErrRefused):
		outcome = "refused"
	case err != nil:
		outcome = "failed"
	}
	m.ticks.Add(context.Background(), 1, m.of(app, labels{{"outcome", outcome}}))
}

// deliver counts a delivery to a webhook.
func (m *meters) deliver(app, outcome string) {
	m.deliveries.Add(context.Background(), 1, m.of(app, labels{{"outcome", outcome}}))
}

// judge counts a finding of an app's guardrail.
func (m *meters) judge(ctx context.Context, app string, f guardrail.Finding) {
	if m.rails.label(app+"/"+f.Guardrail) == other {
		f.Guardrail = other
	}
	m.verdicts.Add(ctx, 1, m.of(app, labels{{"guardrail", f.Guardrail}, {"action", string(f.Action)}, {"shadow", strconv.FormatBool(f.Shadow)}}))
}

// ask counts a call of a model.
func (m *meters) ask(ctx context.Context, app string, c app.ModelCall) {
	model := m.models.label(c.Model)
	chat := labels{{"gen_ai.operation.name", string(genaiconv.OperationNameChat)}, {"gen_ai.provider.name", c.Provider}, {"gen_ai.request.model", model}}
	timed := chat
	timed[3] = label{"error.type", c.Fault}
	m.asked.Float64Histogram.Record(ctx, c.Took.Seconds(), m.sets.of(timed))
	if c.FirstChunk > 0 {
		m.first.Float64Histogram.Record(ctx, c.FirstChunk.Seconds(), m.sets.of(chat))
	}
	u := c.Usage
	for _, t := range []struct {
		class string
		n     int64
	}{{"input", u.InputTokens}, {"output", u.OutputTokens}, {"cache_read", u.CacheReadTokens}, {"cache_write", u.CacheWriteTokens}, {"reasoning", u.ReasoningTokens}} {
		if t.n > 0 {
			m.tokens.Add(ctx, t.n, m.of(app, labels{{"class", t.class}, {"model", model}}))
		}
	}
	if c.Fault == "" {
		chat[3] = label{"gen_ai.token.type", string(genaiconv.TokenTypeInput)}
		m.used.Int64Histogram.Record(ctx, u.InputTokens, m.sets.of(chat))
		chat[3] = label{"gen_ai.token.type", string(genaiconv.TokenTypeOutput)}
		m.used.Int64Histogram.Record(ctx, u.OutputTokens, m.sets.of(chat))
	}
}

// call counts a call of a tool.
func (m *meters) call(ctx context.Context, app string, c app.ToolCall) {
	l := labels{{"fault", c.Fault}}
	m.tools.Add(ctx, 1, m.of(app, l))
	m.toolDuration.Record(ctx, c.Took.Seconds(), m.sets.of(l))
}

// end counts an attempt of a run that has ended.
func (m *meters) end(ctx context.Context, app string, _ store.Run, state agentsvc.State, took time.Duration) {
	if state == "" {
		state = "retry"
	}
	m.left(ctx, app, string(state))
	m.runDuration.Record(ctx, took.Seconds(), m.sets.of(labels{{"state", string(state)}}))
}

// left counts an attempt of a run that ended in a state.
func (m *meters) left(ctx context.Context, app, state string) {
	m.runs.Add(ctx, 1, m.of(app, labels{{"state", state}}))
}

// charge counts what has become due for a model's work.
func (m *meters) charge(ctx context.Context, app, model, currency string, nanos int64) {
	m.cost.Add(ctx, float64(nanos)/1e9, m.of(app, labels{{"currency", currency}, {"model", m.models.label(model)}}))
}

// notified counts a notification of an app that was sent, or was to be.
func (m *meters) notified(app, outcome string) {
	m.notifications.Add(context.Background(), 1, m.of(app, labels{{"outcome", outcome}}))
}

// sweep counts what was deleted of an app.
func (m *meters) sweep(n store.Swept) {
	for kind, n := range map[string]int64{"tasks": n.Tasks, "events": n.Events, "sessions": n.Sessions} {
		m.swept.Add(context.Background(), n, m.sets.of(labels{{"kind", kind}}))
	}
}

// load counts an app that was built, or could not be.
func (m *meters) load(took time.Duration, err error) {
	outcome := "built"
	if err != nil {
		outcome = "failed"
	}
	m.loads.Add(context.Background(), 1, m.sets.of(labels{{"outcome", outcome}}))
	m.loadDuration.Record(context.Background(), took.Seconds())
}
