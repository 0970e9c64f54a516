package billing

import (
	"cmp"
	"slices"
	"time"
)

// Book is every version of the price book. It never changes; a nil book names no price.
type Book struct {
	versions []Price // the one that comes into force last first
	currency string  // that of the version made first: of whoever names none
	rates    map[string]*rates
}

// Worth is what usage costs, by the version of the price book that was in force when it was used.
type Worth struct {
	Cost     Money // to the platform
	Charge   Money // to the app
	Currency string
	Version  string // "" = none was in force
	Unpriced bool   // the price book names no price for it
}

// rates are the prices of a version, looked up by what they are for.
type rates struct {
	items map[[3]string][]Item // by kind, meter and the model's name, "" for patterns; the most specific first
	kinds map[string]bool      // that the version has prices of
}

func newBook(versions []Price) *Book {
	b := &Book{versions: versions, rates: map[string]*rates{}}
	if len(versions) > 0 {
		b.currency = slices.MinFunc(versions, func(x, y Price) int {
			return cmp.Or(x.CreatedAt.Compare(y.CreatedAt), cmp.Compare(x.Version, y.Version))
		}).Currency
	}
	for _, v := range versions {
		r := &rates{items: map[[3]string][]Item{}, kinds: map[string]bool{}}
		for _, it := range v.Items {
			key := [3]string{it.Kind, it.Meter, it.Model}
			if pattern(it.Model) {
				key[2] = ""
			}
			r.items[key] = append(r.items[key], it)
			r.kinds[it.Kind] = true
		}
		for _, items := range r.items {
			slices.SortStableFunc(items, func(x, y Item) int {
				return cmp.Or(cmp.Compare(weight(y.Model), weight(x.Model)), cmp.Compare(weight(y.Provider), weight(x.Provider)))
			})
		}
		b.rates[v.Version] = r
	}
	return b
}

// At returns the version in force at a time, of those in currency or, where that is "", in that of the version made first.
func (b *Book) At(at time.Time, currency string) (Price, bool) {
	if b == nil {
		return Price{}, false
	}
	currency = cmp.Or(currency, b.currency)
	for _, v := range b.versions {
		if !v.Effective.After(at) && v.Currency == currency {
			return v, true
		}
	}
	return Price{}, false
}

// rate returns the price of a meter for a model, and whether there is one: of the patterns that fit the one that says most of
// the model, then the one that says most of the provider.
func (r *rates) rate(kind, meter, provider, model string) (Item, bool) {
	for _, name := range []string{model, ""} {
		for _, it := range r.items[[3]string{kind, meter, name}] {
			if matches(it.Provider, provider) && matches(it.Model, model) {
				return it, true
			}
		}
	}
	return Item{}, false
}

// Worth prices a row. Tokens of the cache for which there is no price cost what other input does, those of reasoning what
// other output does.
func (b *Book) Worth(currency string, u Usage) Worth {
	metered := u.Kind == ModelCall || u.Kind == Embedding
	v, ok := b.At(u.At, currency)
	if !ok {
		return Worth{Unpriced: metered}
	}
	r := b.rates[v.Version]
	w := Worth{Currency: v.Currency, Version: v.Version}
	var cost, charge bool
	w.Cost, cost = r.sum(Cost, u)
	w.Charge, charge = r.sum(Charge, u)
	w.Unpriced = metered && (r.kinds[Cost] && !cost || r.kinds[Charge] && !charge)
	return w
}

// sum adds up what a row costs, and reports whether all of its tokens, or texts, have a price: by themselves or by the call.
func (r *rates) sum(kind string, u Usage) (total Money, priced bool) {
	rate := func(meter string) (Item, bool) { return r.rate(kind, meter, u.Provider, u.Model) }
	var some, missing bool
	add := func(n int64, meters ...string) {
		for _, m := range meters {
			if it, ok := rate(m); ok {
				some = true
				total = total.Add(share(n, it.Amount, it.Per))
				return
			}
		}
		missing = missing || n > 0
	}
	add(max(0, less(less(u.InputTokens, u.CacheReadTokens), u.CacheWriteTokens)), "input_tokens")
	add(u.CacheReadTokens, "cache_read_tokens", "input_tokens")
	add(u.CacheWriteTokens, "cache_write_tokens", "input_tokens")
	add(max(0, less(u.OutputTokens, u.ReasoningTokens)), "output_tokens")
	add(u.ReasoningTokens, "reasoning_tokens", "output_tokens")
	add(u.Embeddings, "embeddings")
	tokens := some && !missing
	if it, ok := rate("model_calls"); ok && u.ModelCalls > 0 { // a flat price: the tokens are included
		total, tokens = total.Add(share(u.ModelCalls, it.Amount, it.Per)), true
	}
	add(u.ToolCalls, "tool_calls")
	add(u.Runs, "runs")
	if it, ok := rate("run_seconds"); ok {
		total = total.Add(share(u.RunTime.Microseconds(), it.Amount, it.Per*int64(time.Second/time.Microsecond)))
	}
	add(u.StoredBytes, "stored_bytes")
	return total, tokens
}

// slack is by how many nano-units rounding can make the classes of a call's tokens dearer than their sum.
const slack = 4

// most returns what a call of so many tokens can be charged at most, whichever of the classes they turn out to be, and
// whether all of them have a price.
func (b *Book) most(currency, provider, model string, input, output int64, at time.Time) (Money, bool) {
	v, ok := b.At(at, currency)
	if !ok {
		return 0, false
	}
	r := b.rates[v.Version]
	dearest := func(n int64, usual, other string) (most Money, priced bool) {
		for _, m := range []string{usual, "cache_write_tokens", other} {
			if m == "cache_write_tokens" && usual != "input_tokens" {
				continue
			}
			if it, ok := r.rate(Charge, m, provider, model); ok {
				most, priced = max(most, share(n, it.Amount, it.Per)), priced || m == usual
			}
		}
		return most, priced
	}
	in, inPriced := dearest(input, "input_tokens", "cache_read_tokens")
	out, outPriced := dearest(output, "output_tokens", "reasoning_tokens")
	total, priced := in.Add(out), inPriced && outPriced
	if total > 0 {
		total = total.Add(slack)
	}
	if it, ok := r.rate(Charge, "model_calls", provider, model); ok {
		total, priced = total.Add(share(1, it.Amount, it.Per)), true
	}
	return total, priced
}

// Worth prices a row by the price book as this process knows it, in a currency or, where that is "", in that of the
// version made first.
func (s *Service) Worth(currency string, u Usage) Worth { return s.book.Load().Worth(currency, u) }
