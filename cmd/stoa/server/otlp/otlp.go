// Package otlp exports the traces, metrics and logs of a process over OTLP, as the OTEL_* variables select it. A signal
// that is not requested creates no exporter, queue or span. Endpoints, headers, timeouts, queues and bounds are read by
// the exporters and the SDK themselves.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
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

// isSignalExported reports whether a signal (TRACES, METRICS or LOGS) is exported to a collector: if
// OTEL_<signal>_EXPORTER is otlp, and traces also if that variable is not set but an OTLP endpoint is. It returns an
// error for an exporter or protocol that Stoa does not have, since ignoring the variable would lose telemetry
// silently.
func isSignalExported(signal string) (bool, error) {
	if off, _ := lookup("OTEL_SDK_DISABLED"); strings.EqualFold(off, "true") {
		return false, nil
	}
	name := "OTEL_" + signal + "_EXPORTER"
	switch exporterName, given := lookup(name); {
	case exporterName == "none":
		return false, nil
	case given && exporterName != "otlp":
		return false, fmt.Errorf("%s must be otlp or none, %q is not available", name, exporterName)
	case !given && signal != "TRACES":
		return false, nil
	case !given:
		if _, specific := lookup("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); specific {
			break
		}
		if _, all := lookup("OTEL_EXPORTER_OTLP_ENDPOINT"); !all {
			return false, nil
		}
	}
	// The variable of the signal overrides the general one.
	for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol, given := lookup(name); given && protocol != "http/protobuf" {
			return false, fmt.Errorf("%s must be http/protobuf, %q is not available", name, protocol)
		} else if given {
			break
		}
	}
	return true, nil
}

// newResource returns the identity of this process in exported telemetry. OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES override its defaults. The instance id is new in each process.
func newResource(ctx context.Context, version string) (*resource.Resource, error) {
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		semconv.ServiceName("stoa"), semconv.ServiceVersion(version), semconv.ServiceInstanceID(agentsvc.NewID())), resource.WithFromEnv())
}

// telemetryFlushTimeout bounds how long a stopping process waits for its collector, for each signal.
const telemetryFlushTimeout = 5 * time.Second

// NewShutdown returns a closer that flushes and ends a provider. It never fails: undelivered telemetry is logged and
// must not change the exit code of the process.
func NewShutdown(shutdown func(context.Context) error) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), telemetryFlushTimeout)
		defer cancel()
		if err := shutdown(ctx); err != nil {
			slog.Warn("not all telemetry was delivered", "error", err)
		}
		return nil
	}
}

// NewLogHandler returns a handler that sends log records of this version to a collector and its closer, nil if logs are not
// exported.
func NewLogHandler(ctx context.Context, version string) (slog.Handler, func() error, error) {
	if wanted, err := isSignalExported("LOGS"); err != nil || !wanted {
		return nil, nil, err
	}
	who, err := newResource(ctx, version)
	if err != nil {
		return nil, nil, err
	}
	exporter, err := otlploghttp.New(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("export of logs: %w", err)
	}
	p := sdklog.NewLoggerProvider(sdklog.WithResource(who), sdklog.WithProcessor(sdklog.NewBatchProcessor(exporter)))
	return otelslog.NewHandler("stoa", otelslog.WithLoggerProvider(p)), NewShutdown(p.Shutdown), nil
}

// NewMetricReader returns the reader that sends metrics to a collector every OTEL_METRIC_EXPORT_INTERVAL, nil if
// metrics are not exported.
func NewMetricReader(ctx context.Context) (metric.Reader, error) {
	if wanted, err := isSignalExported("METRICS"); err != nil || !wanted {
		return nil, err
	}
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("export of metrics: %w", err)
	}
	return metric.NewPeriodicReader(exporter), nil
}

// logTelemetryErrors logs the SDK's own errors, at most one a minute, because an unavailable collector fails every
// batch. The handler is global to the process.
func logTelemetryErrors(log *slog.Logger) {
	var last atomic.Int64
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		now, before := time.Now().Unix(), last.Load()
		if now-before >= 60 && last.CompareAndSwap(before, now) {
			log.Warn("telemetry could not be delivered", "error", err)
		}
	}))
}

// checkPropagators returns an error for a format of trace headers in OTEL_PROPAGATORS that is not supported.
func checkPropagators() error {
	list, given := lookup("OTEL_PROPAGATORS")
	for name := range strings.SplitSeq(list, ",") {
		if given && !slices.Contains([]string{"tracecontext", "baggage"}, strings.TrimSpace(name)) {
			return fmt.Errorf("OTEL_PROPAGATORS: %q is not available; only tracecontext is", name)
		}
	}
	return nil
}

// readSampleRatio returns OTEL_TRACES_SAMPLER_ARG, the fraction of traces to record from 0 to 1; 1 if it is not set.
func readSampleRatio() (float64, error) {
	text, given := lookup("OTEL_TRACES_SAMPLER_ARG")
	if !given {
		return 1, nil
	}
	part, err := strconv.ParseFloat(text, 64)
	if err != nil || !(part >= 0 && part <= 1) { // written so that NaN is refused
		return 0, errors.New("OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1")
	}
	return part, nil
}

// lookup returns an environment variable. An empty variable counts as not set, as the OpenTelemetry specification
// requires.
func lookup(name string) (string, bool) {
	v := os.Getenv(name)
	return v, v != ""
}
