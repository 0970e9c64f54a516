package server

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"stoa/agentsvc"
	"stoa/agentsvc/document/indexing"
	"stoa/agentsvc/fleet"
	"stoa/agentsvc/guardrail"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/trail"
	"stoa/billing/budget"
	"stoa/cmd/stoa/server/metrics"
	"stoa/cmd/stoa/server/otlp"
	"stoa/migrations"
	"stoa/tenancy/db"
	"stoa/tenancy/runtimecache"
)

// telemetry is what records events and spans of the process. metrics and tracer are nil if nothing reads their records.
type telemetry struct {
	// traffic counts calls and runs for the operator's pages.
	traffic *fleet.Recorder
	metrics *metrics.Recorder
	tracer  trace.Tracer
}

// openTelemetry returns the tracer and the recorder that the configuration and the OTEL_* variables request.
func openTelemetry(ctx context.Context, o Options, c *closers) (t telemetry, err error) {
	var end func() error
	t.traffic = fleet.NewRecorder()
	if t.tracer, end, err = otlp.NewTracer(ctx, o.Version, o.Log); err != nil {
		return t, err
	}
	if end != nil {
		c.add(end)
	}
	t.metrics, err = openMetrics(ctx, o)
	return t, err
}

// openMetrics returns a recorder if something reads it: a Prometheus endpoint or an OTLP exporter; else nil, and
// nothing is counted. App names identify tenants, so that they are labels only if reading needs a token or is possible
// from this machine alone. The caller shuts the recorder down.
func openMetrics(ctx context.Context, o Options) (*metrics.Recorder, error) {
	// Push (OTLP) and pull (Prometheus) are independent; either needs the recorder.
	pushed, err := otlp.NewMetricReader(ctx)
	if err != nil {
		return nil, err
	}
	cfg := o.DefaultApp.Config()
	if pushed == nil && o.Settings.Listen.MetricsAddr == "" && (cfg == nil || !cfg.Observability.Metrics.Enabled) {
		return nil, nil
	}
	token, err := readSecret(MetricsTokenName)
	if err != nil {
		return nil, err
	}
	withApps := token != "" || o.Settings.hasPrivateMetrics()
	if pushed == nil {
		return metrics.NewRecorder(withApps)
	}
	return metrics.NewRecorder(withApps, pushed)
}

// newInstrumentation returns the hooks that apps call about models, tools, runs and budgets. A hook that neither
// metrics nor tracing needs stays nil, so that it costs nothing. RecordContent follows the OpenTelemetry variable for
// GenAI content and affects the default app only.
func (t telemetry) newInstrumentation() runtime.Instrumentation {
	w := runtime.Instrumentation{RecordSpans: t.tracer != nil, OnRunEnded: t.recordRunEnd}
	// The variable of the OpenTelemetry conventions for GenAI; content is off by default because it is personal data.
	if text, _ := lookupEnv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"); text == "true" {
		w.RecordContent = true
	}
	if t.metrics != nil {
		w.OnModelCall, w.OnToolCall, w.OnCharge = t.metrics.RecordModelCall, t.metrics.RecordToolCall, t.metrics.RecordCharge
		w.OnDocumentSearch, w.OnSearchPart = t.metrics.Documents.RecordSearch, t.metrics.Documents.RecordSearchPart
		w.OnBudgetExhausted = func(app string) { t.metrics.RecordRefusal(app, surface.BudgetRule) }
	}
	return w
}

// recordRunEnd records the attempt of a run whose end is on the task's log: as the state of its span, as traffic and as
// a metric.
// state is "" if the run will be retried, took the time since the attempt began.
func (t telemetry) recordRunEnd(ctx context.Context, app string, run store.Run, state agentsvc.State, took time.Duration) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(runStateKey.String(string(state)))
		if state == agentsvc.Failed {
			trail.FailSpan(span, string(state))
		}
	}
	t.traffic.RecordRun(app, state == "" || state == agentsvc.Failed, took)
	if t.metrics != nil {
		t.metrics.RecordRunEnd(ctx, app, run, state, took)
	}
}

// recordRequest counts a request of a client. Only those to an agent that exists are calls.
func (t telemetry) recordRequest(o surface.Observation) {
	if o.Agent != "" {
		took := o.Duration
		if o.Stream {
			took = -1
		}
		t.traffic.RecordCall(o.App, callOutcome(o), took)
	}
	if t.metrics != nil {
		t.metrics.RecordRequest(o)
	}
}

// callOutcome returns how a call ended for the operator. Over JSON-RPC the status of an error is 200, so that its code
// decides. A webhook whose task failed is answered with 500 and no code.
func callOutcome(o surface.Observation) fleet.Outcome {
	switch {
	case o.Code == apierror.ResourceExhausted:
		return fleet.Refused
	case o.Code == apierror.Internal, o.Code == apierror.Unavailable, o.Status >= http.StatusInternalServerError:
		return fleet.Failed
	case o.Code != "":
		return fleet.Rejected
	}
	return fleet.Succeeded
}

// newReporter returns what writes about this process to the database.
func newReporter(id string, o Options, d *db.DB, dr *drainer, t telemetry) (*fleet.Reporter, error) {
	known, err := migrations.Latest(string(d.Engine()))
	if err != nil {
		return nil, err
	}
	return fleet.NewReporter(fleet.Options{
		DB: d, Recorder: t.traffic, Process: fleet.Process{ID: id, Version: o.Version, Commit: o.Commit, Role: o.Settings.Role, Migration: known},
		AwaitsRestart: o.DefaultApp.keysAwaitingRestart, IsStopping: dr.isStopping, Log: o.Log,
	}), nil
}

// recordFinding counts a finding of a guardrail if metrics are enabled.
func (t telemetry) recordFinding(ctx context.Context, app string, f guardrail.Finding) {
	if t.metrics != nil {
		t.metrics.RecordFinding(ctx, app, f)
	}
}

// recordCommitGroup counts a commit and how many writes shared it.
func (t telemetry) recordCommitGroup(ctx context.Context, writes int) {
	if t.metrics != nil {
		t.metrics.RecordCommitGroup(ctx, writes)
	}
}

// recordOutcome counts an attempt of a run that ended without recording a state on the task's log, and returns err.
// Attempts that recorded a state are counted by recordRunEnd.
func (t telemetry) recordOutcome(ctx context.Context, app string, err error) error {
	if out := runOutcome(err); out != "" && t.metrics != nil {
		t.metrics.RecordRunState(ctx, app, out)
	}
	return err
}

// newRuntimeCacheOptions returns the options of the runtime cache with metrics of builds and evictions.
func (t telemetry) newRuntimeCacheOptions() runtimecache.Options {
	if t.metrics == nil {
		return runtimecache.Options{}
	}
	return runtimecache.Options{OnBuild: t.metrics.RecordAppLoad, OnEvict: t.metrics.RecordAppEviction}
}

// newIndexingHooks returns what counts the indexing of documents.
func (t telemetry) newIndexingHooks() indexing.Hooks {
	if t.metrics == nil {
		return indexing.Hooks{}
	}
	d := t.metrics.Documents
	return indexing.Hooks{OnDocument: d.RecordDocument, OnStep: d.RecordStep, OnPass: d.RecordPass}
}

// exportHook returns what counts the deliveries of exports, nil without metrics.
func (t telemetry) exportHook() func(export string, err error) {
	if t.metrics == nil {
		return nil
	}
	return t.metrics.RecordExport
}

// registerGauges defines the metrics that are computed when they are read.
func (s *Server) registerGauges(frontend *surface.Server) error {
	if s.telemetry.metrics == nil {
		return nil
	}
	return s.telemetry.metrics.RegisterGauges(metrics.Sources{
		DB: s.Storage.DB, RunsInflight: s.Execution.Inflight, StreamsOpen: frontend.OpenStreams, Connections: s.network.connections.ReadCounts, AppsLoaded: s.Execution.Runtimes.Len,
		AuditFlaws: func(ctx context.Context) (int64, error) {
			_, n, err := s.Apps.Trail.ListFlaws(ctx, "")
			return n, err
		},
		OldestDocument: func(ctx context.Context) (time.Duration, error) { return oldestPendingDocument(ctx, s.Storage.DB) },
		UsagePending:   s.Dependencies.Billing.Usage.PendingUsage, WritesRefused: s.Storage.Quota.RefusedWrites,
		Version: s.Version, Commit: s.Commit, CertificateExpiry: s.network.certificateExpiry,
		ExportNames: s.Exporter.Names(), Exports: s.Dependencies.Billing.Exports.ListExports, TightestBudgets: func(ctx context.Context, n int) ([]budget.TightBudget, error) {
			return budget.ListTightest(ctx, s.Dependencies.Billing.Budgets, n)
		},
		MasterKeys: s.Storage.keyWatch.countKeys,
	})
}
