package main

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/metric"
)

//go:generate go test -run TestMetricsPage -update .

// figure describes a metric as Prometheus shows it.
type figure struct {
	name, kind, help string
	labels           []string
}

// counter counts in whole numbers.
type counter = metric.Int64Counter

func (m *meters) meter() metric.Meter { return m.provider.Meter("stoa") }

// note takes a figure into the list of all.
func (m *meters) note(name, kind, help string, err error, labels ...string) {
	m.wrong = cmp.Or(m.wrong, err)
	m.figures = append(m.figures, figure{name, kind, help, labels})
}

func (m *meters) counter(name, help string, labels ...string) counter {
	c, err := m.meter().Int64Counter(name, metric.WithDescription(help))
	m.note(name+"_total", "counter", help, err, labels...)
	return c
}

func (m *meters) floatCounter(name, help string, labels ...string) metric.Float64Counter {
	c, err := m.meter().Float64Counter(name, metric.WithDescription(help))
	m.note(name+"_total", "counter", help, err, labels...)
	return c
}

// units are the ends of names.
var units = map[string]string{"s": "_seconds"}

func (m *meters) histogram(name, unit, help string, bounds []float64, labels ...string) metric.Float64Histogram {
	h, err := m.meter().Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(help), metric.WithExplicitBucketBoundaries(bounds...))
	m.note(name+units[unit], "histogram", help, err, labels...)
	return h
}

// reading is what a gauge shows at present, once for each of its labels.
type reading func(ctx context.Context, show func(n float64, labels ...metric.ObserveOption))

// gauge makes a figure that is read when somebody asks.
func (m *meters) gauge(name, unit, help string, read reading, labels ...string) {
	_, err := m.meter().Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help), metric.WithFloat64Callback(seen(read)))
	m.note(name+units[unit], "gauge", help, err, labels...)
}

// total makes a counter that somebody else counts.
func (m *meters) total(name, unit, help string, read reading, labels ...string) {
	_, err := m.meter().Float64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help), metric.WithFloat64Callback(seen(read)))
	m.note(name+units[unit]+"_total", "counter", help, err, labels...)
}

func seen(read reading) metric.Float64Callback {
	return func(ctx context.Context, o metric.Float64Observer) error {
		read(ctx, o.Observe)
		return nil
	}
}

// plain is the reading of a gauge without labels.
func plain(read func() int64) reading {
	return func(_ context.Context, show func(float64, ...metric.ObserveOption)) { show(float64(read())) }
}
