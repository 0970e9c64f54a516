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

// metricsRecorder counts what the process does. It owns a registry for Prometheus and a meter provider that feeds it
// and any further reader (OTLP). All fields are set by newMetricsRecorder and registerGauges, before requests are
// answered, and then read-only; instruments and topK are safe for concurrent use. A server without metrics has a nil
// *metricsRecorder, which callers check.
//
// The number of label sets is bounded (topK, maxAttributeSets), because names come from tenants. docs/metrics.md
// lists every metric.
type metricsRecorder struct {
	registry  *prometheus.Registry // what the Prometheus endpoint shows
	provider  *sdk.MeterProvider
	infos     []metricInfo // every metric, for docs/metrics.md
	defineErr error        // the first error of creating an instrument

	// Counters. Each has the labels that defineMetrics names; those with an app go through withAppLabel.
	requests, requestErrors, limitRefusals, guardrailFindings, notifications, retentionDeleted, runs, modelTokens, toolCalls, appLoads, appEvictions, scheduleTicks, webhookDeliveries intCounter
	// In units of the currency, with fractions.
	modelCost metric.Float64Counter
	// In seconds.
	requestDuration, runDuration, toolDuration, appLoadDuration metric.Float64Histogram
	// Writes that shared a commit.
	dbGroupSize metric.Int64Histogram
	// The instruments of the OpenTelemetry semantic conventions for GenAI.
	genAIDuration         genaiconv.ClientOperationDuration
	genAITokenUsage       genaiconv.ClientTokenUsage
	genAITimeToFirstChunk genaiconv.ClientOperationTimeToFirstChunk

	// Names that are labels: the busiest ones keep their name, the others share "other". appLabels is nil if app
	// names may not be labels.
	agentLabels, guardrailLabels, modelLabels *topK
	appLabels                                 *topK
	attributeSets                             attributeSets // cache of encoded label sets
}

// Numbers of names that are labels of their own, for apps, agents, guardrails and models; further names share
// "other".
const (
	topApps       = 50
	topAgents     = 200
	topGuardrails = 100
	topModels     = 50
)

// newMetricsRecorder returns the recorder of a process. withApps makes app names a label. more are further readers of
// the metrics, such as an OTLP exporter.
func newMetricsRecorder(withApps bool, more ...sdk.Reader) (*metricsRecorder, error) {
	m := &metricsRecorder{registry: prometheus.NewRegistry(), agentLabels: newTopK(topAgents), guardrailLabels: newTopK(topGuardrails), modelLabels: newTopK(topModels)}
	if withApps {
		m.appLabels = newTopK(topApps)
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(otelprom.WithRegisterer(m.registry), otelprom.WithoutTargetInfo(), otelprom.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	o := []sdk.Option{sdk.WithReader(exporter), sdk.WithCardinalityLimit(maxAttributeSets)}
	for _, r := range more {
		o = append(o, sdk.WithReader(r))
	}
	m.provider = sdk.NewMeterProvider(o...)
	m.defineMetrics()
	return m, m.defineErr
}

// defineMetrics creates the instruments that are counted when something happens. Gauges, which are read on demand,
// are created by registerGauges. The help texts are user documentation: docs/metrics.md is generated from them. The
// bounds of the gen_ai duration and token histograms are those that the OpenTelemetry semantic conventions for GenAI
// advise.
func (m *metricsRecorder) defineMetrics() {
	// Requests and refusals.
	m.requests = m.newCounter("service_requests", "Requests to agents.", "agent", "app")
	m.requestDuration = m.newHistogram("service_request_duration", "s", "Time from a request's arrival to the end of its answer.", secondsBuckets, "route", "status")
	m.requestErrors = m.newCounter("stoa_request_errors", "Requests that were answered with an error, by its code. RESOURCE_EXHAUSTED is a limit that was reached.", "code", "app")
	m.limitRefusals = m.newCounter("stoa_limit_refusals", "Calls that a limit refused, by its rule: whose calls it counts, what (count or token) and the window; budget stands for every budget, "+
		"at admission and before a call of a model in the middle of a task, those that wait for the budget included.", "rule", "app")
	// Runs, models and tools.
	m.runs = m.newCounter("stoa_runs", "Attempts of runs, by the state that they brought their task to: a state of tasks, or retry, cancelled, lost (to another process), "+
		"postponed (the app is suspended), stopped (with the process), unrecorded, dead (given up).", "state", "app")
	m.runDuration = m.newHistogram("stoa_run_duration", "s", "Time of an attempt of a run, from its worker's start.", secondsBuckets, "state")
	m.modelTokens = m.newCounter("stoa_model_tokens", "Tokens that models reported, by class: input, output, cache_read, cache_write, reasoning. The classes overlap: "+
		"what is read from a cache is input as well, reasoning is output.", "class", "model", "app")
	m.modelCost = m.newFloatCounter("stoa_model_cost", "What has become due for the work of models, in the currency.", "currency", "model", "app")
	m.toolCalls = m.newCounter("stoa_tool_calls", "Calls of tools; fault is the kind of error, empty where there was none.", "fault", "app")
	m.toolDuration = m.newHistogram("stoa_tool_duration", "s", "Time of a tool's call.", secondsBuckets, "fault")
	// Triggers, guardrails, notifications and retention.
	m.scheduleTicks = m.newCounter("stoa_schedule_ticks", "Ticks of schedules: started, refused (by a limit or a budget), failed (tried again).", "outcome", "app")
	m.webhookDeliveries = m.newCounter("stoa_webhook_deliveries", "Deliveries to webhooks: started, repeated (led to the task of the first), unsigned, refused (by a limit or a budget), invalid, failed.", "outcome", "app")
	m.guardrailFindings = m.newCounter("stoa_guardrail_verdicts", "Checks of guardrails that struck.", "guardrail", "action", "shadow", "app")
	m.notifications = m.newCounter("stoa_notifications", "Notifications that were sent outside: delivered, failed (they will be sent again), dead (they will not).", "outcome", "app")
	m.retentionDeleted = m.newCounter("stoa_retention_deleted", "What was deleted because it was kept long enough.", "kind")
	// Runtimes of apps and the database.
	m.appLoads = m.newCounter("stoa_app_loads", "Apps that were built, at their first call or after a change.", "outcome")
	m.appLoadDuration = m.newHistogram("stoa_app_load_duration", "s", "Time of reading and building an app.", secondsBuckets)
	m.appEvictions = m.newCounter("stoa_app_evictions", "Apps that were given up because no caller used them or others needed the memory.")
	// Not newHistogram, which has fractions: this one counts writes.
	groups, err := m.meter().Int64Histogram("stoa_db_group_size", metric.WithDescription("Writes that shared a commit."),
		metric.WithExplicitBucketBoundaries(1, 2, 4, 8, 16, 32, 64, 128))
	m.dbGroupSize = groups
	m.addInfo("stoa_db_group_size", "histogram", "Writes that shared a commit.", err)
	// The conventions define these metrics; genaiconv has their names, units and descriptions.
	m.genAIDuration, err = genaiconv.NewClientOperationDuration(m.meter(), metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92))
	m.addInfo("gen_ai_client_operation_duration_seconds", "histogram", m.genAIDuration.Description(), err,
		"gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "error_type")
	m.genAITimeToFirstChunk, err = genaiconv.NewClientOperationTimeToFirstChunk(m.meter(), metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24))
	m.addInfo("gen_ai_client_operation_time_to_first_chunk_seconds", "histogram", m.genAITimeToFirstChunk.Description(), err,
		"gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
	m.genAITokenUsage, err = genaiconv.NewClientTokenUsage(m.meter(), metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864))
	m.addInfo("gen_ai_client_token_usage", "histogram", m.genAITokenUsage.Description(), err,
		"gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_token_type")
}

// secondsBuckets are the upper bounds of the histograms of durations, in seconds.
var secondsBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// newHandler returns the handler that answers in Prometheus' format. It does not authenticate.
func (m *metricsRecorder) newHandler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// withAppLabel returns the labels l with the app's label in the last place, if apps are labels. app is "" for what
// belongs to no known app.
func (m *metricsRecorder) withAppLabel(app string, l metricLabels) metric.MeasurementOption {
	if m.appLabels != nil {
		l[len(l)-1] = metricLabel{"app", m.appLabels.labelFor(app)}
	}
	return m.attributeSets.optionFor(l)
}

// statusClasses are the labels of HTTP statuses, by the status's first digit.
var statusClasses = [10]string{1: "1xx", 2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx"}

// recordRequest counts one answered request. Only requests to an existing agent count as service_requests.
func (m *metricsRecorder) recordRequest(o surface.Observation) {
	ctx := context.Background()
	m.requestDuration.Record(ctx, o.Duration.Seconds(), m.attributeSets.optionFor(metricLabels{{"route", o.Route}, {"status", statusClasses[o.Status/100%10]}}))
	if o.Code != "" {
		m.requestErrors.Add(ctx, 1, m.withAppLabel(o.App, metricLabels{{"code", string(o.Code)}}))
	}
	if o.Agent == "" {
		return
	}
	// Agents of different apps may have the same name, so that they are ranked by app and name.
	if m.agentLabels.labelFor(o.App+"/"+o.Agent) == otherLabel {
		o.Agent = otherLabel
	}
	m.requests.Add(ctx, 1, m.withAppLabel(o.App, metricLabels{{"agent", o.Agent}}))
}

// recordRefusal counts a call that a limit or a budget refused; rule names the limit or is surface.BudgetRule.
func (m *metricsRecorder) recordRefusal(app, rule string) {
	m.limitRefusals.Add(context.Background(), 1, m.withAppLabel(app, metricLabels{{"rule", rule}}))
}

// recordTick counts the start of an agent by a schedule; err is the result of App.StartTick.
func (m *metricsRecorder) recordTick(app string, err error) {
	outcome := "started"
	switch {
	case errors.Is(err, trigger.ErrTickRefused):
		outcome = "refused"
	case err != nil:
		outcome = "failed"
	}
	m.scheduleTicks.Add(context.Background(), 1, m.withAppLabel(app, metricLabels{{"outcome", outcome}}))
}

// recordDelivery counts a delivery to an app's webhook by its outcome.
func (m *metricsRecorder) recordDelivery(app, outcome string) {
	m.webhookDeliveries.Add(context.Background(), 1, m.withAppLabel(app, metricLabels{{"outcome", outcome}}))
}

// recordFinding counts a finding of an app's guardrail. Guardrails of different apps may have the same name, so that
// the busiest are ranked by app and name.
func (m *metricsRecorder) recordFinding(ctx context.Context, app string, f guardrail.Finding) {
	if m.guardrailLabels.labelFor(app+"/"+f.Guardrail) == otherLabel {
		f.Guardrail = otherLabel
	}
	m.guardrailFindings.Add(ctx, 1, m.withAppLabel(app, metricLabels{{"guardrail", f.Guardrail}, {"action", string(f.Action)}, {"shadow", strconv.FormatBool(f.Shadow)}}))
}

// recordModelCall counts a call of a model: its duration, its time to the first chunk if it streamed, and its tokens.
// The names and labels of the gen_ai metrics are those of the OpenTelemetry semantic conventions for GenAI.
func (m *metricsRecorder) recordModelCall(ctx context.Context, app string, c app.ModelCall) {
	model := m.modelLabels.labelFor(c.Model)
	chat := metricLabels{{"gen_ai.operation.name", string(genaiconv.OperationNameChat)}, {"gen_ai.provider.name", c.Provider}, {"gen_ai.request.model", model}}
	// metricLabels is an array: timed is a copy, to which the error is added.
	timed := chat
	timed[3] = metricLabel{"error.type", c.ErrorKind}
	m.genAIDuration.Float64Histogram.Record(ctx, c.Duration.Seconds(), m.attributeSets.optionFor(timed))
	if c.TimeToFirstChunk > 0 {
		m.genAITimeToFirstChunk.Float64Histogram.Record(ctx, c.TimeToFirstChunk.Seconds(), m.attributeSets.optionFor(chat))
	}
	u := c.Usage
	for _, t := range []struct {
		class string
		n     int64
	}{{"input", u.InputTokens}, {"output", u.OutputTokens}, {"cache_read", u.CacheReadTokens}, {"cache_write", u.CacheWriteTokens}, {"reasoning", u.ReasoningTokens}} {
		if t.n > 0 {
			m.modelTokens.Add(ctx, t.n, m.withAppLabel(app, metricLabels{{"class", t.class}, {"model", model}}))
		}
	}
	// A call that failed reports no reliable token usage for the conventions' histogram.
	if c.ErrorKind == "" {
		chat[3] = metricLabel{"gen_ai.token.type", string(genaiconv.TokenTypeInput)}
		m.genAITokenUsage.Int64Histogram.Record(ctx, u.InputTokens, m.attributeSets.optionFor(chat))
		chat[3] = metricLabel{"gen_ai.token.type", string(genaiconv.TokenTypeOutput)}
		m.genAITokenUsage.Int64Histogram.Record(ctx, u.OutputTokens, m.attributeSets.optionFor(chat))
	}
}

// recordToolCall counts a call of a tool. ErrorKind is "" for a success.
func (m *metricsRecorder) recordToolCall(ctx context.Context, app string, c app.ToolCall) {
	l := metricLabels{{"fault", c.ErrorKind}}
	m.toolCalls.Add(ctx, 1, m.withAppLabel(app, l))
	m.toolDuration.Record(ctx, c.Duration.Seconds(), m.attributeSets.optionFor(l))
}

// recordRunEnd counts an attempt of a run whose end is on the task's log, with its duration. An empty state is a run
// that will be retried.
func (m *metricsRecorder) recordRunEnd(ctx context.Context, app string, _ store.Run, state agentsvc.State, took time.Duration) {
	if state == "" {
		state = "retry"
	}
	m.recordRunState(ctx, app, string(state))
	m.runDuration.Record(ctx, took.Seconds(), m.attributeSets.optionFor(metricLabels{{"state", string(state)}}))
}

// recordRunState counts an attempt of a run by its outcome: a state of tasks or a result of runOutcome.
func (m *metricsRecorder) recordRunState(ctx context.Context, app, state string) {
	m.runs.Add(ctx, 1, m.withAppLabel(app, metricLabels{{"state", state}}))
}

// recordCharge counts the price of a model's work. nanos are billionths of the currency's unit.
func (m *metricsRecorder) recordCharge(ctx context.Context, app, model, currency string, nanos int64) {
	m.modelCost.Add(ctx, float64(nanos)/1e9, m.withAppLabel(app, metricLabels{{"currency", currency}, {"model", m.modelLabels.labelFor(model)}}))
}

// recordNotification counts an attempt to deliver a notification by its outcome: delivered, failed (it is retried) or
// dead.
func (m *metricsRecorder) recordNotification(app, outcome string) {
	m.notifications.Add(context.Background(), 1, m.withAppLabel(app, metricLabels{{"outcome", outcome}}))
}

// recordSweep counts what retention deleted of one app. The labels have no app: retention runs for all apps alike.
func (m *metricsRecorder) recordSweep(n store.SweepCounts) {
	for kind, n := range map[string]int64{"tasks": n.Tasks, "events": n.Events, "sessions": n.Sessions} {
		m.retentionDeleted.Add(context.Background(), n, m.attributeSets.optionFor(metricLabels{{"kind", kind}}))
	}
}

// recordAppLoad counts a build of an app's runtime, with the time of reading and building it.
func (m *metricsRecorder) recordAppLoad(took time.Duration, err error) {
	outcome := "built"
	if err != nil {
		outcome = "failed"
	}
	m.appLoads.Add(context.Background(), 1, m.attributeSets.optionFor(metricLabels{{"outcome", outcome}}))
	m.appLoadDuration.Record(context.Background(), took.Seconds())
}
