package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"stoa/agentsvc/config/configfile"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/surface"
	"stoa/cmd/stoa/server/otlp"
	"stoa/tenancy/db"
)

// NewLogger returns the logger of a process of this version and a function that closes it. It writes lines to
// logger.file or standard error, and also sends records to a collector if the OTEL_* variables request it.
func NewLogger(ctx context.Context, s LogSettings, version string) (*slog.Logger, func() error, error) {
	var out io.Writer = os.Stderr
	closers := []func() error{}
	if s.File != "" {
		f, err := os.OpenFile(s.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return nil, nil, fmt.Errorf("logger.file: %w", err)
		}
		out = f
		closers = append(closers, f.Close)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.Level)); err != nil {
		return nil, nil, fmt.Errorf("--log-level: %w", err)
	}
	// Lines always, and records for a collector in addition if they are exported.
	h := newLineHandler(out, s.Format, level)
	exported, end, err := otlp.NewLogHandler(ctx, version)
	if err != nil {
		return nil, nil, err
	}
	if exported != nil {
		h = slog.NewMultiHandler(h, exported)
		closers = append(closers, end)
	}
	return slog.New(correlatingHandler{Handler: h, level: level, names: &appNames{}}), func() error {
		var errs []error
		// The exporter is flushed before the file closes, since it may log.
		for _, c := range slices.Backward(closers) {
			errs = append(errs, c())
		}
		return errors.Join(errs...)
	}, nil
}

// NewStartLogger returns the logger on standard error for what happens before the settings are known; nil if its lines
// are not JSON. flag is the value of --log-format, "" = not given. Without it STOA_LOG_FORMAT decides, else the
// configuration file of that path, whose other parts may be invalid.
func NewStartLogger(flag, path string) *slog.Logger {
	format := flag
	if format == "" {
		format, _ = lookupEnv("STOA_LOG_FORMAT")
	}
	if format == "" && path != "" {
		if src, err := configfile.Read(path); err == nil {
			doc, _ := document.Decode(src)
			logger, _ := doc["logger"].(map[string]any)
			format, _ = logger["format"].(string)
		}
	}
	if format != "json" {
		return nil
	}
	return slog.New(newLineHandler(os.Stderr, format, slog.LevelInfo))
}

// newLineHandler returns a handler that writes one line for each record. Both formats escape line ends inside a
// record, so that a caller's text cannot forge a record.
func newLineHandler(out io.Writer, format string, level slog.Level) slog.Handler {
	o := &slog.HandlerOptions{Level: level, AddSource: format == "verbose"}
	if format == "json" {
		return slog.NewJSONHandler(out, o)
	}
	return slog.NewTextHandler(out, o)
}

// correlatingHandler adds to each record what its context belongs to: the request, the app, the task of the run, and
// the trace; and to a record about an app by its id the app's name. An attribute that the record already has is not added
// again.
type correlatingHandler struct {
	slog.Handler
	level slog.Level
	keys  []string // keys of the attributes that WithAttrs has added
	// names finds the names of apps; nil = they are not added. All handlers that are derived from one share it.
	names *appNames
}

// appNames finds the names of apps for the log. find is set when the server has apps, see setAppNames.
type appNames struct {
	find atomic.Pointer[func(db.ID) string]
}

// setAppNames makes the lines of a logger of NewLogger about an app by its id contain the name that find returns, if it
// is not "". find must not wait and must not log.
func setAppNames(log *slog.Logger, find func(db.ID) string) {
	if h, ok := log.Handler().(correlatingHandler); ok && h.names != nil {
		h.names.find.Store(&find)
	}
}

// nameAttr returns the name of the app that r is about by its id, in the attribute tenant; ok is false if it is not known.
func (h correlatingHandler) nameAttr(r slog.Record) (name slog.Attr, ok bool) {
	if h.names == nil {
		return slog.Attr{}, false
	}
	find := h.names.find.Load()
	if find == nil {
		return slog.Attr{}, false
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "tenant" {
			name = slog.String("app", (*find)(db.ID(a.Value.String())))
		}
		return name.Key == ""
	})
	return name, name.Key != "" && name.Value.String() != ""
}

// Enabled implements [slog.Handler]. The level is checked here because an exporting handler has none of its own.
func (h correlatingHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level && h.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler]. While the database does not work, the lines about what fails because of that are at
// debug level: the database's own line is the one to read, and others would be written several times a second.
func (h correlatingHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn && isConsequence(r) {
		if h.level > slog.LevelDebug {
			return nil
		}
		r = r.Clone()
		r.Level = slog.LevelDebug
	}
	details := contextAttrs(ctx)
	if name, ok := h.nameAttr(r); ok {
		details = append([]slog.Attr{name}, details...) // before the context's, which may be about another app
	}
	if len(details) > 0 {
		var array [24]string // on the stack: every request writes a line
		written := append(array[:0], h.keys...)
		r.Attrs(func(a slog.Attr) bool { written = append(written, a.Key); return true })
		r = r.Clone()
		for _, a := range details {
			// The record's own attribute is more specific than the context's.
			if !slices.Contains(written, a.Key) {
				r.AddAttrs(a)
				written = append(written, a.Key)
			}
		}
	}
	return h.Handler.Handle(ctx, r)
}

// isConsequence reports whether r is about an error that an outage of the database has caused. The line about the outage
// itself has the plain cause.
func isConsequence(r slog.Record) (found bool) {
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		found = ok && db.IsOutage(err)
		return !found
	})
	return found
}

// WithAttrs implements [slog.Handler]. slices.Clip keeps handlers that were derived from the same one from sharing an
// array of keys.
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

// runKey is the context key of a runInfo; executeWithSpan sets it. It belongs to the trace: only contextAttrs reads it,
// for log lines that any package writes, and slog passes nothing but the context to a handler.
type runKey struct{}

// runInfo identifies the run that a log record belongs to, by the name of its app and the id of its task.
type runInfo struct{ app, task string }

// contextAttrs returns the attributes that identify the request, run and trace of ctx.
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
