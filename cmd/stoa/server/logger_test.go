package server

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// TestCorrelated checks that a record identifies what it belongs to, once, and that its text cannot forge further
// lines.
func TestCorrelated(t *testing.T) {
	t.Parallel()
	at := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	ctx := trace.ContextWithSpanContext(context.WithValue(t.Context(), runKey{}, runInfo{"acme", "t1"}), at)
	for _, format := range []string{"simple", "json"} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			log := slog.New(correlatingHandler{Handler: newLineHandler(&out, format, slog.LevelInfo), level: slog.LevelInfo})
			log.With("app", "acme").WarnContext(ctx, "one\r\nlevel=ERROR msg=two", "error", "three\nfour", "task", "t1")
			log.DebugContext(ctx, "unheard")
			log.Info("alone")
			got := out.String()
			if strings.Count(got, "\n") != 2 || strings.Contains(got, "\r") || strings.Contains(got, "unheard") {
				t.Errorf("the lines are %q", got)
			}
			first, second, _ := strings.Cut(got, "\n")
			for _, once := range []string{"acme", "t1", "trace_id", "01000000000000000000000000000000", "span_id", "0200000000000000"} {
				if strings.Count(first, once) != 1 || strings.Contains(second, once) {
					t.Errorf("%s stands %d times in %q", once, strings.Count(first, once), got)
				}
			}
		})
	}
}
