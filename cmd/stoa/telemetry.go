package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"stoa/agentsvc/guardrail"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
)

// newLogger returns the process's logger and what closes its file.
func newLogger(s settings) (*slog.Logger, io.Closer, error) {
	var out io.WriteCloser = os.Stderr
	if s.logFile != "" {
		f, err := os.OpenFile(s.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return nil, nil, fmt.Errorf("logger.file: %w", err)
		}
		out = f
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return nil, nil, fmt.Errorf("--log-level: %w", err)
	}
	o := &slog.HandlerOptions{Level: level, AddSource: s.logFormat == "verbose"}
	var h slog.Handler = slog.NewTextHandler(out, o)
	if s.logFormat == "json" {
		h = slog.NewJSONHandler(out, o)
	}
	return slog.New(h), out, nil
}

// redisLog has the Redis client speak through the process's logger, in a low voice: it tells of every attempt to
// reach a server that is not there, and whoever uses it tells of the outage.
type redisLog struct{ log *slog.Logger }

// Printf logs what the client has to say of its connections.
func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.log.Debug("redis: " + fmt.Sprintf(format, args...))
}

// meters count what the process does, for Prometheus.
type meters struct {
	registry *prometheus.Registry
	provider *sdk.MeterProvider
	requests metric.Int64Counter
	verdicts metric.Int64Counter
	swept    metric.Int64Counter
	duration metric.Float64Histogram
	agents   *busiest
	rails    *busiest
	apps     *busiest // nil: nothing carries an app
}

// How many apps, and agents and guardrails of apps, have a label of their own; the rest is "other".
const (
	topApps   = 50
	topAgents = 200
	topRails  = 100
)

// newMeters returns the meters of a process. withApps has requests counted by app as well.
func newMeters(withApps bool) (*meters, error) {
	m := &meters{registry: prometheus.NewRegistry(), agents: newBusiest(topAgents), rails: newBusiest(topRails)}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(otelprom.WithRegisterer(m.registry), otelprom.WithoutTargetInfo(), otelprom.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	m.provider = sdk.NewMeterProvider(sdk.WithReader(exporter))
	meter := m.provider.Meter("stoa")
	if m.requests, err = meter.Int64Counter("service_requests", metric.WithDescription("Requests to agents.")); err != nil {
		return nil, err
	}
	if m.verdicts, err = meter.Int64Counter("stoa_guardrail_verdicts", metric.WithDescription("Checks of guardrails that struck.")); err != nil {
		return nil, err
	}
	if m.swept, err = meter.Int64Counter("stoa_retention_deleted", metric.WithDescription("What was deleted because it was kept long enough.")); err != nil {
		return nil, err
	}
	m.duration, err = meter.Float64Histogram("service_request_duration", metric.WithUnit("s"),
		metric.WithDescription("Time from a request's arrival to the end of its answer."),
		metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60))
	if withApps {
		m.apps = newBusiest(topApps)
	}
	return m, err
}

// observe counts one answered request.
func (m *meters) observe(o surface.Observation) {
	ctx := context.Background()
	m.duration.Record(ctx, o.Duration.Seconds(), metric.WithAttributes(
		attribute.String("route", o.Route), attribute.String("status", fmt.Sprintf("%dxx", o.Status/100))))
	if o.Agent == "" {
		return
	}
	if m.agents.label(o.App+"/"+o.Agent) == other {
		o.Agent = other
	}
	labels := []attribute.KeyValue{attribute.String("agent", o.Agent)}
	if m.apps != nil {
		labels = append(labels, attribute.String("app", m.apps.label(o.App)))
	}
	m.requests.Add(ctx, 1, metric.WithAttributes(labels...))
}

// judge counts a finding of an app's guardrail.
func (m *meters) judge(app string, f guardrail.Finding) {
	if m.rails.label(app+"/"+f.Guardrail) == other {
		f.Guardrail = other
	}
	labels := []attribute.KeyValue{
		attribute.String("guardrail", f.Guardrail), attribute.String("action", string(f.Action)), attribute.Bool("shadow", f.Shadow),
	}
	if m.apps != nil {
		labels = append(labels, attribute.String("app", m.apps.label(app)))
	}
	m.verdicts.Add(context.Background(), 1, metric.WithAttributes(labels...))
}

// sweep counts what was deleted of an app.
func (m *meters) sweep(n store.Swept) {
	for kind, n := range map[string]int64{"tasks": n.Tasks, "events": n.Events, "sessions": n.Sessions} {
		m.swept.Add(context.Background(), n, metric.WithAttributes(attribute.String("kind", kind)))
	}
}

// gauge registers a figure that is read when Prometheus asks.
func (m *meters) gauge(name, help string, read func() int64) error {
	meter := m.provider.Meter("stoa")
	_, err := meter.Int64ObservableGauge(name, metric.WithDescription(help), metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(read())
		return nil
	}))
	return err
}

func (m *meters) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// busiest gives the names it meets most often labels of their own and calls the rest "other", so that the number of
// labels stays bounded. Every ten minutes the labels go to whoever was busiest lately.
type busiest struct {
	mu      sync.Mutex
	max     int
	counts  map[string]int64
	labels  map[string]bool
	counted time.Time
}

// other is the label of whoever has none of their own.
const other = "other"

// maxCounted bounds the names that are counted between two rounds.
const maxCounted = 10_000

func newBusiest(limit int) *busiest {
	return &busiest{max: limit, counts: map[string]int64{}, labels: map[string]bool{}, counted: time.Now()}
}

func (b *busiest) label(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.counted) > 10*time.Minute {
		b.round()
	}
	if _, ok := b.counts[name]; ok || len(b.counts) < maxCounted {
		b.counts[name]++
	}
	if !b.labels[name] {
		if len(b.labels) >= b.max {
			return other
		}
		b.labels[name] = true
	}
	return name
}

// round hands the labels out anew and halves the counts, so that what was busy long ago fades.
func (b *busiest) round() {
	b.counted = time.Now()
	names := slices.SortedFunc(maps.Keys(b.counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(b.counts[y], b.counts[x]), cmp.Compare(x, y))
	})
	clear(b.labels)
	for _, n := range names[:min(len(names), b.max)] {
		b.labels[n] = true
	}
	for n, c := range b.counts {
		if b.counts[n] = c / 2; c < 2 {
			delete(b.counts, n)
		}
	}
}
