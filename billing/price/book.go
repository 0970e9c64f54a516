package price

import (
	"cmp"
	"slices"
	"time"

	"stoa/billing/amount"
)

// Book is all versions of the price book. It is immutable; [Service] replaces it as a whole. A nil book has no
// prices.
type Book struct {
	// versions are sorted by Effective, latest first.
	versions []Version
	// defaultCurrency is that of the version created first, in which apps are charged whose plan names none.
	defaultCurrency string
	// ratesByVersion has an entry for each version, by its name.
	ratesByVersion map[string]*rateTable
}

// Usage is what has a price: quantities of one kind that were used at a time.
type Usage struct {
	Kind amount.Kind
	// At is when it was used; for a model call when the call began. It selects the version, the window of a budget and
	// the month of an invoice.
	At time.Time
	// Provider and Model are set for [amount.ModelCall] and [amount.Embedding].
	Provider string
	Model    string
	amount.Quantities
}

// Price is the price of usage by the version that was in force when it was used.
type Price struct {
	// Cost is what the platform pays, Charge what the app pays, both in nano-units of Currency.
	Cost     amount.Money
	Charge   amount.Money
	Currency string
	// Version is "" if none was in force; then Cost and Charge are 0.
	Version string
	// Unpriced is set if the version in force has charges but none for a part of it. Rows of earlier versions have it
	// for a missing cost as well.
	Unpriced bool
}

// rateTable is an index of the prices of a version.
type rateTable struct {
	// itemsByMeter has the key kind, meter and model, where model is "" for patterns. The most specific item comes
	// first.
	itemsByMeter map[[3]string][]Item
	// hasCharges is set if the version has any charge. One that has none at all is not incomplete: it charges nothing.
	hasCharges bool
}

// newPriceBook indexes versions, which must be sorted by Effective, latest first.
func newPriceBook(versions []Version) *Book {
	b := &Book{versions: versions, ratesByVersion: map[string]*rateTable{}}
	if len(versions) > 0 {
		b.defaultCurrency = slices.MinFunc(versions, func(x, y Version) int {
			return cmp.Or(x.CreatedAt.Compare(y.CreatedAt), cmp.Compare(x.Version, y.Version))
		}).Currency
	}
	for _, v := range versions {
		r := &rateTable{itemsByMeter: map[[3]string][]Item{}}
		for _, it := range v.Items {
			key := [3]string{it.Kind, it.Meter, it.Model}
			if isPattern(it.Model) {
				key[2] = ""
			}
			r.itemsByMeter[key] = append(r.itemsByMeter[key], it)
			r.hasCharges = r.hasCharges || it.Kind == Charge
		}
		for _, items := range r.itemsByMeter {
			slices.SortStableFunc(items, func(x, y Item) int {
				return cmp.Or(cmp.Compare(patternSpecificity(y.Model), patternSpecificity(x.Model)), cmp.Compare(patternSpecificity(y.Provider), patternSpecificity(x.Provider)))
			})
		}
		b.ratesByVersion[v.Version] = r
	}
	return b
}

// HasCurrency reports whether there is a version in currency.
func (b *Book) HasCurrency(currency string) bool {
	return slices.ContainsFunc(b.versions, func(v Version) bool { return v.Currency == currency })
}

// HasVersion reports whether there is a version of that name.
func (b *Book) HasVersion(version string) bool {
	_, ok := b.ratesByVersion[version]
	return ok
}

// versionAt returns the version in force at a time, among those in currency, and whether there is one. An empty
// currency means the default one.
func (b *Book) versionAt(at time.Time, currency string) (Version, bool) {
	if b == nil {
		return Version{}, false
	}
	currency = cmp.Or(currency, b.defaultCurrency)
	for _, v := range b.versions {
		if !v.Effective.After(at) && v.Currency == currency {
			return v, true
		}
	}
	return Version{}, false
}

// findRate returns the most specific price of a meter for a model, and whether there is one. The model's specificity
// counts before the provider's. An exact model name precedes every pattern, so its items are looked up first.
func (r *rateTable) findRate(kind, meter, provider, model string) (Item, bool) {
	for _, name := range []string{model, ""} {
		for _, it := range r.itemsByMeter[[3]string{kind, meter, name}] {
			if matchesPattern(it.Provider, provider) && matchesPattern(it.Model, model) {
				return it, true
			}
		}
	}
	return Item{}, false
}

// PriceUsage prices usage in currency or, if that is "", in the default one. Cache tokens without a price of their own
// cost as much as other input tokens, reasoning tokens as much as other output.
func (b *Book) PriceUsage(currency string, u Usage) Price {
	// Only model calls and embeddings must have a price; an operator need not price tool calls, runs or storage.
	metered := u.Kind == amount.ModelCall || u.Kind == amount.Embedding
	v, ok := b.versionAt(u.At, currency)
	if !ok {
		return Price{Unpriced: metered}
	}
	r := b.ratesByVersion[v.Version]
	w := Price{Currency: v.Currency, Version: v.Version}
	var complete bool
	w.Cost, _ = r.sumPrice(Cost, u)
	w.Charge, complete = r.sumPrice(Charge, u)
	w.Unpriced = metered && r.hasCharges && !complete
	return w
}

// sumPrice returns the price of usage, and whether all of its tokens or texts have one, either each or by a flat price
// for the call.
func (r *rateTable) sumPrice(kind string, u Usage) (total amount.Money, priced bool) {
	rate := func(meter string) (Item, bool) { return r.findRate(kind, meter, u.Provider, u.Model) }
	var some, missing bool
	// add adds n at the price of the first of the meters that has one.
	add := func(n int64, meters ...string) {
		for _, m := range meters {
			if it, ok := rate(m); ok {
				some = true
				total = total.Add(amount.Charge(n, it.Amount, it.Per))
				return
			}
		}
		missing = missing || n > 0
	}
	add(max(0, amount.Subtract(amount.Subtract(u.InputTokens, u.CacheReadTokens), u.CacheWriteTokens)), "input_tokens")
	add(u.CacheReadTokens, "cache_read_tokens", "input_tokens")
	add(u.CacheWriteTokens, "cache_write_tokens", "input_tokens")
	add(max(0, amount.Subtract(u.OutputTokens, u.ReasoningTokens)), "output_tokens")
	add(u.ReasoningTokens, "reasoning_tokens", "output_tokens")
	add(u.Embeddings, "embeddings")
	tokens := some && !missing
	// A flat price for a call includes its tokens, so it counts as complete.
	if it, ok := rate("model_calls"); ok && u.ModelCalls > 0 {
		total, tokens = total.Add(amount.Charge(u.ModelCalls, it.Amount, it.Per)), true
	}
	add(u.ToolCalls, "tool_calls")
	add(u.Runs, "runs")
	if it, ok := rate("run_seconds"); ok {
		// The quantity is in microseconds, the price for Per seconds. Per is at most maxPer, so the product fits.
		total = total.Add(amount.Charge(u.RunTime.Microseconds(), it.Amount, it.Per*int64(time.Second/time.Microsecond)))
	}
	add(u.StoredBytes, "stored_bytes")
	return total, tokens
}

// roundingMargin is the largest difference, in nano-units, between the sum of the rounded-up prices of a call's token
// classes and the price of its tokens in one class: each class can add one.
const roundingMargin = 4

// MaxCharge returns an upper bound of the charge for a call, whatever the classes of its tokens turn out to be, and
// whether all classes have a price. Reservations use it: the classes are known only after the call.
func (b *Book) MaxCharge(currency, provider, model string, input, output int64, at time.Time) (amount.Money, bool) {
	v, ok := b.versionAt(at, currency)
	if !ok {
		return 0, false
	}
	r := b.ratesByVersion[v.Version]
	dearest := func(n int64, usual, other string) (most amount.Money, priced bool) {
		for _, m := range []string{usual, "cache_write_tokens", other} {
			if m == "cache_write_tokens" && usual != "input_tokens" {
				continue
			}
			if it, ok := r.findRate(Charge, m, provider, model); ok {
				most, priced = max(most, amount.Charge(n, it.Amount, it.Per)), priced || m == usual
			}
		}
		return most, priced
	}
	in, inPriced := dearest(input, "input_tokens", "cache_read_tokens")
	out, outPriced := dearest(output, "output_tokens", "reasoning_tokens")
	total, priced := in.Add(out), inPriced && outPriced
	if total > 0 {
		total = total.Add(roundingMargin)
	}
	if it, ok := r.findRate(Charge, "model_calls", provider, model); ok {
		total, priced = total.Add(amount.Charge(1, it.Amount, it.Per)), true
	}
	return total, priced
}

// MaxEmbeddingCharge returns the charge for texts that an embedder turns into vectors, and whether they have a price.
func (b *Book) MaxEmbeddingCharge(currency, provider, model string, texts int64, at time.Time) (amount.Money, bool) {
	v, ok := b.versionAt(at, currency)
	if !ok {
		return 0, false
	}
	it, ok := b.ratesByVersion[v.Version].findRate(Charge, "embeddings", provider, model)
	if !ok {
		return 0, false
	}
	return amount.Charge(texts, it.Amount, it.Per), true
}

// ChargeFor returns the charge of a version for the quantity of c in u. It is 0 if there is no such version or price.
func (b *Book) ChargeFor(version string, c amount.MeterClass, u Usage) amount.Money {
	if it, ok := b.ratesByVersion[version].findCharge(u, c.Meter, c.FallbackMeter); ok {
		return amount.Charge(c.Quantity(u.Quantities), it.Amount, amount.Multiply(it.Per, c.Unit))
	}
	return 0
}

// LacksCharge reports whether a version has charges but none for c in u, nor a flat one for the call. It is true if there is
// no such version.
func (b *Book) LacksCharge(version string, c amount.MeterClass, u Usage) bool {
	r := b.ratesByVersion[version]
	_, ok := r.findCharge(u, c.Meter, c.FallbackMeter, "model_calls")
	return !ok && (r == nil || r.hasCharges)
}

// findCharge returns the charge of the first of the meters that has one for the model of u, and whether there is one.
func (r *rateTable) findCharge(u Usage, meters ...string) (Item, bool) {
	if r == nil {
		return Item{}, false
	}
	for _, meter := range meters {
		if it, ok := r.findRate(Charge, meter, u.Provider, u.Model); ok && meter != "" {
			return it, true
		}
	}
	return Item{}, false
}

// ClampToLimits returns w with cost and charge at most MaxPrice.
func (p Price) ClampToLimits() Price {
	p.Cost, p.Charge = min(p.Cost, amount.MaxPrice), min(p.Charge, amount.MaxPrice)
	return p
}
