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

// What the house hands to its rooms so that they tell what they do. What nobody counts or records is nil.

// newInstrumentation is who watches the apps.
func (h *server) newInstrumentation() app.Instrumentation {
	w := app.Instrumentation{RecordSpans: h.tracer != nil}
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

// recordRunEnd is told of an attempt of a run whose end is on the log.
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

// recordFinding counts a finding of a guardrail, where anything is counted.
func (h *server) recordFinding(ctx context.Context, app string, f guardrail.Finding) {
	if h.metrics != nil {
		h.metrics.recordFinding(ctx, app, f)
	}
}

// recordCommitGroup counts a commit of so many writes.
func (h *server) recordCommitGroup(ctx context.Context, writes int) {
	if h.metrics != nil {
		h.metrics.dbGroupSize.Record(ctx, int64(writes))
	}
}

// newDeadLetterFunc makes runs dead letters and counts them.
func (h *server) newDeadLetterFunc(dead *task.DeadLetters) func(context.Context, store.Run, string) error {
	return func(ctx context.Context, run store.Run, reason string) error {
		err := dead.Add(ctx, run, reason)
		if err == nil && h.metrics != nil {
			h.metrics.recordRunState(ctx, h.appName(ctx, run.Tenant), "dead")
		}
		return err
	}
}

// releaseReservation gives back what the turn of a dead letter holds of its app's limits. Where the app cannot be had it lapses with its
// window.
func (h *server) releaseReservation(ctx context.Context, tenant db.ID, t agentsvc.Task, note string) {
	a, _, release, err := h.runtimes.Acquire(ctx, tenant)
	if err != nil {
		h.log.WarnContext(ctx, "what a dead letter holds of the limits is not given back before its window ends", "task", t.ID, "error", err)
		return
	}
	defer release()
	a.RateLimits().ReleaseTask(t, note)
}

// appName is what an app of that id is called, "" where that cannot be known.
func (h *server) appName(ctx context.Context, id db.ID) string {
	if id == tenancy.DefaultID {
		return tenancy.DefaultName
	}
	s, err := h.apps.LoadSnapshot(ctx, id, 0)
	if err != nil {
		return ""
	}
	return s.App.Name
}

// newRuntimeOptions say who is told of the apps that are loaded.
func (h *server) newRuntimeOptions() tenancy.RuntimeCacheOptions {
	o := tenancy.RuntimeCacheOptions{Log: h.log, OnChange: h.handleAppChange}
	if h.metrics != nil {
		o.OnBuild = h.metrics.recordAppLoad
		o.OnEvict = func() { h.metrics.appEvictions.Add(context.Background(), 1) }
	}
	return o
}
