package billing

import (
	"cmp"
	"slices"
	"time"
)

// PriceBook is every version of the price book. It never changes; a nil book names no price.
type PriceBook struct {
	versions        []PriceVersion // the one that comes into force last first
	defaultCurrency string         // that of the version made first: of whoever names none
	ratesByVersion  map[string]*rateTable
}

// UsagePrice is what usage costs, by the version of the price book that was in force when it was used.
type UsagePrice struct {
	Cost     Money // to the platform
	Charge   Money // to the app
	Currency string
	Version  string // "" = none was in force
	Unpriced bool   // the price book names no price for it
}

// rateTable are the prices of a version, looked up by what they are for.
type rateTable struct {
	itemsByMeter map[[3]string][]PriceItem // by kind, meter and the model's name, "" for patterns; the most specific first
	hasKind      map[string]bool           // that the version has prices of
}

func newPriceBook(versions []PriceVersion) *PriceBook {
	b := &PriceBook{versions: versions, ratesByVersion: map[string]*rateTable{}}
	if len(versions) > 0 {
		b.defaultCurrency = slices.MinFunc(versions, func(x, y PriceVersion) int {
			return cmp.Or(x.CreatedAt.Compare(y.CreatedAt), cmp.Compare(x.Version, y.Version))
		}).Currency
	}
	for _, v := range versions {
		r := &rateTable{itemsByMeter: map[[3]string][]PriceItem{}, hasKind: map[string]bool{}}
		for _, it := range v.Items {
			key := [3]string{it.Kind, it.Meter, it.Model}
			if isPattern(it.Model) {
				key[2] = ""
			}
			r.itemsByMeter[key] = append(r.itemsByMeter[key], it)
			r.hasKind[it.Kind] = true
		}
		for _, items := range r.itemsByMeter {
			slices.SortStableFunc(items, func(x, y PriceItem) int {
				return cmp.Or(cmp.Compare(patternSpecificity(y.Model), patternSpecificity(x.Model)), cmp.Compare(patternSpecificity(y.Provider), patternSpecificity(x.Provider)))
			})
		}
		b.ratesByVersion[v.Version] = r
	}
	return b
}

// VersionAt returns the version in force at a time, of those in currency or, where that is "", in that of the version made first.
func (b *PriceBook) VersionAt(at time.Time, currency string) (PriceVersion, bool) {
	if b == nil {
		return PriceVersion{}, false
	}
	currency = cmp.Or(currency, b.defaultCurrency)
	for _, v := range b.versions {
		if !v.Effective.After(at) && v.Currency == currency {
			return v, true
		}
	}
	return PriceVersion{}, false
}

// findRate returns the price of a meter for a model, and whether there is one: of the patterns that fit the one that says most of
// the model, then the one that says most of the provider.
func (r *rateTable) findRate(kind, meter, provider, model string) (PriceItem, bool) {
	for _, name := range []string{model, ""} {
		for _, it := range r.itemsByMeter[[3]string{kind, meter, name}] {
			if matchesPattern(it.Provider, provider) && matchesPattern(it.Model, model) {
				return it, true
			}
		}
	}
	return PriceItem{}, false
}

// PriceUsage prices a row. Tokens of the cache for which there is no price cost what other input does, those of reasoning what
// other output does.
func (b *PriceBook) PriceUsage(currency string, u Usage) UsagePrice {
	metered := u.Kind == ModelCall || u.Kind == Embedding
	v, ok := b.VersionAt(u.At, currency)
	if !ok {
		return UsagePrice{Unpriced: metered}
	}
	r := b.ratesByVersion[v.Version]
	w := UsagePrice{Currency: v.Currency, Version: v.Version}
	var cost, charge bool
	w.Cost, cost = r.sumPrice(Cost, u)
	w.Charge, charge = r.sumPrice(Charge, u)
	w.Unpriced = metered && (r.hasKind[Cost] && !cost || r.hasKind[Charge] && !charge)
	return w
}

// sumPrice adds up what a row costs, and reports whether all of its tokens, or texts, have a price: by themselves or by the call.
func (r *rateTable) sumPrice(kind string, u Usage) (total Money, priced bool) {
	rate := func(meter string) (PriceItem, bool) { return r.findRate(kind, meter, u.Provider, u.Model) }
	var some, missing bool
	add := func(n int64, meters ...string) {
		for _, m := range meters {
			if it, ok := rate(m); ok {
				some = true
				total = total.Add(chargeAmount(n, it.Amount, it.Per))
				return
			}
		}
		missing = missing || n > 0
	}
	add(max(0, subtractCapped(subtractCapped(u.InputTokens, u.CacheReadTokens), u.CacheWriteTokens)), "input_tokens")
	add(u.CacheReadTokens, "cache_read_tokens", "input_tokens")
	add(u.CacheWriteTokens, "cache_write_tokens", "input_tokens")
	add(max(0, subtractCapped(u.OutputTokens, u.ReasoningTokens)), "output_tokens")
	add(u.ReasoningTokens, "reasoning_tokens", "output_tokens")
	add(u.Embeddings, "embeddings")
	tokens := some && !missing
	if it, ok := rate("model_calls"); ok && u.ModelCalls > 0 { // a flat price: the tokens are included
		total, tokens = total.Add(chargeAmount(u.ModelCalls, it.Amount, it.Per)), true
	}
	add(u.ToolCalls, "tool_calls")
	add(u.Runs, "runs")
	if it, ok := rate("run_seconds"); ok {
		total = total.Add(chargeAmount(u.RunTime.Microseconds(), it.Amount, it.Per*int64(time.Second/time.Microsecond)))
	}
	add(u.StoredBytes, "stored_bytes")
	return total, tokens
}

// roundingMargin is by how many nano-units rounding can make the classes of a call's tokens dearer than their sum.
const roundingMargin = 4

// maxCharge returns what a call of so many tokens can be charged at most, whichever of the classes they turn out to be, and
// whether all of them have a price.
func (b *PriceBook) maxCharge(currency, provider, model string, input, output int64, at time.Time) (Money, bool) {
	v, ok := b.VersionAt(at, currency)
	if !ok {
		return 0, false
	}
	r := b.ratesByVersion[v.Version]
	dearest := func(n int64, usual, other string) (most Money, priced bool) {
		for _, m := range []string{usual, "cache_write_tokens", other} {
			if m == "cache_write_tokens" && usual != "input_tokens" {
				continue
			}
			if it, ok := r.findRate(Charge, m, provider, model); ok {
				most, priced = max(most, chargeAmount(n, it.Amount, it.Per)), priced || m == usual
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
		total, priced = total.Add(chargeAmount(1, it.Amount, it.Per)), true
	}
	return total, priced
}

// PriceUsage prices a row by the price book as this process knows it, in a currency or, where that is "", in that of the
// version made first.
func (s *Service) PriceUsage(currency string, u Usage) UsagePrice {
	return s.priceBook.Load().PriceUsage(currency, u)
}
