package billing

import (
	"math"
	"time"

	"stoa/tenancy"
)

// InvoiceLine is what an invoice charges for one thing: usage of a kind and model by the price book, or a meter by the plan.
type InvoiceLine struct {
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
	book     *PriceBook
}

// tariffFor returns that of an app, by its plan and the price book as they are now.
func (s *Service) tariffFor(app tenancy.App) tariff {
	t := tariff{zone: time.UTC, book: s.priceBook.Load()}
	t.plan, _ = s.CachedPlan(app.Plan)
	if zone, err := time.LoadLocation(t.plan.Timezone); err == nil {
		t.zone = zone
	}
	t.currency = s.currencyForPlan(app.Plan)
	return t
}

// meterClass is a meter as it is charged: what one class counts no other does.
type meterClass struct {
	meter, fallbackMeter string // fallbackMeter: the meter that it counts as where it has no price of its own
	kind                 Kind
	unit                 int64 // how many of what of returns make one of the meter
	quantity             func(Quantities) int64
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

// chargeFor is what n of c cost by r, for a model.
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

// planMeter returns the meter by which the plan charges c, "" where it leaves that to the price book.
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

// invoiceLines charges usage: by the plan what it names, all else by the price book. Where the plan names a part of what rows are
// charged for, the rest of them is priced as a whole. What was charged in another currency than the plan's stays as it is. With more usage no line gets cheaper.
func (t tariff) invoiceLines(sums []invoiceSum) []InvoiceLine {
	list := []InvoiceLine{}
	var used Quantities
	booked := map[string]Money{} // what the price book asks for a meter of the plan
	for _, u := range mergeSums(sums) {
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

// planLines charges the meters that the plan names.
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
			line.Charge = chargeAmount(beyond, booked[m.meter], n)
		}
		list = append(list, line)
	}
	return list
}

func ceilDiv(n, unit int64) int64 { return n/unit + min(1, n%unit) }

// multiplyCapped multiplies what is not negative, at most to what fits.
func multiplyCapped(a, b int64) int64 {
	if b != 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}
