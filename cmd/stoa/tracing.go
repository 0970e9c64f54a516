package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"stoa/agentsvc"
	"stoa/agentsvc/app"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/store"
	"stoa/agentsvc/trail"
	"stoa/tenancy"
)

// openTracing creates the tracer if the OTEL_* variables request traces. Otherwise h.tracer stays nil and no span is
// created.
func (h *server) openTracing(ctx context.Context) error {
	wanted, err := isSignalExported("TRACES")
	if err != nil || !wanted {
		return err
	}
	if err := checkPropagators(); err != nil {
		return err
	}
	// Settings that are not supported are errors at the start: tracing that silently does nothing is hard to notice.
	processSampler, err := newProcessSampler()
	if err != nil {
		return err
	}
	who, err := newResource(ctx)
	if err != nil {
		return err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return fmt.Errorf("export of traces: %w", err)
	}
	logTelemetryErrors(h.log)
	p := sdk.NewTracerProvider(sdk.WithResource(who), sdk.WithSampler(appSampler{processSampler}), sdk.WithBatcher(exporter))
	h.addCloser(newShutdown(p.Shutdown))
	h.tracer = p.Tracer("stoa")
	return nil
}

// appSampler decides which traces are recorded. An app may have a sampling ratio of its own, which overrides the wish
// of its callers (the sampled flag of their traceparent); everything else is decided by processSampler.
type appSampler struct{ processSampler sdk.Sampler }

// ShouldSample implements [sdk.Sampler]. The app's ratio decides only at the root of what this process records; the
// spans below follow their parent.
func (s appSampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if part, specific := trail.SamplingRatio(p.ParentContext); specific && !trace.SpanFromContext(p.ParentContext).IsRecording() {
		if rand.Float64() < part { // not by the trace id, which a caller may have chosen
			return sdk.AlwaysSample().ShouldSample(p)
		}
		return sdk.NeverSample().ShouldSample(p)
	}
	return s.processSampler.ShouldSample(p)
}

// Description implements [sdk.Sampler].
func (s appSampler) Description() string { return "App{" + s.processSampler.Description() + "}" }

// newProcessSampler returns the sampler that OTEL_TRACES_SAMPLER names, parentbased_always_on by default.
func newProcessSampler() (sdk.Sampler, error) {
	part, err := readSampleRatio()
	if err != nil {
		return nil, err
	}
	name, given := lookupEnv("OTEL_TRACES_SAMPLER")
	if !given {
		name = "parentbased_always_on"
	}
	switch name {
	case "always_on":
		return sdk.AlwaysSample(), nil
	case "always_off":
		return sdk.NeverSample(), nil
	case "traceidratio":
		return sdk.TraceIDRatioBased(part), nil
	case "parentbased_always_on":
		return sdk.ParentBased(sdk.AlwaysSample()), nil
	case "parentbased_always_off":
		return sdk.ParentBased(sdk.NeverSample()), nil
	case "parentbased_traceidratio":
		return sdk.ParentBased(sdk.TraceIDRatioBased(part)), nil
	}
	return nil, fmt.Errorf("OTEL_TRACES_SAMPLER: %q is none of always_on, always_off, traceidratio and those with parentbased_ before them", name)
}

// executeWithSpan executes a run with app a and records its span. The span's parent is that of the request that
// created the run, also if another process accepted it: the run carries the trace parent in its row. began includes
// the time in which the app was loaded.
func (h *server) executeWithSpan(ctx context.Context, began time.Time, of *tenancy.App, a *app.App, run store.Run, lease agentsvc.Lease) error {
	ctx = context.WithValue(ctx, runKey{}, runInfo{of.Name, string(run.Task)})
	if h.tracer == nil {
		return h.recordOutcome(ctx, of.Name, a.ExecuteRun(ctx, run, lease))
	}
	ctx = trail.WithTraceParent(ctx, run.Trace)
	// A run without a trace parent (a schedule, or an untraced request) begins a trace of its own.
	if part, specific := of.TraceRatio(); specific && run.Trace == "" {
		ctx = trail.WithSamplingRatio(ctx, part)
	}
	kind := trace.SpanKindInternal
	if run.Epoch == 0 {
		kind = trace.SpanKindConsumer // no epoch yet: it was claimed from the queue
	}
	ctx, span := h.tracer.Start(ctx, "run", trace.WithTimestamp(began), trace.WithSpanKind(kind), trace.WithAttributes(
		trail.AppKey.String(of.Name), trail.TaskKey.String(string(run.Task)), attribute.Int64("stoa.turn", run.Turn), attribute.Int64("stoa.attempt", run.Attempts)))
	err := a.ExecuteRun(ctx, run, lease)
	if out := runOutcome(err); out != "" {
		span.SetAttributes(runStateKey.String(out))
	}
	trail.EndSpan(span, err)
	return h.recordOutcome(ctx, of.Name, err)
}

// runStateKey is the span attribute with the outcome of a run.
const runStateKey = attribute.Key("stoa.state")

// runOutcome names the outcome of an attempt that ended without recording a state on the task's log, by the error of
// App.ExecuteRun; it returns "" if the attempt did record one. A lost lease is an error here because another worker
// has the task: this one must not write any more.
func runOutcome(err error) string {
	var cancelled *agentsvc.CallCancelledError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &cancelled):
		return "cancelled"
	case errors.Is(err, agentsvc.ErrLeaseLost):
		return "lost"
	case errors.Is(err, queue.ErrPostponed):
		return "postponed"
	case errors.Is(err, queue.ErrStopping), errors.Is(err, queue.ErrStale):
		return "stopped"
	}
	return "unrecorded"
}

// redisTracer records the Redis commands of traced calls as spans, without keys and values, which may be personal
// data.
type redisTracer struct{}

// DialHook implements [redis.Hook]. Connecting is not recorded: it is not part of one call.
func (redisTracer) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements [redis.Hook].
func (redisTracer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !trail.IsRecorded(ctx) {
			return next(ctx, cmd)
		}
		ctx, span := trail.StartSpan(ctx, cmd.Name(), redisAttributes, trace.WithSpanKind(trace.SpanKindClient))
		err := next(ctx, cmd)
		trail.EndSpan(span, ignoreRedisNil(err))
		return err
	}
}

// ProcessPipelineHook implements [redis.Hook]. A pipeline is one span with the number of its commands.
func (redisTracer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !trail.IsRecorded(ctx) {
			return next(ctx, cmds)
		}
		ctx, span := trail.StartSpan(ctx, "pipeline", redisAttributes, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(semconv.DBOperationBatchSize(len(cmds))))
		err := next(ctx, cmds)
		trail.EndSpan(span, ignoreRedisNil(err))
		return err
	}
}

// redisAttributes are common to all Redis spans; they are built once.
var redisAttributes = trace.WithAttributes(semconv.DBSystemNameRedis)

// ignoreRedisNil returns err, or nil for [redis.Nil]: a missing key is an answer and not a failure of the call.
func ignoreRedisNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
