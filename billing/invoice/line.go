package invoice

import (
	"encoding/json"
	"time"

	"stoa/billing/amount"
	"stoa/billing/price"
	"stoa/tenancy"
)

// Line is one position of an invoice: usage of a kind and model by the price book, a meter by the plan ([PlanLine]), or
// the plan's base fee ([BaseFeeLine]).
type Line struct {
	// Kind is that of the usage, or [PlanLine], or [BaseFeeLine].
	Kind         amount.Kind `json:"kind"`
	Provider     string      `json:"provider,omitempty"`
	Model        string      `json:"model,omitempty"`
	PriceVersion string      `json:"price_version,omitempty"`
	// Usage has the quantities by meter.
	Usage map[string]int64 `json:"usage,omitempty"`
	LateUse
	PriceGap
	// Estimated is set if the vendor did not report the quantities.
	Estimated bool `json:"estimated,omitempty"`

	// The fields of a line with Kind PlanLine. Amount is the price of Per units beyond Included; without an overage
	// price both are 0 and the prices of the book apply.
	Meter    string       `json:"meter,omitempty"`
	Quantity int64        `json:"quantity,omitempty"`
	Included int64        `json:"included,omitempty"`
	Per      int64        `json:"per,omitempty"`
	Amount   amount.Money `json:"amount,omitempty"`

	// Plan is the plan whose base fee it is, on a line with Kind BaseFeeLine.
	Plan string `json:"plan,omitempty"`

	// Currency is "" if no price was in force; then nothing is charged.
	Currency string       `json:"currency"`
	Charge   amount.Money `json:"charge"`
}

// PriceGap says which usage has no price.
type PriceGap struct {
	// Unpriced is set if neither the price book nor the plan has a price for the usage or a part of it. If it is charged in
	// part, UnpricedMeters are the meters without a price. Invoices of earlier versions do not have them.
	Unpriced       bool     `json:"unpriced,omitempty"`
	UnpricedMeters []string `json:"unpriced_meters,omitempty"`
}

// LateUse says of usage when it was used, if it was recorded after the invoice of that month was made.
type LateUse struct {
	Late bool `json:"late,omitempty"`
	// Month is the month in which late usage was used, such as 2026-10.
	Month string `json:"month,omitempty"`
}

const (
	// PlanLine is the kind of a line that charges a meter by the plan.
	PlanLine amount.Kind = "plan"
	// BaseFeeLine is the kind of a line that charges the base fee of a plan for the month.
	BaseFeeLine amount.Kind = "base_fee"
)

// MarshalJSON implements [json.Marshaler]: it adds the amounts as decimals.
func (l Line) MarshalJSON() ([]byte, error) {
	type fields Line
	out := struct {
		fields
		AmountDecimal string `json:"amount_decimal,omitempty"`
		ChargeDecimal string `json:"charge_decimal"`
	}{fields: fields(l), ChargeDecimal: l.Charge.Decimal(l.Currency)}
	if l.Per > 0 {
		out.AmountDecimal = l.Amount.Decimal(l.Currency)
	}
	return json.Marshal(out)
}

// tariff is the prices of an app at one moment: its plan and the price book.
type tariff struct {
	plan price.Plan
	// currency is that in which the app is charged, "" if there is none yet.
	currency string
	// zone is the plan's; months begin by it.
	zone *time.Location
	book *price.Book
}

// newTariff returns the tariff of an app by terms.
func newTariff(terms price.Terms, app tenancy.App) tariff {
	t := tariff{zone: time.UTC, book: terms.Book, currency: terms.CurrencyForPlan(app.Plan)}
	t.plan, _ = terms.Plan(app.Plan)
	if zone, err := time.LoadLocation(t.plan.Timezone); err == nil {
		t.zone = zone
	}
	return t
}

// planMeter returns the meter by which the plan charges c, or "" if the price book does.
func (t tariff) planMeter(c amount.MeterClass) string {
	for _, meter := range []string{c.Meter, c.FallbackMeter} {
		_, included := t.plan.Included[meter]
		_, over := t.plan.Overage[meter]
		if included || over {
			return meter
		}
	}
	return ""
}

// chargesByPlan reports whether the plan has an overage price for calls of a kind, so that they need none in the book: for
// each call, or for input and output.
func (t tariff) chargesByPlan(kind amount.Kind) bool {
	charges := func(meter string) bool {
		_, over := t.plan.Overage[meter]
		return t.currency != "" && over
	}
	if kind == amount.Embedding {
		return charges("embeddings")
	}
	return charges("model_calls") || charges("input_tokens") && charges("output_tokens")
}

// findUnpriced reports whether neither the price book nor the plan has a price for u or a part of it. If u is charged in part,
// meters are those without a price.
func (t tariff) findUnpriced(u invoiceSum) (unpriced bool, meters []string) {
	native := t.isNative(u)
	switch {
	case !u.Unpriced || native && t.chargesByPlan(u.Kind):
		return false, nil
	case u.Version != "" && !t.book.HasVersion(u.Version):
		return true, nil
	}
	charged := false
	for _, c := range amount.MeterClasses {
		if c.Kind != u.Kind || c.Meter == "model_calls" || c.Quantity(u.Quantities) == 0 {
			continue
		}
		_, over := t.plan.Overage[t.planMeter(c)]
		if t.book.LacksCharge(u.Version, c, u.Usage) && !(native && over && t.currency != "") {
			meters = append(meters, c.Meter)
		} else {
			charged = true
		}
	}
	if unpriced = len(meters) > 0; !charged {
		return unpriced, nil
	}
	return unpriced, meters
}

// isNative reports whether the plan's prices can apply to u: they are in the app's currency, and replace a part of a price
// that this book has.
func (t tariff) isNative(u invoiceSum) bool {
	return u.Currency == "" || u.Currency == t.currency && t.book.HasVersion(u.Version)
}

// invoiceLines returns the lines for usage. What the plan names is charged by the plan, the rest by the price book. If
// the plan charges a part of a row's classes, the line gets the price of the other classes, computed from their sums.
// Usage charged in another currency than the app's keeps its charge, and so does usage of an app that was moved here whose
// version of the price book is not: a part of its price cannot be computed. More usage never makes a line cheaper, which
// applyCredits relies on.
func (t tariff) invoiceLines(sums []invoiceSum) []Line {
	list := []Line{}
	var used amount.Quantities
	// booked is what the price book charges for the quantities of each plan meter.
	booked := map[string]amount.Money{}
	for _, u := range mergeSums(sums) {
		native := t.isNative(u)
		if native {
			used = used.Add(u.Quantities)
		}
		line := Line{
			Kind: u.Kind, Provider: u.Provider, Model: u.Model, PriceVersion: u.Version, Usage: map[string]int64{}, LateUse: LateUse{u.Late, u.Month},
			Estimated: u.Estimated, Currency: u.Currency, Charge: u.Charge,
		}
		line.Unpriced, line.UnpricedMeters = t.findUnpriced(u)
		var remaining amount.Money
		touched := false
		for _, c := range amount.MeterClasses {
			if c.Kind != u.Kind {
				continue
			}
			if n := c.Quantity(u.Quantities); n > 0 {
				line.Usage[c.Meter] = amount.CeilDiv(n, c.Unit)
			}
			charge := t.book.ChargeFor(u.Version, c, u.Usage)
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
func (t tariff) planLines(used amount.Quantities, booked map[string]amount.Money) []Line {
	var list []Line
	for _, m := range amount.MeterClasses {
		if t.planMeter(m) != m.Meter {
			continue
		}
		var n int64
		for _, c := range amount.MeterClasses {
			if t.planMeter(c) == m.Meter {
				n = amount.Add(n, c.Quantity(used))
			}
		}
		if n == 0 {
			continue
		}
		line := Line{Kind: PlanLine, Meter: m.Meter, Quantity: amount.CeilDiv(n, m.Unit), Included: t.plan.Included[m.Meter], Currency: t.currency}
		beyond := max(0, n-amount.Multiply(line.Included, m.Unit))
		over, ok := t.plan.Overage[m.Meter]
		switch {
		case t.currency == "":
			line.Unpriced = beyond > 0
		case ok:
			line.Per, line.Amount = over.Per, over.Amount
			line.Charge = amount.Charge(beyond, over.Amount, amount.Multiply(over.Per, m.Unit))
		default:
			// Without an overage price, the part beyond the included quantity costs its share of the book's charge.
			line.Charge = amount.Charge(beyond, booked[m.Meter], n)
		}
		list = append(list, line)
	}
	return list
}
