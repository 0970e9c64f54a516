package main

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/metric"
)

//go:generate go test -run TestMetricsPage -update .

// metricInfo describes a metric as Prometheus shows it.
type metricInfo struct {
	name, kind, help string
	labels           []string
}

// intCounter counts in whole numbers.
type intCounter = metric.Int64Counter

func (m *metricsRecorder) meter() metric.Meter { return m.provider.Meter("stoa") }

// addInfo takes a figure into the list of all.
func (m *metricsRecorder) addInfo(name, kind, help string, err error, labels ...string) {
	m.defineErr = cmp.Or(m.defineErr, err)
	m.infos = append(m.infos, metricInfo{name, kind, help, labels})
}

func (m *metricsRecorder) newCounter(name, help string, labels ...string) intCounter {
	c, err := m.meter().Int64Counter(name, metric.WithDescription(help))
	m.addInfo(name+"_total", "counter", help, err, labels...)
	return c
}

func (m *metricsRecorder) newFloatCounter(name, help string, labels ...string) metric.Float64Counter {
	c, err := m.meter().Float64Counter(name, metric.WithDescription(help))
	m.addInfo(name+"_total", "counter", help, err, labels...)
	return c
}

// unitSuffixes are the ends of names.
var unitSuffixes = map[string]string{"s": "_seconds"}

func (m *metricsRecorder) newHistogram(name, unit, help string, bounds []float64, labels ...string) metric.Float64Histogram {
	h, err := m.meter().Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(help), metric.WithExplicitBucketBoundaries(bounds...))
	m.addInfo(name+unitSuffixes[unit], "histogram", help, err, labels...)
	return h
}

// observeFunc is what a gauge shows at present, once for each of its labels.
type observeFunc func(ctx context.Context, show func(n float64, labels ...metric.ObserveOption))

// newGauge makes a figure that is read when somebody asks.
func (m *metricsRecorder) newGauge(name, unit, help string, read observeFunc, labels ...string) {
	_, err := m.meter().Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help), metric.WithFloat64Callback(newFloatCallback(read)))
	m.addInfo(name+unitSuffixes[unit], "gauge", help, err, labels...)
}

// newObservedCounter makes a counter that somebody else counts.
func (m *metricsRecorder) newObservedCounter(name, unit, help string, read observeFunc, labels ...string) {
	_, err := m.meter().Float64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help), metric.WithFloat64Callback(newFloatCallback(read)))
	m.addInfo(name+unitSuffixes[unit]+"_total", "counter", help, err, labels...)
}

func newFloatCallback(read observeFunc) metric.Float64Callback {
	return func(ctx context.Context, o metric.Float64Observer) error {
		read(ctx, o.Observe)
		return nil
	}
}

// observeInt is the reading of a gauge without labels.
func observeInt(read func() int64) observeFunc {
	return func(_ context.Context, show func(float64, ...metric.ObserveOption)) { show(float64(read())) }
}
