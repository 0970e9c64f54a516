package otlp

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"stoa/agentsvc/trail"
)

// setEndpoint points the OTEL_* variables to a collector that takes everything.
func setEndpoint(t *testing.T) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
}

// TestChosenTraceIDs checks that a caller who chooses a trace id cannot choose that it is sampled.
func TestChosenTraceIDs(t *testing.T) {
	t.Parallel()
	s := appSampler{sdk.NeverSample()}
	for part, want := range map[float64]sdk.SamplingDecision{1e-12: sdk.Drop, 1: sdk.RecordAndSample} {
		got := s.ShouldSample(sdk.SamplingParameters{ParentContext: trail.WithSamplingRatio(t.Context(), part), TraceID: trace.TraceID{15: 1}})
		if got.Decision != want {
			t.Errorf("of %v of all: %v, want %v", part, got.Decision, want)
		}
	}
}

// TestTelemetryRefused checks that values of the OTEL_* variables that are not supported are named in an error.
func TestTelemetryRefused(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"OTEL_TRACES_EXPORTER", "zipkin", "OTEL_TRACES_EXPORTER must be otlp or none"},
		{"OTEL_METRICS_EXPORTER", "console", "OTEL_METRICS_EXPORTER must be otlp or none"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf"},
		{"OTEL_TRACES_SAMPLER", "sometimes", "OTEL_TRACES_SAMPLER"},
		{"OTEL_TRACES_SAMPLER_ARG", "7", "OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1"},
		{"OTEL_PROPAGATORS", "b3", `"b3" is not available`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			setEndpoint(t)
			t.Setenv(tt.name, tt.value)
			_, end, err := NewTracer(t.Context(), "v0", slog.New(slog.DiscardHandler))
			if err == nil {
				_, err = NewMetricReader(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			if end != nil {
				_ = end()
			}
		})
	}
	t.Run("disabled", func(t *testing.T) {
		setEndpoint(t)
		t.Setenv("OTEL_SDK_DISABLED", "true")
		if tracer, _, err := NewTracer(t.Context(), "v0", slog.New(slog.DiscardHandler)); err != nil || tracer != nil {
			t.Errorf("a tracer %v, %v", tracer, err)
		}
	})
}
