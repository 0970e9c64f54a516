package amount

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// Rate is a part of an amount in millionths: 190000 is 19 percent. Its JSON is the percentage, such as 19 or 8.875.
type Rate int64

// maxRate is a rate of 100 percent.
const maxRate = 1_000_000

// ParsePercent returns the rate of a text such as 19 or 8.875, which is more than 0 and at most 100 percent.
func ParsePercent(text string) (Rate, error) {
	n, err := parseFixed(text, 4)
	if err == nil && (n <= 0 || n > maxRate) {
		err = errors.New("must be more than 0 and at most 100")
	}
	return Rate(n), err
}

// Percent returns the rate in percent, with up to four decimals as needed.
func (r Rate) Percent() string {
	const unit = maxRate / 100
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%04d", r/unit, r%unit), "0"), ".")
}

// MarshalJSON implements [json.Marshaler].
func (r Rate) MarshalJSON() ([]byte, error) { return []byte(r.Percent()), nil }

// UnmarshalJSON implements [json.Unmarshaler].
func (r *Rate) UnmarshalJSON(b []byte) error {
	var n json.Number
	err := json.Unmarshal(b, &n)
	if err == nil {
		*r, err = ParsePercent(n.String())
	}
	return err
}

// TaxOf returns the tax at rate r on net, rounded to a multiple of unit; a half is rounded up. net must be a multiple
// of unit and not negative.
func (r Rate) TaxOf(net, unit Money) Money {
	hi, lo := bits.Mul64(uint64(net/unit), uint64(r))
	lo, carry := bits.Add64(lo, maxRate/2, 0)
	// The quotient is at most net/unit, since the rate is at most 1; so it fits.
	q, _ := bits.Div64(hi+carry, lo, maxRate)
	return Money(q) * unit
}
