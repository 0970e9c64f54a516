package amount

import (
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"strings"
)

// Money is an amount in nano-units, 10⁻⁹ of a currency. The currency is a separate field of the struct that has the
// amount.
type Money int64

// Add returns m + n, at most the largest value that fits.
func (m Money) Add(n Money) Money { return Money(Add(int64(m), int64(n))) }

// Charge returns n × amount ÷ per in nano-units, rounded up, so that a quantity that has a price never costs 0.
// It requires per > 0. The product has 128 bits; a result that does not fit 64 bits becomes the largest value.
func Charge(n int64, amount Money, per int64) Money {
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

var currencyPattern = regexp.MustCompile(`^[A-Z]{3}$`)

// IsCurrency reports whether s has the form of an alphabetic code of ISO 4217, such as USD. It does not check that the
// currency exists.
func IsCurrency(s string) bool { return currencyPattern.MatchString(s) }

// Decimal returns the amount in whole units of its currency, with two to nine decimals as needed, such as 12.50.
func (m Money) Decimal() string {
	sign, n := "", uint64(m)
	// The conversion to uint64 is right for the smallest int64 as well, whose negative does not fit.
	if m < 0 {
		sign, n = "-", uint64(-m)
	}
	const unit = 1_000_000_000
	decimals := fmt.Sprintf("%09d", n%unit)
	return fmt.Sprintf("%s%d.%s%s", sign, n/unit, decimals[:2], strings.TrimRight(decimals[2:], "0"))
}
