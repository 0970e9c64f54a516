package main

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// labels are those of a measurement; one without a value is left out. The last is the app's.
type labels [5]label

type label struct{ key, value string }

// maxSets bounds the sets that are kept, far above what the bounds of labels allow at a time.
const maxSets = 20_000

// sets keeps labels in the form in which they are counted, since putting them in order costs more than counting.
type sets struct {
	mu   sync.RWMutex
	kept map[labels]metric.MeasurementOption
}

func (s *sets) of(l labels) metric.MeasurementOption {
	s.mu.RLock()
	set := s.kept[l]
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
	if s.kept == nil || len(s.kept) >= maxSets {
		s.kept = map[labels]metric.MeasurementOption{}
	}
	s.kept[l] = set
	return set
}
