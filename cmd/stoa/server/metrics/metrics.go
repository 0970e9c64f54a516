// Package metrics counts what a process does. A [Recorder] has a method for each event that is counted; it owns a
// registry for Prometheus and a meter provider that feeds it and any further reader (OTLP). [Recorder.RegisterGauges]
// adds what is computed when it is read. docs/metrics.md lists every metric.
//
// The number of label sets is bounded (topK, maxAttributeSets), because names come from tenants.
package metrics

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
	"stoa/agentsvc/guardrail"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/trigger"
)

// Recorder counts what the process does. All fields are set by NewRecorder and then read-only; instruments and topK are
// safe for concurrent use. A process without metrics has a nil *Recorder, which callers check.
type Recorder struct {
	registry *prometheus.Registry // what the Prometheus endpoint shows
	provider *sdk.MeterProvider
	defined  *instruments // of registerGauges, and for the list of all metrics

	requests requestInstruments
	runs     runInstruments
	models   modelInstruments
	work     backgroundInstruments
	apps     appInstruments
	redis    redisInstruments
	// Documents counts the indexing of documents.
	Documents *Documents
	// dbGroupSize counts the writes that shared a commit.
	dbGroupSize metric.Int64Histogram
	labels      labelNames
}

// requestInstruments count requests of clients. Durations are in seconds.
type requestInstruments struct {
	total, errors, refused   intCounter
	duration, streamDuration metric.Float64Histogram
}

// runInstruments count attempts of runs and what agents do in them, except calls of models. Durations are in seconds.
type runInstruments struct {
	total, toolCalls, findings intCounter
	duration, toolDuration     metric.Float64Histogram
}

// modelInstruments count calls of models. Those with the prefix genAI are defined by the OpenTelemetry semantic
// conventions for GenAI.
type modelInstruments struct {
	tokens                intCounter
	cost                  metric.Float64Counter // in units of the currency, with fractions
	genAIDuration         genaiconv.ClientOperationDuration
	genAITokenUsage       genaiconv.ClientTokenUsage
	genAITimeToFirstChunk genaiconv.ClientOperationTimeToFirstChunk
}

// backgroundInstruments count what happens without a request: triggers, notifications, retention, exports of usage.
type backgroundInstruments struct {
	scheduleTicks, webhookDeliveries, notifications, retentionDeleted, exports, configReloads intCounter
}

// redisInstruments count requests to Redis. Durations are in seconds.
type redisInstruments struct {
	duration metric.Float64Histogram
	errors   intCounter
}

// appInstruments count builds of apps' runtimes.
type appInstruments struct {
	loads, evictions intCounter
	loadDuration     metric.Float64Histogram // in seconds
}

// labelNames are the names that are labels: the busiest ones keep their name, the others share "other".
type labelNames struct {
	agents, guardrails, models *topK
	apps                       *topK         // nil if app names may not be labels
	sets                       attributeSets // cache of encoded label sets
}

// Numbers of names that are labels of their own, for apps, agents, guardrails and models; further names share
// "other".
const (
	topApps       = 50
	topAgents     = 200
	topGuardrails = 100
	topModels     = 50
)

// NewRecorder returns the recorder of a process. withApps makes app names a label. more are further readers of the
// metrics, such as an OTLP exporter.
func NewRecorder(withApps bool, more ...sdk.Reader) (*Recorder, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutTargetInfo(), otelprom.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	o := []sdk.Option{sdk.WithReader(exporter), sdk.WithCardinalityLimit(maxAttributeSets)}
	for _, r := range more {
		o = append(o, sdk.WithReader(r))
	}
	provider := sdk.NewMeterProvider(o...)
	// Prometheus does not show the name of the meter (WithoutScopeInfo).
	defined := &instruments{meter: provider.Meter("stoa")}
	m := &Recorder{
		registry: registry, provider: provider, defined: defined,
		requests: newRequestInstruments(defined), runs: newRunInstruments(defined), models: newModelInstruments(defined), work: newBackgroundInstruments(defined), apps: newAppInstruments(defined),
		redis: newRedisInstruments(defined), dbGroupSize: newGroupSize(defined),
		labels: labelNames{agents: newTopK(topAgents), guardrails: newTopK(topGuardrails), models: newTopK(topModels)},
	}
	if withApps {
		m.labels.apps = newTopK(topApps)
	}
	for _, outcome := range []string{"applied", "refused"} {
		m.work.configReloads.Add(context.Background(), 0, m.labels.sets.optionFor(labelSet{{"outcome", outcome}}))
	}
	m.Documents = newDocuments(m)
	m.addZeros("")
	for _, kind := range []string{"tasks", "events", "sessions"} {
		m.work.retentionDeleted.Add(context.Background(), 0, m.labels.sets.optionFor(labelSet{{"kind", kind}}))
	}
	for _, outcome := range []string{"built", "failed"} {
		m.apps.loads.Add(context.Background(), 0, m.labels.sets.optionFor(labelSet{{"outcome", outcome}}))
	}
	m.apps.evictions.Add(context.Background(), 0)
	return m, defined.err
}

// The help texts below are user documentation: docs/metrics.md is generated from them.

// newRequestInstruments defines the metrics of requests and refusals.
func newRequestInstruments(m *instruments) requestInstruments {
	return requestInstruments{
		total:          m.newCounter("service_requests", "Requests to agents.", "agent", "app"),
		duration:       m.newHistogram("service_request_duration", "s", "Time from a request's arrival to the end of its answer; without streams of events.", secondsBuckets, "route", "status"),
		streamDuration: m.newHistogram("stoa_stream_duration", "s", "Time from the arrival of a request that opened a stream of events or a WebSocket to its end.", streamBuckets, "route", "status"),
		errors:         m.newCounter("stoa_request_errors", "Requests that were answered with an error, by its code; without those to /health and /ready. RESOURCE_EXHAUSTED is a limit that was reached.", "code", "app"),
		refused: m.newCounter("stoa_limit_refusals", "Calls that a limit refused, by its rule: whose calls it counts, what (count or token) and the window; budget stands for every budget, "+
			"at admission and before a call of a model in the middle of a task, those that wait for the budget included.", "rule", "app"),
	}
}

// newRunInstruments defines the metrics of runs, tools and guardrails.
func newRunInstruments(m *instruments) runInstruments {
	return runInstruments{
		total: m.newCounter("stoa_runs", "Attempts of runs, by the state that they brought their task to: a state of tasks, or retry, cancelled, lost (to another process), "+
			"postponed (the app is suspended), stopped (with the process), unrecorded, dead (given up without an end of its own). Dead letters are failed and dead.", "state", "app"),
		duration:     m.newHistogram("stoa_run_duration", "s", "Time of an attempt of a run, from its worker's start.", secondsBuckets, "state"),
		toolCalls:    m.newCounter("stoa_tool_calls", "Calls of tools; fault is the kind of error, empty where there was none.", "fault", "app"),
		toolDuration: m.newHistogram("stoa_tool_duration", "s", "Time of a tool's call.", secondsBuckets, "fault"),
		findings:     m.newCounter("stoa_guardrail_verdicts", "Checks of guardrails that struck.", "guardrail", "action", "shadow", "app"),
	}
}

// newBackgroundInstruments defines the metrics of triggers, notifications and retention.
func newBackgroundInstruments(m *instruments) backgroundInstruments {
	return backgroundInstruments{
		scheduleTicks:     m.newCounter("stoa_schedule_ticks", "Ticks of schedules: started, refused (by a limit or a budget), failed (tried again).", "outcome", "app"),
		webhookDeliveries: m.newCounter("stoa_webhook_deliveries", "Deliveries to webhooks: started, repeated (under its id; led to the task of the first), unsigned, refused (by a limit or a budget), invalid, failed.", "outcome", "app"),
		notifications:     m.newCounter("stoa_notifications", "Notifications that were sent outside: delivered, failed (they will be sent again), dead (they will not).", "outcome", "app"),
		configReloads:     m.newCounter("stoa_config_reloads", "Changes of the configuration file that a process saw: applied, or refused because the file does not load.", "outcome"),
		retentionDeleted:  m.newCounter("stoa_retention_deleted", "What was deleted because it was kept long enough.", "kind"),
		exports:           m.newCounter("stoa_exports", "Exports of usage: delivered (a batch), failed (an attempt, which is repeated).", "export", "outcome"),
	}
}

// newRedisInstruments defines the metrics of Redis.
func newRedisInstruments(m *instruments) redisInstruments {
	return redisInstruments{
		duration: m.newHistogram("stoa_redis_duration", "s", "Time of a command or a pipeline of Redis, by what it is used for: signals or limits.", secondsBuckets, "use"),
		errors:   m.newCounter("stoa_redis_errors", "Commands and pipelines of Redis that failed, and connections of the subscriptions that ended or could not be made, by what it is used for.", "use"),
	}
}

// newAppInstruments defines the metrics of apps' runtimes.
func newAppInstruments(m *instruments) appInstruments {
	return appInstruments{
		loads:        m.newCounter("stoa_app_loads", "Loads of apps, at their first call or after a change: built, or failed, also if the app could not be read.", "outcome"),
		loadDuration: m.newHistogram("stoa_app_load_duration", "s", "Time of reading and building an app.", secondsBuckets),
		evictions:    m.newCounter("stoa_app_evictions", "Apps that were given up because no caller used them or others needed the memory."),
	}
}

// newGroupSize defines the histogram of writes that shared a commit. It counts whole numbers, unlike newHistogram.
func newGroupSize(m *instruments) metric.Int64Histogram {
	const name, help = "stoa_db_group_size", "Writes that shared a commit."
	h, err := m.meter.Int64Histogram(name, metric.WithDescription(help), metric.WithExplicitBucketBoundaries(1, 2, 4, 8, 16, 32, 64, 128))
	m.addInfo(name, "histogram", help, err)
	return h
}

// newModelInstruments defines the metrics of models. The bounds of the gen_ai duration and token histograms are those
// that the OpenTelemetry semantic conventions for GenAI advise; genaiconv has their names, units and descriptions.
func newModelInstruments(m *instruments) modelInstruments {
	i := modelInstruments{
		tokens: m.newCounter("stoa_model_tokens", "Tokens that models reported, by class: input, output, cache_read, cache_write, reasoning. The classes overlap: "+
			"what is read from a cache is input as well, reasoning is output.", "class", "model", "app"),
		cost: m.newFloatCounter("stoa_model_cost", "What has become due for the work of models, in the currency.", "currency", "model", "app"),
	}
	var err error
	i.genAIDuration, err = genaiconv.NewClientOperationDuration(m.meter, metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92))
	m.addInfo("gen_ai_client_operation_duration_seconds", "histogram", i.genAIDuration.Description(), err,
		"gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "error_type")
	i.genAITimeToFirstChunk, err = genaiconv.NewClientOperationTimeToFirstChunk(m.meter, metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24))
	m.addInfo("gen_ai_client_operation_time_to_first_chunk_seconds", "histogram", i.genAITimeToFirstChunk.Description(), err,
		"gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
	i.genAITokenUsage, err = genaiconv.NewClientTokenUsage(m.meter, metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864))
	m.addInfo("gen_ai_client_token_usage", "histogram", i.genAITokenUsage.Description(), err,
		"gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_token_type")
	return i
}

// secondsBuckets are the upper bounds of the histograms of durations, in seconds.
var secondsBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// streamBuckets are the upper bounds of the histogram of streams, in seconds.
var streamBuckets = []float64{.1, .5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 14400}

// Handler returns the handler that answers in Prometheus' format. It does not authenticate.
func (r *Recorder) Handler() http.Handler {
	return promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{})
}

// withAppLabel returns the labels l with the app's label in the last place, if apps are labels. app is "" for what
// belongs to no known app.
func (r *Recorder) withAppLabel(app string, l labelSet) metric.MeasurementOption {
	if r.labels.apps == nil {
		return r.labels.sets.optionFor(l)
	}
	name := r.labels.apps.labelFor(app)
	l[len(l)-1] = label{"app", name}
	if set := r.labels.sets.findOption(l); set != nil {
		return set
	}
	// A new label set may be the first of its app.
	r.addZeros(name)
	return r.labels.sets.optionFor(l)
}

// statusClasses are the labels of HTTP statuses, by the status's first digit.
var statusClasses = [10]string{1: "1xx", 2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx"}

// RecordRequest counts one answered request. Only requests to an existing agent count as service_requests.
func (r *Recorder) RecordRequest(o surface.Observation) {
	ctx := context.Background()
	duration := r.requests.duration
	if o.Stream {
		duration = r.requests.streamDuration
	}
	duration.Record(ctx, o.Duration.Seconds(), r.labels.sets.optionFor(labelSet{{"route", o.Route}, {"status", statusClasses[o.Status/100%10]}}))
	// A process that is stopping answers probes with 503 as it should: no client gets that error.
	if o.Code != "" && o.Route != "/health" && o.Route != "/ready" {
		r.requests.errors.Add(ctx, 1, r.withAppLabel(o.App, labelSet{{"code", string(o.Code)}}))
	}
	if o.Agent == "" {
		return
	}
	// Agents of different apps may have the same name, so that they are ranked by app and name.
	if r.labels.agents.labelFor(o.App+"/"+o.Agent) == otherLabel {
		o.Agent = otherLabel
	}
	r.requests.total.Add(ctx, 1, r.withAppLabel(o.App, labelSet{{"agent", o.Agent}}))
}

// RecordRefusal counts a call that a limit or a budget refused; rule names the limit or is surface.BudgetRule.
func (r *Recorder) RecordRefusal(app, rule string) {
	r.requests.refused.Add(context.Background(), 1, r.withAppLabel(app, labelSet{{"rule", rule}}))
}

// RecordTick counts the start of an agent by a schedule; err is the result of App.StartTick.
func (r *Recorder) RecordTick(app string, err error) {
	outcome := "started"
	switch {
	case errors.Is(err, trigger.ErrTickRefused):
		outcome = "refused"
	case err != nil:
		outcome = "failed"
	}
	r.work.scheduleTicks.Add(context.Background(), 1, r.withAppLabel(app, labelSet{{"outcome", outcome}}))
}

// RecordDelivery counts a delivery to an app's webhook by its outcome.
func (r *Recorder) RecordDelivery(app, outcome string) {
	r.work.webhookDeliveries.Add(context.Background(), 1, r.withAppLabel(app, labelSet{{"outcome", outcome}}))
}

// RecordFinding counts a finding of an app's guardrail. Guardrails of different apps may have the same name, so that
// the busiest are ranked by app and name.
func (r *Recorder) RecordFinding(ctx context.Context, app string, f guardrail.Finding) {
	if r.labels.guardrails.labelFor(app+"/"+f.Guardrail) == otherLabel {
		f.Guardrail = otherLabel
	}
	r.runs.findings.Add(ctx, 1, r.withAppLabel(app, labelSet{{"guardrail", f.Guardrail}, {"action", string(f.Action)}, {"shadow", strconv.FormatBool(f.Shadow)}}))
}

// RecordModelCall counts a call of a model: its duration, its time to the first chunk if it streamed, and its tokens.
// The names and labels of the gen_ai metrics are those of the OpenTelemetry semantic conventions for GenAI.
func (r *Recorder) RecordModelCall(ctx context.Context, app string, c runtime.ModelCall) {
	model := r.labels.models.labelFor(c.Model)
	chat := labelSet{{"gen_ai.operation.name", string(genaiconv.OperationNameChat)}, {"gen_ai.provider.name", c.Provider}, {"gen_ai.request.model", model}}
	// labelSet is an array: timed is a copy, to which the error is added.
	timed := chat
	timed[3] = label{"error.type", c.ErrorKind}
	r.models.genAIDuration.Float64Histogram.Record(ctx, c.Duration.Seconds(), r.labels.sets.optionFor(timed))
	if c.TimeToFirstChunk > 0 {
		r.models.genAITimeToFirstChunk.Float64Histogram.Record(ctx, c.TimeToFirstChunk.Seconds(), r.labels.sets.optionFor(chat))
	}
	u := c.Usage
	for _, t := range []struct {
		class string
		n     int64
	}{{"input", u.InputTokens}, {"output", u.OutputTokens}, {"cache_read", u.CacheReadTokens}, {"cache_write", u.CacheWriteTokens}, {"reasoning", u.ReasoningTokens}} {
		if t.n > 0 {
			r.models.tokens.Add(ctx, t.n, r.withAppLabel(app, labelSet{{"class", t.class}, {"model", model}}))
		}
	}
	// A call that failed reports no reliable token usage for the conventions' histogram.
	if c.ErrorKind == "" {
		chat[3] = label{"gen_ai.token.type", string(genaiconv.TokenTypeInput)}
		r.models.genAITokenUsage.Int64Histogram.Record(ctx, u.InputTokens, r.labels.sets.optionFor(chat))
		chat[3] = label{"gen_ai.token.type", string(genaiconv.TokenTypeOutput)}
		r.models.genAITokenUsage.Int64Histogram.Record(ctx, u.OutputTokens, r.labels.sets.optionFor(chat))
	}
}

// RecordToolCall counts a call of a tool. ErrorKind is "" for a success.
func (r *Recorder) RecordToolCall(ctx context.Context, app string, c runtime.ToolCall) {
	l := labelSet{{"fault", c.ErrorKind}}
	r.runs.toolCalls.Add(ctx, 1, r.withAppLabel(app, l))
	r.runs.toolDuration.Record(ctx, c.Duration.Seconds(), r.labels.sets.optionFor(l))
}

// RecordRunEnd counts an attempt of a run whose end is on the task's log, with its duration. An empty state is a run
// that will be retried.
func (r *Recorder) RecordRunEnd(ctx context.Context, app string, _ store.Run, state agentsvc.State, took time.Duration) {
	if state == "" {
		state = "retry"
	}
	r.RecordRunState(ctx, app, string(state))
	r.runs.duration.Record(ctx, took.Seconds(), r.labels.sets.optionFor(labelSet{{"state", string(state)}}))
}

// RecordRunState counts an attempt of a run by its outcome: a state of tasks or a result of runOutcome.
func (r *Recorder) RecordRunState(ctx context.Context, app, state string) {
	r.runs.total.Add(ctx, 1, r.withAppLabel(app, labelSet{{"state", state}}))
}

// RecordCharge counts the price of a model's work. nanos are billionths of the currency's unit.
func (r *Recorder) RecordCharge(ctx context.Context, app, model, currency string, nanos int64) {
	r.models.cost.Add(ctx, float64(nanos)/1e9, r.withAppLabel(app, labelSet{{"currency", currency}, {"model", r.labels.models.labelFor(model)}}))
}

// RecordNotification counts an attempt to deliver a notification by its outcome: delivered, failed (it is retried) or
// dead.
func (r *Recorder) RecordNotification(app, outcome string) {
	r.work.notifications.Add(context.Background(), 1, r.withAppLabel(app, labelSet{{"outcome", outcome}}))
}

// RecordSweep counts what retention deleted of one app. The labels have no app: retention runs for all apps alike.
func (r *Recorder) RecordSweep(n store.SweepCounts) {
	for kind, n := range map[string]int64{"tasks": n.Tasks, "events": n.Events, "sessions": n.Sessions} {
		r.work.retentionDeleted.Add(context.Background(), n, r.labels.sets.optionFor(labelSet{{"kind", kind}}))
	}
}

// RecordReload counts a change of the configuration file, or of the variables next to it, by whether it was applied.
func (r *Recorder) RecordReload(err error) {
	outcome := "applied"
	if err != nil {
		outcome = "refused"
	}
	r.work.configReloads.Add(context.Background(), 1, r.labels.sets.optionFor(labelSet{{"outcome", outcome}}))
}

// RecordExport counts a delivered batch of an export of usage, or a failed attempt. The names of exports are those of
// the kinds of receivers.
func (r *Recorder) RecordExport(export string, err error) {
	outcome := "delivered"
	if err != nil {
		outcome = "failed"
	}
	r.work.exports.Add(context.Background(), 1, r.labels.sets.optionFor(labelSet{{"export", export}, {"outcome", outcome}}))
}

// NewRedisObserver returns a function that counts a command or a pipeline of a Redis client. It allocates nothing: calls
// wait for the client.
func (r *Recorder) NewRedisObserver(use string) func(ctx context.Context, took time.Duration, err error) {
	set := r.labels.sets.optionFor(labelSet{{"use", use}})
	recorded, added := []metric.RecordOption{set}, []metric.AddOption{set}
	r.redis.errors.Add(context.Background(), 0, added...)
	return func(ctx context.Context, took time.Duration, err error) {
		r.redis.duration.Record(ctx, took.Seconds(), recorded...)
		if err != nil {
			r.redis.errors.Add(ctx, 1, added...)
		}
	}
}

// RecordRedisFailure counts a connection to Redis that was lost, or an attempt to make one that failed.
func (r *Recorder) RecordRedisFailure(use string) {
	r.redis.errors.Add(context.Background(), 1, r.labels.sets.optionFor(labelSet{{"use", use}}))
}

// RecordAppLoad counts a build of an app's runtime, with the time of reading and building it.
func (r *Recorder) RecordAppLoad(took time.Duration, err error) {
	outcome := "built"
	if err != nil {
		outcome = "failed"
	}
	r.apps.loads.Add(context.Background(), 1, r.labels.sets.optionFor(labelSet{{"outcome", outcome}}))
	r.apps.loadDuration.Record(context.Background(), took.Seconds())
}

// RecordAppEviction counts a runtime that was evicted because it was idle or the cache was full.
func (r *Recorder) RecordAppEviction() { r.apps.evictions.Add(context.Background(), 1) }

// RecordCommitGroup counts a commit and how many writes shared it.
func (r *Recorder) RecordCommitGroup(ctx context.Context, writes int) {
	r.dbGroupSize.Record(ctx, int64(writes))
}

// Gatherer returns what reads the present values of all metrics, as Prometheus shows them.
func (r *Recorder) Gatherer() prometheus.Gatherer { return r.registry }

// List returns every metric that was defined.
func (r *Recorder) List() []Info { return r.defined.infos }

// Shutdown sends what has not been sent to the readers and ends them.
func (r *Recorder) Shutdown(ctx context.Context) error { return r.provider.Shutdown(ctx) }
