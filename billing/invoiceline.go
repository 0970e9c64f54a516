package billing

import (
	"math"
	"time"

	"stoa/tenancy"
)

// InvoiceLine is one position of an invoice: usage of a kind and model by the price book, or a meter by the plan
// ([PlanLine]).
type InvoiceLine struct {
	// Kind is that of the usage, or [PlanLine].
	Kind         Kind   `json:"kind"`
	Provider     string `json:"provider,omitempty"`
	Model        string `json:"model,omitempty"`
	PriceVersion string `json:"price_version,omitempty"`
	// Usage has the quantities by meter.
	Usage map[string]int64 `json:"usage,omitempty"`
	Late  bool             `json:"late,omitempty"`
	// Unpriced is set if the price book has no price for the usage.
	Unpriced bool `json:"unpriced,omitempty"`
	// Estimated is set if the vendor did not report the quantities.
	Estimated bool `json:"estimated,omitempty"`

	// The fields of a line with Kind PlanLine. Amount is the price of Per units beyond Included; without an overage
	// price both are 0 and the prices of the book apply.
	Meter    string `json:"meter,omitempty"`
	Quantity int64  `json:"quantity,omitempty"`
	Included int64  `json:"included,omitempty"`
	Per      int64  `json:"per,omitempty"`
	Amount   Money  `json:"amount,omitempty"`

	// Currency is "" if no price was in force; then nothing is charged.
	Currency string `json:"currency"`
	Charge   Money  `json:"charge"`
}

// PlanLine is the kind of a line that charges a meter by the plan.
const PlanLine Kind = "plan"

// tariff is the prices of an app at one moment: its plan and the price book.
type tariff struct {
	plan Plan
	// currency is that in which the app is charged, "" if there is none yet.
	currency string
	// zone is the plan's; months begin by it.
	zone *time.Location
	book *PriceBook
}

// tariffFor returns the tariff of an app from the cached plan and price book.
func (s *Service) tariffFor(app tenancy.App) tariff {
	t := tariff{zone: time.UTC, book: s.priceBook.Load()}
	t.plan, _ = s.CachedPlan(app.Plan)
	if zone, err := time.LoadLocation(t.plan.Timezone); err == nil {
		t.zone = zone
	}
	t.currency = s.currencyForPlan(app.Plan)
	return t
}

// meterClass is a class of usage that is charged by itself. The classes do not overlap: input_tokens here excludes the
// cache tokens that [Quantities.InputTokens] includes.
type meterClass struct {
	// fallbackMeter is the meter by whose price the class is charged if it has none of its own; "" for none.
	meter, fallbackMeter string
	kind                 Kind
	// unit is how many of what quantity returns are one unit of the meter: microseconds to a second for run_seconds,
	// else 1.
	unit     int64
	quantity func(Quantities) int64
}

var meterClasses = []meterClass{
	{"input_tokens", "", ModelCall, 1, func(q Quantities) int64 {
		return max(0, subtractCapped(subtractCapped(q.InputTokens, q.CacheReadTokens), q.CacheWriteTokens))
	}},
	{"cache_read_tokens", "input_tokens", ModelCall, 1, func(q Quantities) int64 { return q.CacheReadTokens }},
	{"cache_write_tokens", "input_tokens", ModelCall, 1, func(q Quantities) int64 { return q.CacheWriteTokens }},
	{"output_tokens", "", ModelCall, 1, func(q Quantities) int64 { return max(0, subtractCapped(q.OutputTokens, q.ReasoningTokens)) }},
	{"reasoning_tokens", "output_tokens", ModelCall, 1, func(q Quantities) int64 { return q.ReasoningTokens }},
	{"model_calls", "", ModelCall, 1, func(q Quantities) int64 { return q.ModelCalls }},
	{"tool_calls", "", ToolCall, 1, func(q Quantities) int64 { return q.ToolCalls }},
	{"runs", "", Run, 1, func(q Quantities) int64 { return q.Runs }},
	{"run_seconds", "", Run, int64(time.Second / time.Microsecond), func(q Quantities) int64 { return q.RunTime.Microseconds() }},
	{"embeddings", "", Embedding, 1, func(q Quantities) int64 { return q.Embeddings }},
	{"stored_bytes", "", Storage, 1, func(q Quantities) int64 { return q.StoredBytes }},
}

// chargeFor returns the charge for the quantity of c in u by the rates r, for the model of u. It is 0 if there is no
// price.
func (c meterClass) chargeFor(r *rateTable, u Usage) Money {
	if r == nil {
		return 0
	}
	for _, meter := range []string{c.meter, c.fallbackMeter} {
		if it, ok := r.findRate(Charge, meter, u.Provider, u.Model); ok && meter != "" {
			return chargeAmount(c.quantity(u.Quantities), it.Amount, multiplyCapped(it.Per, c.unit))
		}
	}
	return 0
}

// planMeter returns the meter by which the plan charges c, or "" if the price book does.
func (t tariff) planMeter(c meterClass) string {
	for _, meter := range []string{c.meter, c.fallbackMeter} {
		_, included := t.plan.Included[meter]
		_, over := t.plan.Overage[meter]
		if included || over {
			return meter
		}
	}
	return ""
}

// invoiceLines returns the lines for usage. What the plan names is charged by the plan, the rest by the price book. If
// the plan charges a part of a row's classes, the line gets the price of the other classes, computed from their sums.
// Usage charged in another currency than the app's keeps its charge. More usage never makes a line cheaper, which
// applyCredits relies on.
func (t tariff) invoiceLines(sums []invoiceSum) []InvoiceLine {
	list := []InvoiceLine{}
	var used Quantities
	// booked is what the price book charges for the quantities of each plan meter.
	booked := map[string]Money{}
	for _, u := range mergeSums(sums) {
		// The plan's prices are in the app's currency, and cannot apply to a charge in another one.
		native := u.Currency == "" || u.Currency == t.currency
		if native {
			used = used.addQuantities(u.Quantities)
		}
		line := InvoiceLine{
			Kind: u.Kind, Provider: u.Provider, Model: u.Model, PriceVersion: u.Version, Usage: map[string]int64{}, Late: u.late, Unpriced: u.Unpriced,
			Estimated: u.Estimated, Currency: u.Currency, Charge: u.Charge,
		}
		var remaining Money
		touched := false
		for _, c := range meterClasses {
			if c.kind != u.Kind {
				continue
			}
			if n := c.quantity(u.Quantities); n > 0 {
				line.Usage[c.meter] = ceilDiv(n, c.unit)
			}
			charge := c.chargeFor(t.book.ratesByVersion[u.Version], u.Usage)
			if meter := t.planMeter(c); meter != "" && native {
				touched = true
				booked[meter] = booked[meter].Add(charge)
			} else {
				remaining = remaining.Add(charge)
			}
		}
		if touched {
			line.Charge = remaining
		}
		list = append(list, line)
	}
	return append(list, t.planLines(used, booked)...)
}

// planLines returns a line for each meter that the plan charges. used are the quantities, booked their charge by the
// price book.
func (t tariff) planLines(used Quantities, booked map[string]Money) []InvoiceLine {
	var list []InvoiceLine
	for _, m := range meterClasses {
		if t.planMeter(m) != m.meter {
			continue
		}
		var n int64
		for _, c := range meterClasses {
			if t.planMeter(c) == m.meter {
				n = addCapped(n, c.quantity(used))
			}
		}
		if n == 0 {
			continue
		}
		line := InvoiceLine{Kind: PlanLine, Meter: m.meter, Quantity: ceilDiv(n, m.unit), Included: t.plan.Included[m.meter], Currency: t.currency}
		beyond := max(0, n-multiplyCapped(line.Included, m.unit))
		over, ok := t.plan.Overage[m.meter]
		switch {
		case t.currency == "":
			line.Unpriced = beyond > 0
		case ok:
			line.Per, line.Amount = over.Per, over.Amount
			line.Charge = chargeAmount(beyond, over.Amount, multiplyCapped(over.Per, m.unit))
		default:
			// Without an overage price, the part beyond the included quantity costs its share of the book's charge.
			line.Charge = chargeAmount(beyond, booked[m.meter], n)
		}
		list = append(list, line)
	}
	return list
}

// ceilDiv returns n ÷ unit, rounded up. n must not be negative.
func ceilDiv(n, unit int64) int64 { return n/unit + min(1, n%unit) }

// multiplyCapped returns a × b, at most the largest value that fits. Neither may be negative.
func multiplyCapped(a, b int64) int64 {
	if b != 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}
