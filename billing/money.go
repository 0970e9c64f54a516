package billing

import (
	"math"
	"math/bits"
	"regexp"
)

// Money is whole nano-units, thousand millionths, of a currency.
type Money int64

// Add returns the sum, at most what fits.
func (m Money) Add(n Money) Money { return Money(addCapped(int64(m), int64(n))) }

// chargeAmount returns n × amount ÷ per, rounded up to a whole nano-unit so that what has a price never costs nothing. None is
// negative and per is not 0. What does not fit is the most that does.
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

// currencyPattern are named by three letters (ISO 4217).
var currencyPattern = regexp.MustCompile(`^[A-Z]{3}$`)
