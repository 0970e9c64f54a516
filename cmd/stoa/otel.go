package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"stoa/agentsvc"
)

// The OTEL_* variables say what leaves the process for a collector. What nobody asks for does not exist: no exporter, no
// queue, no span. Endpoints, headers, time-outs, queues and bounds the exporters and the SDK read themselves.

// isSignalExported reports whether a signal, TRACES, METRICS or LOGS, is to go to a collector. Traces do where there is one,
// the others where their variable says so.
func isSignalExported(signal string) (bool, error) {
	if off, _ := lookupEnv("OTEL_SDK_DISABLED"); strings.EqualFold(off, "true") {
		return false, nil
	}
	name := "OTEL_" + signal + "_EXPORTER"
	switch exporterName, given := lookupEnv(name); {
	case exporterName == "none":
		return false, nil
	case given && exporterName != "otlp":
		return false, fmt.Errorf("%s must be otlp or none, %q is not available", name, exporterName)
	case !given && signal != "TRACES":
		return false, nil
	case !given:
		if _, specific := lookupEnv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); specific {
			break
		}
		if _, all := lookupEnv("OTEL_EXPORTER_OTLP_ENDPOINT"); !all {
			return false, nil
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol, given := lookupEnv(name); given && protocol != "http/protobuf" {
			return false, fmt.Errorf("%s must be http/protobuf, %q is not available", name, protocol)
		} else if given {
			break
		}
	}
	return true, nil
}

// newResource is who sends: this process of Stoa, unless OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say otherwise.
func newResource(ctx context.Context) (*resource.Resource, error) {
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		semconv.ServiceName("stoa"), semconv.ServiceVersion(version), semconv.ServiceInstanceID(agentsvc.NewID())), resource.WithFromEnv())
}

// telemetryFlushTimeout bounds how long a stopping process waits for its collector.
const telemetryFlushTimeout = 5 * time.Second

// newShutdown returns what ends a provider, in time.
func newShutdown(shutdown func(context.Context) error) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), telemetryFlushTimeout)
		defer cancel()
		if err := shutdown(ctx); err != nil {
			slog.Warn("not all telemetry was delivered", "error", err)
		}
		return nil
	}
}

// newLogExporter returns a handler that sends records to a collector, nil if nobody asks for it.
func newLogExporter(ctx context.Context) (slog.Handler, func() error, error) {
	if wanted, err := isSignalExported("LOGS"); err != nil || !wanted {
		return nil, nil, err
	}
	who, err := newResource(ctx)
	if err != nil {
		return nil, nil, err
	}
	exporter, err := otlploghttp.New(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("export of logs: %w", err)
	}
	p := sdklog.NewLoggerProvider(sdklog.WithResource(who), sdklog.WithProcessor(sdklog.NewBatchProcessor(exporter)))
	return otelslog.NewHandler("stoa", otelslog.WithLoggerProvider(p)), newShutdown(p.Shutdown), nil
}

// newMetricReader returns what sends metrics to a collector every OTEL_METRIC_EXPORT_INTERVAL, nil if nobody asks for it.
func newMetricReader(ctx context.Context) (metric.Reader, error) {
	if wanted, err := isSignalExported("METRICS"); err != nil || !wanted {
		return nil, err
	}
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("export of metrics: %w", err)
	}
	return metric.NewPeriodicReader(exporter), nil
}

// logTelemetryErrors has the SDK's own errors logged, once a minute at most: a collector that is away is away for every batch.
func logTelemetryErrors(log *slog.Logger) {
	var last atomic.Int64
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		now, before := time.Now().Unix(), last.Load()
		if now-before >= 60 && last.CompareAndSwap(before, now) {
			log.Warn("telemetry could not be delivered", "error", err)
		}
	}))
}

// checkPropagators refuses forms of trace headers that are not understood.
func checkPropagators() error {
	list, given := lookupEnv("OTEL_PROPAGATORS")
	for name := range strings.SplitSeq(list, ",") {
		if given && !slices.Contains([]string{"tracecontext", "baggage"}, strings.TrimSpace(name)) {
			return fmt.Errorf("OTEL_PROPAGATORS: %q is not available; callers are understood in tracecontext", name)
		}
	}
	return nil
}

// readSampleRatio reads the part of all traces that OTEL_TRACES_SAMPLER_ARG names.
func readSampleRatio() (float64, error) {
	text, given := lookupEnv("OTEL_TRACES_SAMPLER_ARG")
	if !given {
		return 1, nil
	}
	part, err := strconv.ParseFloat(text, 64)
	if err != nil || !(part >= 0 && part <= 1) {
		return 0, errors.New("OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1")
	}
	return part, nil
}
