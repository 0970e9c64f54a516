package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"stoa/tenancy/db"
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

// TestAppNames checks that a line about an app by its id also has its name, as far as it is known, and only once.
func TestAppNames(t *testing.T) {
	t.Parallel()
	names := func(id db.ID) string { return map[db.ID]string{"id-of-acme": "acme"}[id] }
	for _, tt := range []struct {
		name string
		log  func(log *slog.Logger)
		want string
	}{
		{"by id", func(log *slog.Logger) { log.Warn("m", "tenant", db.ID("id-of-acme"), "task", "t1") }, "msg=m tenant=id-of-acme task=t1 app=acme"},
		{"text", func(log *slog.Logger) { log.Warn("m", "tenant", "id-of-acme") }, "msg=m tenant=id-of-acme app=acme"},
		{"with its name", func(log *slog.Logger) { log.Warn("m", "tenant", db.ID("id-of-acme"), "app", "acme") }, "msg=m tenant=id-of-acme app=acme"},
		{"of a logger", func(log *slog.Logger) { log.With("app", "acme").Warn("m", "tenant", db.ID("id-of-acme")) }, "app=acme tenant=id-of-acme"},
		{"not loaded", func(log *slog.Logger) { log.Warn("m", "tenant", db.ID("other")) }, "msg=m tenant=other"},
	} {
		var out bytes.Buffer
		log := slog.New(correlatingHandler{Handler: newLineHandler(&out, "simple", slog.LevelInfo), level: slog.LevelInfo, names: &appNames{}})
		setAppNames(log, names)
		tt.log(log)
		if got := strings.TrimSpace(out.String()); !strings.HasSuffix(got, tt.want) {
			t.Errorf("%s: the line is %q, want it to end with %q", tt.name, got, tt.want)
		}
	}
}

// TestConsequences checks that lines about what an outage of the database causes are at debug level, and others are not.
func TestConsequences(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level]int{slog.LevelInfo: 1, slog.LevelDebug: 2} {
		var out bytes.Buffer
		log := slog.New(correlatingHandler{Handler: newLineHandler(&out, "json", level), level: level})
		log.Warn("the queue cannot be read", "error", fmt.Errorf("claim: %w", db.ErrUnreachable))
		log.Warn("the queue cannot be read", "error", errors.New("a mistake"))
		if got := strings.Count(out.String(), "\n"); got != want {
			t.Errorf("at level %v there are %d lines, want %d: %s", level, got, want, out.String())
		}
	}
}
