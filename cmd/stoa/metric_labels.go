package main

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metricLabels are those of a measurement; one without a value is left out. The last is the app's.
type metricLabels [5]metricLabel

type metricLabel struct{ key, value string }

// maxAttributeSets bounds the sets that are kept, far above what the bounds of labels allow at a time.
const maxAttributeSets = 20_000

// attributeSets keeps labels in the form in which they are counted, since putting them in order costs more than counting.
type attributeSets struct {
	mu      sync.RWMutex
	options map[metricLabels]metric.MeasurementOption
}

func (s *attributeSets) optionFor(l metricLabels) metric.MeasurementOption {
	s.mu.RLock()
	set := s.options[l]
	s.mu.RUnlock()
	if set != nil {
		return set
	}
	var attrs []attribute.KeyValue
	for _, one := range l {
		if one.value != "" {
			attrs = append(attrs, attribute.String(one.key, one.value))
		}
	}
	set = metric.WithAttributeSet(attribute.NewSet(attrs...))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.options == nil || len(s.options) >= maxAttributeSets {
		s.options = map[metricLabels]metric.MeasurementOption{}
	}
	s.options[l] = set
	return set
}
