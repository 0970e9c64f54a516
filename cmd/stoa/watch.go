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

// watch is who watches the apps.
func (h *house) watch() app.Watch {
	w := app.Watch{Spans: h.tracer != nil}
	if text, _ := environ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"); text == "true" {
		w.Content = true
	}
	if h.meters != nil {
		w.Asked, w.Called, w.Charged = h.meters.ask, h.meters.call, h.meters.charge
		w.Exhausted = func(app string) { h.meters.refuse(app, surface.BudgetRule) }
	}
	if h.meters != nil || h.tracer != nil {
		w.Ended = h.ended
	}
	return w
}

// ended is told of an attempt of a run whose end is on the log.
func (h *house) ended(ctx context.Context, app string, run store.Run, state agentsvc.State, took time.Duration) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(stateKey.String(string(state)))
		if state == agentsvc.Failed {
			trail.Fail(span, string(state))
		}
	}
	if h.meters != nil {
		h.meters.end(ctx, app, run, state, took)
	}
}

// judged counts a finding of a guardrail, where anything is counted.
func (h *house) judged(ctx context.Context, app string, f guardrail.Finding) {
	if h.meters != nil {
		h.meters.judge(ctx, app, f)
	}
}

// grouped counts a commit of so many writes.
func (h *house) grouped(ctx context.Context, writes int) {
	if h.meters != nil {
		h.meters.groups.Record(ctx, int64(writes))
	}
}

// giveUp makes runs dead letters and counts them.
func (h *house) giveUp(dead *task.DeadLetters) func(context.Context, store.Run, string) error {
	return func(ctx context.Context, run store.Run, reason string) error {
		err := dead.Add(ctx, run, reason)
		if err == nil && h.meters != nil {
			h.meters.left(ctx, h.named(ctx, run.Tenant), "dead")
		}
		return err
	}
}

// unhold gives back what the turn of a dead letter holds of its app's limits. Where the app cannot be had it lapses with its
// window.
func (h *house) unhold(ctx context.Context, tenant db.ID, t agentsvc.Task, note string) {
	a, _, release, err := h.live.Acquire(ctx, tenant)
	if err != nil {
		h.log.WarnContext(ctx, "what a dead letter holds of the limits is not given back before its window ends", "task", t.ID, "error", err)
		return
	}
	defer release()
	a.Limits().Unhold(t, note)
}

// named is what an app of that id is called, "" where that cannot be known.
func (h *house) named(ctx context.Context, id db.ID) string {
	if id == tenancy.DefaultID {
		return tenancy.DefaultName
	}
	s, err := h.apps.Snapshot(ctx, id, 0)
	if err != nil {
		return ""
	}
	return s.App.Name
}

// liveOptions say who is told of the apps that are loaded.
func (h *house) liveOptions() tenancy.LiveOptions {
	o := tenancy.LiveOptions{Log: h.log, Changed: h.appChanged}
	if h.meters != nil {
		o.Loaded = h.meters.load
		o.Evicted = func() { h.meters.evictions.Add(context.Background(), 1) }
	}
	return o
}
