package amount

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
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

// Decimal returns the amount in whole units of its currency, with the decimals of the currency's minor unit and up to nine
// as needed: 12.50 USD, 1000 JPY, 0.000 KWD. An unknown or empty currency has two.
func (m Money) Decimal(currency string) string {
	sign, n := "", uint64(m)
	// The conversion to uint64 is right for the smallest int64 as well, whose negative does not fit.
	if m < 0 {
		sign, n = "-", uint64(-m)
	}
	const unit = 1_000_000_000
	least := 0
	for minor := MinorUnit(currency); minor < unit; minor *= 10 {
		least++
	}
	decimals := fmt.Sprintf("%09d", n%unit)
	decimals = decimals[:least] + strings.TrimRight(decimals[least:], "0")
	if decimals != "" {
		decimals = "." + decimals
	}
	return fmt.Sprintf("%s%d%s", sign, n/unit, decimals)
}

// ParseDecimal returns the amount that a text such as 12.50 or -0.000000001 writes in whole units of its currency.
func ParseDecimal(text string) (Money, error) {
	n, err := parseFixed(text, 9)
	return Money(n), err
}

// parseFixed returns the number that text writes, as a multiple of 10 to the power of -digits.
func parseFixed(text string, digits int) (int64, error) {
	whole, fraction, pointed := strings.Cut(text, ".")
	unsigned := strings.TrimPrefix(whole, "-")
	if unsigned == "" || pointed && fraction == "" || strings.Trim(unsigned+fraction, "0123456789") != "" {
		return 0, errors.New("must be a decimal number such as 12.50")
	}
	if len(fraction) > digits {
		return 0, fmt.Errorf("must have at most %d decimals", digits)
	}
	n, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", digits-len(fraction)), 10, 64)
	if err != nil {
		return 0, errors.New("is too large")
	}
	return n, nil
}
