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

// openTracing starts recording, if the OTEL_* variables ask for it.
func (h *house) openTracing(ctx context.Context) error {
	wanted, err := exports("TRACES")
	if err != nil || !wanted {
		return err
	}
	if err := checkPropagators(); err != nil {
		return err
	}
	usual, err := usualSampler()
	if err != nil {
		return err
	}
	who, err := identity(ctx)
	if err != nil {
		return err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return fmt.Errorf("export of traces: %w", err)
	}
	tellOf(h.log)
	p := sdk.NewTracerProvider(sdk.WithResource(who), sdk.WithSampler(sampler{usual}), sdk.WithBatcher(exporter))
	h.closing(shutting(p.Shutdown))
	h.tracer = p.Tracer("stoa")
	return nil
}

// sampler records the part of an app's traces that the app has of its own, whatever its callers wish, and of all others
// what the process records.
type sampler struct{ usual sdk.Sampler }

// ShouldSample implements [sdk.Sampler].
func (s sampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if part, own := trail.Ratio(p.ParentContext); own && !trace.SpanFromContext(p.ParentContext).IsRecording() {
		if rand.Float64() < part { // and not by the trace's id, which a caller may have chosen
			return sdk.AlwaysSample().ShouldSample(p)
		}
		return sdk.NeverSample().ShouldSample(p)
	}
	return s.usual.ShouldSample(p)
}

// Description implements [sdk.Sampler].
func (s sampler) Description() string { return "App{" + s.usual.Description() + "}" }

// usualSampler is what OTEL_TRACES_SAMPLER names.
func usualSampler() (sdk.Sampler, error) {
	part, err := ratio()
	if err != nil {
		return nil, err
	}
	name, given := environ("OTEL_TRACES_SAMPLER")
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

// work runs a run of a. Its span stands below that of what asked for it, in whichever process that was.
func (h *house) work(ctx context.Context, began time.Time, of *tenancy.App, a *app.App, run store.Run) error {
	ctx = context.WithValue(ctx, workKey{}, work{of.Name, string(run.Task)})
	if h.tracer == nil {
		return h.counted(ctx, of.Name, a.Run(ctx, run))
	}
	ctx = trail.Below(ctx, run.Trace)
	if part, own := of.TraceRatio(); own && run.Trace == "" {
		ctx = trail.WithRatio(ctx, part)
	}
	kind := trace.SpanKindInternal
	if run.Epoch == 0 {
		kind = trace.SpanKindConsumer // it comes from the queue
	}
	ctx, span := h.tracer.Start(ctx, "run", trace.WithTimestamp(began), trace.WithSpanKind(kind), trace.WithAttributes(
		trail.AppKey.String(of.Name), trail.TaskKey.String(string(run.Task)), attribute.Int64("stoa.turn", run.Turn), attribute.Int64("stoa.attempt", run.Attempts)))
	err := a.Run(ctx, run)
	if out := outcome(err); out != "" {
		span.SetAttributes(stateKey.String(out))
	}
	trail.End(span, err)
	return h.counted(ctx, of.Name, err)
}

// stateKey is what a run's span says became of it.
const stateKey = attribute.Key("stoa.state")

// outcome names what became of a run without an end of its own on the log.
func outcome(err error) string {
	var cancelled *agentsvc.CancelledError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &cancelled):
		return "cancelled"
	case errors.Is(err, agentsvc.ErrLost):
		return "lost"
	case errors.Is(err, queue.ErrPostponed):
		return "postponed"
	case errors.Is(err, queue.ErrStopping), errors.Is(err, queue.ErrStale):
		return "stopped"
	}
	return "unrecorded"
}

// redisSpans records what calls have Redis do, without keys and values.
type redisSpans struct{}

// DialHook implements [redis.Hook].
func (redisSpans) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements [redis.Hook].
func (redisSpans) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !trail.Recorded(ctx) {
			return next(ctx, cmd)
		}
		ctx, span := trail.Start(ctx, cmd.Name(), ofRedis, trace.WithSpanKind(trace.SpanKindClient))
		err := next(ctx, cmd)
		trail.End(span, miss(err))
		return err
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (redisSpans) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !trail.Recorded(ctx) {
			return next(ctx, cmds)
		}
		ctx, span := trail.Start(ctx, "pipeline", ofRedis, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(semconv.DBOperationBatchSize(len(cmds))))
		err := next(ctx, cmds)
		trail.End(span, miss(err))
		return err
	}
}

var ofRedis = trace.WithAttributes(semconv.DBSystemNameRedis)

// miss is err unless it says that there is nothing under a key.
func miss(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
