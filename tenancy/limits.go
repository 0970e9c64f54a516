package tenancy

import (
	"cmp"
	"slices"
)

// Limits are what an app may take of the house that all share. A zero field stands
// for what the app's plan says, and where that says nothing for the default named beside it.
type Limits struct {
	Weight             int64 // runs in each of its turns at the queue; 1
	MaxConcurrentTasks int64 // runs at work at a time, in all processes together; none
	QueueDepth         int64 // runs that wait for a worker; 10,000
	Rates              []Rate
}

// equalTo reports whether l and m say the same.
func (l Limits) equalTo(m Limits) bool {
	return l.Weight == m.Weight && l.MaxConcurrentTasks == m.MaxConcurrentTasks && l.QueueDepth == m.QueueDepth && slices.Equal(l.Rates, m.Rates)
}

// The bounds of limits, and what holds where nothing is said.
const (
	defaultWeight     = 1
	defaultQueueDepth = 10_000
	maxWeight         = 100
	maxConcurrent     = 1_000_000
	maxQueueDepth     = 1_000_000
)

// WithDefaults returns l with the defaults filled in. Without a limit MaxConcurrentTasks stays 0.
func (l Limits) WithDefaults() Limits {
	l.Weight, l.QueueDepth = cmp.Or(l.Weight, defaultWeight), cmp.Or(l.QueueDepth, defaultQueueDepth)
	return l
}

// CheckBounds says what is wrong with l; prefix goes before the names of its fields.
func (l Limits) CheckBounds(prefix string) error {
	for _, f := range []struct {
		name    string
		n, most int64
	}{{"weight", l.Weight, maxWeight}, {"max_concurrent_tasks", l.MaxConcurrentTasks, maxConcurrent}, {"queue_depth", l.QueueDepth, maxQueueDepth}} {
		if f.n < 0 || f.n > f.most {
			return invalidField(prefix+f.name, "must be 0, which stands for the default, to %d", f.most)
		}
	}
	return checkRates(prefix+"rate", l.Rates)
}

// LimitsChange says which limits change. What is nil stays as it is.
type LimitsChange struct {
	Weight             *int64 `json:"weight,omitempty"`
	MaxConcurrentTasks *int64 `json:"max_concurrent_tasks,omitempty"`
	QueueDepth         *int64 `json:"queue_depth,omitempty"`
	// Rates are all there are then; empty and not nil: none.
	Rates []Rate `json:"rate,omitzero"`
}

// applyTo returns l with the changes made.
func (c LimitsChange) applyTo(l Limits) (Limits, error) {
	for _, f := range []struct{ from, to *int64 }{
		{c.Weight, &l.Weight}, {c.MaxConcurrentTasks, &l.MaxConcurrentTasks}, {c.QueueDepth, &l.QueueDepth},
	} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if c.Rates != nil {
		l.Rates = slices.Clone(c.Rates)
	}
	return l, l.CheckBounds("limits.")
}
