package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"stoa/agentsvc/trail"
)

// NewTracer returns the tracer and its closer if the OTEL_* variables request traces; otherwise both are nil, and no
// span is created. The SDK's own errors go to log.
func NewTracer(ctx context.Context, version string, log *slog.Logger) (trace.Tracer, func() error, error) {
	wanted, err := isSignalExported("TRACES")
	if err != nil || !wanted {
		return nil, nil, err
	}
	if err := checkPropagators(); err != nil {
		return nil, nil, err
	}
	// Settings that are not supported are errors at the start: tracing that silently does nothing is hard to notice.
	processSampler, err := newProcessSampler()
	if err != nil {
		return nil, nil, err
	}
	who, err := newResource(ctx, version)
	if err != nil {
		return nil, nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("export of traces: %w", err)
	}
	logTelemetryErrors(log)
	p := sdk.NewTracerProvider(sdk.WithResource(who), sdk.WithSampler(appSampler{processSampler}), sdk.WithBatcher(exporter))
	return p.Tracer("stoa"), NewShutdown(p.Shutdown), nil
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
	name, given := lookup("OTEL_TRACES_SAMPLER")
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
