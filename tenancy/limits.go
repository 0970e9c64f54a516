package tenancy

import (
	"cmp"
	"slices"

	"stoa/agentsvc"
)

// Limits bound an app's use of the shared installation. A zero field stands for the limit of the app's plan, and if the
// plan sets none for the default. See docs/limits.md.
type Limits struct {
	// Weight is how many runs the app gets in each round of the queue's fair share; 1.
	Weight int64
	// MaxConcurrentTasks is how many runs may execute at a time in all processes together; unlimited.
	MaxConcurrentTasks int64
	// QueueDepth is how many runs may wait for a worker; 10,000.
	QueueDepth int64
	// Rates are the operator's rate limits. They apply in addition to those in the app's configuration.
	Rates []Rate
}

// equalTo reports whether l and m are equal; the order of the rates counts.
func (l Limits) equalTo(m Limits) bool {
	return l.Weight == m.Weight && l.MaxConcurrentTasks == m.MaxConcurrentTasks && l.QueueDepth == m.QueueDepth && slices.Equal(l.Rates, m.Rates)
}

// The defaults of limits, and the largest values that may be set.
const (
	defaultWeight     = 1
	defaultQueueDepth = 10_000
	maxWeight         = 100
	maxConcurrent     = 1_000_000
	maxQueueDepth     = 1_000_000
)

// WithDefaults returns l with the defaults in place of zero fields. MaxConcurrentTasks stays 0, which means unlimited.
func (l Limits) WithDefaults() Limits {
	l.Weight, l.QueueDepth = cmp.Or(l.Weight, defaultWeight), cmp.Or(l.QueueDepth, defaultQueueDepth)
	return l
}

// CheckBounds returns an error with [agentsvc.CodeInvalid] for the first field outside its bounds; prefix precedes the
// field's name.
func (l Limits) CheckBounds(prefix string) error {
	for _, f := range []struct {
		name    string
		n, most int64
	}{{"weight", l.Weight, maxWeight}, {"max_concurrent_tasks", l.MaxConcurrentTasks, maxConcurrent}, {"queue_depth", l.QueueDepth, maxQueueDepth}} {
		if f.n < 0 || f.n > f.most {
			return agentsvc.NewInvalidError(prefix+f.name, "must be 0, which stands for the default, to %d", f.most)
		}
	}
	return checkRates(prefix+"rate", l.Rates)
}

// LimitsChange is a change of limits. A nil field leaves the limit as it is; a pointer to 0 restores the default.
type LimitsChange struct {
	Weight             *int64
	MaxConcurrentTasks *int64
	QueueDepth         *int64
	// Rates, if not nil, replace all rates; an empty slice removes them.
	Rates []Rate
}

// applyTo returns l with the change applied, or an error with [agentsvc.CodeInvalid] if the result is out of bounds.
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
