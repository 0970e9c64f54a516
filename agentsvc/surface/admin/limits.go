package admin

import "stoa/tenancy"

// rateBody is a rate limit that the operator sets for an app. Its fields are those of [tenancy.Rate] in the same order,
// so that one converts to the other.
type rateBody struct {
	// Per is what is counted together: app, agent or key.
	Per string `json:"per"`
	// Agent restricts a rate per agent to one agent; "" = each agent on its own.
	Agent string `json:"agent,omitempty"`
	// Type is count for requests or token for tokens of models.
	Type string `json:"type"`
	// Window is the calendar window, in UTC: minute, hour, day, week or month.
	Window string `json:"window"`
	Limit  int64  `json:"limit"`
}

// limitsRequest is a change of limits. A missing member leaves the limit as it is; 0 restores the default. Rates replace
// all rates.
type limitsRequest struct {
	Weight             *int64     `json:"weight,omitempty"`
	MaxConcurrentTasks *int64     `json:"max_concurrent_tasks,omitempty"`
	QueueDepth         *int64     `json:"queue_depth,omitempty"`
	Rates              []rateBody `json:"rate,omitzero"`
}

// toChange returns the change that the request asks for.
func (l limitsRequest) toChange() tenancy.LimitsChange {
	c := tenancy.LimitsChange{Weight: l.Weight, MaxConcurrentTasks: l.MaxConcurrentTasks, QueueDepth: l.QueueDepth}
	if l.Rates != nil {
		c.Rates = make([]tenancy.Rate, len(l.Rates))
	}
	for i, r := range l.Rates {
		c.Rates[i] = tenancy.Rate(r)
	}
	return c
}

// toReplacement returns the change that sets all limits: those of missing members to their defaults.
func (l limitsRequest) toReplacement() tenancy.LimitsChange {
	c := l.toChange()
	for _, n := range []**int64{&c.Weight, &c.MaxConcurrentTasks, &c.QueueDepth} {
		if *n == nil {
			*n = new(int64)
		}
	}
	if c.Rates == nil {
		c.Rates = []tenancy.Rate{}
	}
	return c
}

// newLimitsRequest returns the app's own limits as a request sets them.
func newLimitsRequest(l tenancy.Limits) limitsRequest {
	return limitsRequest{Weight: &l.Weight, MaxConcurrentTasks: &l.MaxConcurrentTasks, QueueDepth: &l.QueueDepth, Rates: newLimitsBody(l).Rates}
}

// newLimitsBody returns limits as responses show them; the list of rates is never null.
func newLimitsBody(l tenancy.Limits) limitsBody {
	b := limitsBody{Weight: l.Weight, MaxConcurrentTasks: l.MaxConcurrentTasks, QueueDepth: l.QueueDepth, Rates: make([]rateBody, len(l.Rates))}
	for i, r := range l.Rates {
		b.Rates[i] = rateBody(r)
	}
	return b
}
