package metrics

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// labelSet are the labels of one measurement. A label without a value is left out. The last place is the app's
// (withAppLabel). It is an array so that it can be the key of a map.
type labelSet [5]label

// label is one label.
type label struct{ key, value string }

// maxAttributeSets bounds the label sets that are cached here and counted by the SDK. The bounds of topK keep the
// number of sets in use far below it.
const maxAttributeSets = 20_000

// attributeSets caches label sets in the encoded form that instruments take: sorting and encoding a set costs more
// than the count itself. The zero value is ready to use.
type attributeSets struct {
	mu      sync.RWMutex // guards options
	options map[labelSet]metric.MeasurementOption
}

// optionFor returns the encoded form of l. A full cache is emptied: that is cheaper than keeping an order of use, and
// it happens only when many names change.
func (s *attributeSets) optionFor(l labelSet) metric.MeasurementOption {
	set := s.findOption(l)
	if set != nil {
		return set
	}
	// A miss: two goroutines may both compute the set, which is harmless.
	var attrs []attribute.KeyValue
	for _, one := range l {
		if one.value != "" {
			attrs = append(attrs, attribute.String(one.key, one.value))
		}
	}
	set = metric.WithAttributeSet(attribute.NewSet(attrs...))
	s.mu.Lock()
	defer s.mu.Unlock()
	// nil is the zero value of attributeSets.
	if s.options == nil || len(s.options) >= maxAttributeSets {
		s.options = map[labelSet]metric.MeasurementOption{}
	}
	s.options[l] = set
	return set
}

// findOption returns the cached form of l, nil if there is none.
func (s *attributeSets) findOption(l labelSet) metric.MeasurementOption {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.options[l]
}
