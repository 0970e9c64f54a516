package billing

import (
	"math"
	"math/bits"
	"regexp"
)

// Money is an amount in nano-units, 10⁻⁹ of a currency. The currency is a separate field of the struct that has the
// amount.
type Money int64

// Add returns m + n, at most the largest value that fits.
func (m Money) Add(n Money) Money { return Money(addCapped(int64(m), int64(n))) }

// chargeAmount returns n × amount ÷ per in nano-units, rounded up, so that a quantity that has a price never costs 0.
// It requires per > 0. The product has 128 bits; a result that does not fit 64 bits becomes the largest value.
func chargeAmount(n int64, amount Money, per int64) Money {
	if n <= 0 || amount <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(n), uint64(amount))
	lo, carry := bits.Add64(lo, uint64(per)-1, 0)
	hi += carry
	if hi >= uint64(per) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(per))
	return Money(min(q, math.MaxInt64))
}

// currencyPattern matches the alphabetic codes of ISO 4217, such as USD. It does not check that the currency exists.
var currencyPattern = regexp.MustCompile(`^[A-Z]{3}$`)
