package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"stoa/agentsvc/surface"
)

// newLogger returns the process's logger and what closes it: lines on a file or the standard error, and where the
// OTEL_* variables ask for it records for a collector.
func newLogger(ctx context.Context, s settings) (*slog.Logger, func() error, error) {
	var out io.Writer = os.Stderr
	closers := []func() error{}
	if s.logFile != "" {
		f, err := os.OpenFile(s.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return nil, nil, fmt.Errorf("logger.file: %w", err)
		}
		out = f
		closers = append(closers, f.Close)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return nil, nil, fmt.Errorf("--log-level: %w", err)
	}
	h := newLineHandler(out, s.logFormat, level)
	exported, end, err := newLogExporter(ctx)
	if err != nil {
		return nil, nil, err
	}
	if exported != nil {
		h = slog.NewMultiHandler(h, exported)
		closers = append(closers, end)
	}
	return slog.New(correlatingHandler{Handler: h, level: level}), func() error {
		var errs []error
		for _, c := range slices.Backward(closers) {
			errs = append(errs, c())
		}
		return errors.Join(errs...)
	}, nil
}

// newLineHandler writes a line for each record. Line ends within a record are escaped, so that nobody makes up lines.
func newLineHandler(out io.Writer, format string, level slog.Level) slog.Handler {
	o := &slog.HandlerOptions{Level: level, AddSource: format == "verbose"}
	if format == "json" {
		return slog.NewJSONHandler(out, o)
	}
	return slog.NewTextHandler(out, o)
}

// correlatingHandler is a handler that adds to each record what it belongs to: the request, the app, the run's task, the trace.
// What a record says of that itself stands.
type correlatingHandler struct {
	slog.Handler
	level slog.Level
	keys  []string // keys that every record has
}

// Enabled implements [slog.Handler].
func (h correlatingHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level && h.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h correlatingHandler) Handle(ctx context.Context, r slog.Record) error {
	if details := contextAttrs(ctx); len(details) > 0 {
		written := slices.Clip(h.keys)
		r.Attrs(func(a slog.Attr) bool { written = append(written, a.Key); return true })
		r = r.Clone()
		for _, a := range details {
			if !slices.Contains(written, a.Key) {
				r.AddAttrs(a)
			}
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h correlatingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler, h.keys = h.Handler.WithAttrs(attrs), slices.Clip(h.keys)
	for _, a := range attrs {
		h.keys = append(h.keys, a.Key)
	}
	return h
}

// WithGroup implements [slog.Handler].
func (h correlatingHandler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// runKey is the key of the run that a context belongs to.
type runKey struct{}

// runInfo is a run, as far as a line of the log tells of it.
type runInfo struct{ app, task string }

// contextAttrs is what is known of what ctx belongs to.
func contextAttrs(ctx context.Context) []slog.Attr {
	attrs := surface.LogAttrs(ctx)
	if w, ok := ctx.Value(runKey{}).(runInfo); ok {
		attrs = append(attrs, slog.String("app", w.app), slog.String("task", w.task))
	}
	if at := trace.SpanContextFromContext(ctx); at.IsValid() {
		attrs = append(attrs, slog.String("trace_id", at.TraceID().String()), slog.String("span_id", at.SpanID().String()))
	}
	return attrs
}

// redisLogger has the Redis client speak through the process's logger, in a low voice: it tells of every attempt to
// reach a server that is not there, and whoever uses it tells of the outage.
type redisLogger struct{ log *slog.Logger }

// Printf logs what the client has to say of its connections.
func (l redisLogger) Printf(_ context.Context, format string, args ...any) {
	l.log.Debug("redis: " + fmt.Sprintf(format, args...))
}
