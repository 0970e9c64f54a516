package metrics

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/metric"
)

// Info describes a metric under the name that Prometheus shows. docs/metrics.md is generated from the list of all
// (TestMetricsPage of cmd/stoa).
type Info struct {
	Name, Kind, Help string
	Labels           []string
}

// intCounter is a counter of whole numbers.
type intCounter = metric.Int64Counter

// instruments defines the metrics of a process and lists what it has defined. It is used by one goroutine at a time.
type instruments struct {
	meter metric.Meter
	infos []Info
	err   error // the first error of creating an instrument, so that the many definitions need no error handling of their own
}

// addInfo adds a metric to the list and keeps the first error.
func (i *instruments) addInfo(name, kind, help string, err error, labels ...string) {
	i.err = cmp.Or(i.err, err)
	i.infos = append(i.infos, Info{name, kind, help, labels})
}

// newCounter defines a counter. The exporter appends _total to its name.
func (i *instruments) newCounter(name, help string, labels ...string) intCounter {
	c, err := i.meter.Int64Counter(name, metric.WithDescription(help))
	i.addInfo(name+"_total", "counter", help, err, labels...)
	return c
}

// newFloatCounter is newCounter for amounts that are not whole numbers.
func (i *instruments) newFloatCounter(name, help string, labels ...string) metric.Float64Counter {
	c, err := i.meter.Float64Counter(name, metric.WithDescription(help))
	i.addInfo(name+"_total", "counter", help, err, labels...)
	return c
}

// unitSuffixes are what the Prometheus exporter appends to a name for a unit.
var unitSuffixes = map[string]string{"s": "_seconds", "By": "_bytes"}

// newHistogram defines a histogram with explicit upper bounds of its buckets.
func (i *instruments) newHistogram(name, unit, help string, bounds []float64, labels ...string) metric.Float64Histogram {
	h, err := i.meter.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(help), metric.WithExplicitBucketBoundaries(bounds...))
	i.addInfo(name+unitSuffixes[unit], "histogram", help, err, labels...)
	return h
}

// observeFunc reports the present values of a metric by calling show once for each set of labels. It runs on the
// goroutine of the reader.
type observeFunc func(ctx context.Context, show func(n float64, labels ...metric.ObserveOption))

// newGauge defines a gauge whose value is computed when it is read.
func (i *instruments) newGauge(name, unit, help string, read observeFunc, labels ...string) {
	_, err := i.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help), metric.WithFloat64Callback(newFloatCallback(read)))
	i.addInfo(name+unitSuffixes[unit], "gauge", help, err, labels...)
}

// newObservedCounter defines a counter whose total is kept elsewhere and read by the callback. The total must never
// decrease.
func (i *instruments) newObservedCounter(name, unit, help string, read observeFunc, labels ...string) {
	_, err := i.meter.Float64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help), metric.WithFloat64Callback(newFloatCallback(read)))
	i.addInfo(name+unitSuffixes[unit]+"_total", "counter", help, err, labels...)
}

// newFloatCallback adapts an observeFunc to OpenTelemetry.
func newFloatCallback(read observeFunc) metric.Float64Callback {
	return func(ctx context.Context, o metric.Float64Observer) error {
		read(ctx, o.Observe)
		return nil
	}
}

// observeInt returns the observeFunc of a single value without labels.
func observeInt(read func() int64) observeFunc {
	return func(_ context.Context, show func(float64, ...metric.ObserveOption)) { show(float64(read())) }
}
