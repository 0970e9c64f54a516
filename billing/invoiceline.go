package billing

import (
	"math"
	"time"

	"stoa/tenancy"
)

// Line is what an invoice charges for one thing: usage of a kind and model by the price book, or a meter by the plan.
type Line struct {
	Kind         Kind             `json:"kind"` // that of the usage, or plan
	Provider     string           `json:"provider,omitempty"`
	Model        string           `json:"model,omitempty"`
	PriceVersion string           `json:"price_version,omitempty"`
	Usage        map[string]int64 `json:"usage,omitempty"` // by meter
	Late         bool             `json:"late,omitempty"`
	Unpriced     bool             `json:"unpriced,omitempty"`  // the price book names no price for it
	Estimated    bool             `json:"estimated,omitempty"` // the vendor did not say how much it was

	// Of a meter by the plan. Amount is what Per of it cost beyond what is included; without, the prices of the book hold.
	Meter    string `json:"meter,omitempty"`
	Quantity int64  `json:"quantity,omitempty"`
	Included int64  `json:"included,omitempty"`
	Per      int64  `json:"per,omitempty"`
	Amount   Money  `json:"amount,omitempty"`

	Currency string `json:"currency"` // "" = no price was in force, and nothing is charged
	Charge   Money  `json:"charge"`
}

// PlanLine is the kind of a line that charges a meter by the plan.
const PlanLine Kind = "plan"

// tariff is what an app is charged by.
type tariff struct {
	plan     Plan
	currency string // of the plan's money, "" = there is none yet
	zone     *time.Location
	book     *Book
}

// tariff returns that of an app, by its plan and the price book as they are now.
func (s *Service) tariff(app tenancy.App) tariff {
	t := tariff{zone: time.UTC, book: s.book.Load()}
	t.plan, _ = s.Plan(app.Plan)
	if zone, err := time.LoadLocation(t.plan.Timezone); err == nil {
		t.zone = zone
	}
	t.currency = s.currency(app.Plan)
	return t
}

// class is a meter as it is charged: what one class counts no other does.
type class struct {
	meter, falls string // falls: the meter that it counts as where it has no price of its own
	kind         Kind
	unit         int64 // how many of what of returns make one of the meter
	of           func(Quantities) int64
}

var classes = []class{
	{"input_tokens", "", ModelCall, 1, func(q Quantities) int64 {
		return max(0, less(less(q.InputTokens, q.CacheReadTokens), q.CacheWriteTokens))
	}},
	{"cache_read_tokens", "input_tokens", ModelCall, 1, func(q Quantities) int64 { return q.CacheReadTokens }},
	{"cache_write_tokens", "input_tokens", ModelCall, 1, func(q Quantities) int64 { return q.CacheWriteTokens }},
	{"output_tokens", "", ModelCall, 1, func(q Quantities) int64 { return max(0, less(q.OutputTokens, q.ReasoningTokens)) }},
	{"reasoning_tokens", "output_tokens", ModelCall, 1, func(q Quantities) int64 { return q.ReasoningTokens }},
	{"model_calls", "", ModelCall, 1, func(q Quantities) int64 { return q.ModelCalls }},
	{"tool_calls", "", ToolCall, 1, func(q Quantities) int64 { return q.ToolCalls }},
	{"runs", "", Run, 1, func(q Quantities) int64 { return q.Runs }},
	{"run_seconds", "", Run, int64(time.Second / time.Microsecond), func(q Quantities) int64 { return q.RunTime.Microseconds() }},
	{"embeddings", "", Embedding, 1, func(q Quantities) int64 { return q.Embeddings }},
	{"stored_bytes", "", Storage, 1, func(q Quantities) int64 { return q.StoredBytes }},
}

// charge is what n of c cost by r, for a model.
func (c class) charge(r *rates, u Usage) Money {
	if r == nil {
		return 0
	}
	for _, meter := range []string{c.meter, c.falls} {
		if it, ok := r.rate(Charge, meter, u.Provider, u.Model); ok && meter != "" {
			return share(c.of(u.Quantities), it.Amount, times(it.Per, c.unit))
		}
	}
	return 0
}

// planned returns the meter by which the plan charges c, "" where it leaves that to the price book.
func (t tariff) planned(c class) string {
	for _, meter := range []string{c.meter, c.falls} {
		_, included := t.plan.Included[meter]
		_, over := t.plan.Overage[meter]
		if included || over {
			return meter
		}
	}
	return ""
}

// lines charges usage: by the plan what it names, all else by the price book. Where the plan names a part of what rows are
// charged for, the rest of them is priced as a whole. What was charged in another currency than the plan's stays as it is. With more usage no line gets cheaper.
func (t tariff) lines(sums []sum) []Line {
	list := []Line{}
	var used Quantities
	booked := map[string]Money{} // what the price book asks for a meter of the plan
	for _, u := range merged(sums) {
		own := u.Currency == "" || u.Currency == t.currency
		if own {
			used = used.plus(u.Quantities)
		}
		line := Line{
			Kind: u.Kind, Provider: u.Provider, Model: u.Model, PriceVersion: u.Version, Usage: map[string]int64{}, Late: u.late, Unpriced: u.Unpriced,
			Estimated: u.Estimated, Currency: u.Currency, Charge: u.Charge,
		}
		var rest Money
		touched := false
		for _, c := range classes {
			if c.kind != u.Kind {
				continue
			}
			if n := c.of(u.Quantities); n > 0 {
				line.Usage[c.meter] = ceil(n, c.unit)
			}
			charge := c.charge(t.book.rates[u.Version], u.Usage)
			if meter := t.planned(c); meter != "" && own {
				touched = true
				booked[meter] = booked[meter].Add(charge)
			} else {
				rest = rest.Add(charge)
			}
		}
		if touched {
			line.Charge = rest
		}
		list = append(list, line)
	}
	return append(list, t.planLines(used, booked)...)
}

// planLines charges the meters that the plan names.
func (t tariff) planLines(used Quantities, booked map[string]Money) []Line {
	var list []Line
	for _, m := range classes {
		if t.planned(m) != m.meter {
			continue
		}
		var n int64
		for _, c := range classes {
			if t.planned(c) == m.meter {
				n = more(n, c.of(used))
			}
		}
		if n == 0 {
			continue
		}
		line := Line{Kind: PlanLine, Meter: m.meter, Quantity: ceil(n, m.unit), Included: t.plan.Included[m.meter], Currency: t.currency}
		beyond := max(0, n-times(line.Included, m.unit))
		over, ok := t.plan.Overage[m.meter]
		switch {
		case t.currency == "":
			line.Unpriced = beyond > 0
		case ok:
			line.Per, line.Amount = over.Per, over.Amount
			line.Charge = share(beyond, over.Amount, times(over.Per, m.unit))
		default:
			line.Charge = share(beyond, booked[m.meter], n)
		}
		list = append(list, line)
	}
	return list
}

func ceil(n, unit int64) int64 { return n/unit + min(1, n%unit) }

// times multiplies what is not negative, at most to what fits.
func times(a, b int64) int64 {
	if b != 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}
