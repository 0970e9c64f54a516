package amount

import "regexp"

var currencyPattern = regexp.MustCompile(`^[A-Z]{3}$`)

// IsCurrency reports whether s has the form of an alphabetic code of ISO 4217, such as USD. It does not check that the
// currency exists.
func IsCurrency(s string) bool { return currencyPattern.MatchString(s) }

// minorUnits has the currencies whose smallest unit is not a hundredth (ISO 4217, list one).
var minorUnits = map[string]Money{
	"BIF": 1e9, "CLP": 1e9, "DJF": 1e9, "GNF": 1e9, "ISK": 1e9, "JPY": 1e9, "KMF": 1e9, "KRW": 1e9, "PYG": 1e9, "RWF": 1e9, "UGX": 1e9, "UYI": 1e9,
	"VND": 1e9, "VUV": 1e9, "XAF": 1e9, "XOF": 1e9, "XPF": 1e9,
	"BHD": 1e6, "IQD": 1e6, "JOD": 1e6, "KWD": 1e6, "LYD": 1e6, "OMR": 1e6, "TND": 1e6,
	"CLF": 1e5, "UYW": 1e5,
}

// MinorUnit returns the smallest amount that is paid in a currency: a cent of USD, a yen, a thousandth of KWD.
func MinorUnit(currency string) Money {
	if unit, ok := minorUnits[currency]; ok {
		return unit
	}
	return 1e7
}

// Round returns the multiple of unit that is nearest to m. Of two that are equally near it returns the larger one. A
// result that does not fit is rounded down.
func (m Money) Round(unit Money) Money {
	m = max(m, -maxSum) // the smallest int64 has no negative
	n := max(m, -m)
	down, rest := n-n%unit, 2*(n%unit)
	if (rest > unit || rest == unit && m > 0) && down <= maxSum-unit {
		down += unit
	}
	if m < 0 {
		return -down
	}
	return down
}
