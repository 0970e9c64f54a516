package trail

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// startRecordedSpan returns a context with a recorded span, the span, and its recorder.
func startRecordedSpan(t *testing.T) (context.Context, trace.Span, *tracetest.SpanRecorder) {
	t.Helper()
	seen := tracetest.NewSpanRecorder()
	ctx, span := sdk.NewTracerProvider(sdk.WithSpanProcessor(seen)).Tracer("test").Start(t.Context(), "call")
	return ctx, span, seen
}

type oddError struct{}

func (oddError) Error() string { return "canary" }
func (oddError) Kind() string  { return "odd" }

// TestEndSpan checks that a span has the kind of an error, and none for a cancelled context.
func TestEndSpan(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"none", nil, ""},
		{"given up", fmt.Errorf("canary: %w", context.Canceled), ""},
		{"late", fmt.Errorf("canary: %w", context.DeadlineExceeded), "timeout"},
		{"own kind", fmt.Errorf("canary: %w", oddError{}), "odd"},
		{"any", errors.New("canary"), "_OTHER"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, _, seen := startRecordedSpan(t)
			_, span := StartSpan(ctx, "step")
			EndSpan(span, tt.err)
			got := seen.Ended()
			if len(got) != 1 {
				t.Fatalf("%d spans have ended", len(got))
			}
			kind := ""
			for _, a := range got[0].Attributes() {
				kind += a.Value.String()
			}
			if kind != tt.want || strings.Contains(fmt.Sprint(got[0].Status(), got[0].Events()), "canary") {
				t.Errorf("the span says %q, %v, %v; want %q", kind, got[0].Status(), got[0].Events(), tt.want)
			}
		})
	}
}

// TestUnrecorded checks that no span is created without a recorded parent.
func TestUnrecorded(t *testing.T) {
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		within, span := StartSpan(ctx, "step")
		EndSpan(span, nil)
		if within != ctx || TraceParent(within) != "" || IsRecorded(within) {
			t.Error("there is a trace")
		}
	}); n > 0 {
		t.Errorf("it costs %v allocations", n)
	}
}

// TestPropagation checks that a trace continues from its traceparent, and that a client with propagation sends it.
func TestPropagation(t *testing.T) {
	ctx, span, _ := startRecordedSpan(t)
	name := TraceParent(ctx)
	if !strings.Contains(name, span.SpanContext().TraceID().String()) {
		t.Fatalf("the span is called %q", name)
	}
	later := trace.SpanContextFromContext(WithTraceParent(t.Context(), name))
	if later.TraceID() != span.SpanContext().TraceID() || later.SpanID() != span.SpanContext().SpanID() || !later.IsSampled() {
		t.Errorf("it goes on below %v", later)
	}
	for _, junk := range []string{"", "00-zz", "canary"} {
		if trace.SpanContextFromContext(WithTraceParent(t.Context(), junk)).IsValid() {
			t.Errorf("%q is a span", junk)
		}
	}
	var received []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		received = append(received, r.Header.Get("Traceparent")+r.Header.Get("Baggage"))
	}))
	defer server.Close()
	for _, ctx := range []context.Context{ctx, t.Context()} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := WithPropagation(&http.Client{Transport: http.DefaultTransport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if len(req.Header) > 0 {
			t.Error("the caller's request was changed")
		}
	}
	if len(received) != 2 || received[0] != name || received[1] != "" {
		t.Errorf("it got %q", received)
	}
}
