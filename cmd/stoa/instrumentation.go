package main

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"stoa/agentsvc"
	"stoa/agentsvc/app"
	"stoa/agentsvc/guardrail"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trail"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// newInstrumentation returns the hooks that apps call about models, tools, runs and budgets. A hook that neither
// metrics nor tracing needs stays nil, so that it costs nothing. RecordContent follows the OpenTelemetry variable for
// GenAI content and affects the default app only.
func (h *server) newInstrumentation() app.Instrumentation {
	w := app.Instrumentation{RecordSpans: h.tracer != nil}
	// The variable of the OpenTelemetry conventions for GenAI; content is off by default because it is personal data.
	if text, _ := lookupEnv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"); text == "true" {
		w.RecordContent = true
	}
	if h.metrics != nil {
		w.OnModelCall, w.OnToolCall, w.OnCharge = h.metrics.recordModelCall, h.metrics.recordToolCall, h.metrics.recordCharge
		w.OnBudgetExhausted = func(app string) { h.metrics.recordRefusal(app, surface.BudgetRule) }
	}
	if h.metrics != nil || h.tracer != nil {
		w.OnRunEnded = h.recordRunEnd
	}
	return w
}

// recordRunEnd records the attempt of a run whose end is on the task's log: as the state of its span and as a metric.
// state is "" if the run will be retried, took the time since the attempt began.
func (h *server) recordRunEnd(ctx context.Context, app string, run store.Run, state agentsvc.State, took time.Duration) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(runStateKey.String(string(state)))
		if state == agentsvc.Failed {
			trail.FailSpan(span, string(state))
		}
	}
	if h.metrics != nil {
		h.metrics.recordRunEnd(ctx, app, run, state, took)
	}
}

// recordFinding counts a finding of a guardrail if metrics are enabled.
func (h *server) recordFinding(ctx context.Context, app string, f guardrail.Finding) {
	if h.metrics != nil {
		h.metrics.recordFinding(ctx, app, f)
	}
}

// recordCommitGroup counts a commit and how many writes shared it. The database is opened before the metrics, so that
// h.metrics is looked up at each call.
func (h *server) recordCommitGroup(ctx context.Context, writes int) {
	if h.metrics != nil {
		h.metrics.dbGroupSize.Record(ctx, int64(writes))
	}
}

// newDeadLetterFunc returns queue.Options.GiveUp: it turns a run that has had its attempts into a dead letter and
// counts it.
func (h *server) newDeadLetterFunc(dead *task.DeadLetters) func(context.Context, store.Run, string) error {
	return func(ctx context.Context, run store.Run, reason string) error {
		err := dead.Add(ctx, run, reason)
		if err == nil && h.metrics != nil {
			h.metrics.recordRunState(ctx, h.appName(ctx, run.Tenant), "dead")
		}
		return err
	}
}

// releaseReservation releases what the turn of a dead letter has reserved of its app's limits; note is the
// reservation as the run stored it. If the app cannot be loaded, the reservation lapses with its window.
func (h *server) releaseReservation(ctx context.Context, tenant db.ID, t agentsvc.Task, note string) {
	a, _, release, err := h.runtimes.Acquire(ctx, tenant)
	if err != nil {
		h.log.WarnContext(ctx, "the reservation of a dead letter is not released before its window ends", "task", t.ID, "error", err)
		return
	}
	defer release()
	a.RateLimits().ReleaseTask(t, note)
}

// appName returns the name of an app for a metric's label, "" if the app cannot be read.
func (h *server) appName(ctx context.Context, id db.ID) string {
	// Its name is fixed, so that no query is needed.
	if id == tenancy.DefaultID {
		return tenancy.DefaultName
	}
	s, err := h.apps.LoadSnapshot(ctx, id, 0)
	if err != nil {
		return ""
	}
	return s.App.Name
}

// newRuntimeOptions returns the callbacks of the runtime cache: status changes, and metrics of builds and evictions.
func (h *server) newRuntimeOptions() tenancy.RuntimeCacheOptions {
	o := tenancy.RuntimeCacheOptions{Log: h.log, OnChange: h.handleAppChange}
	if h.metrics != nil {
		o.OnBuild = h.metrics.recordAppLoad
		o.OnEvict = func() { h.metrics.appEvictions.Add(context.Background(), 1) }
	}
	return o
}
