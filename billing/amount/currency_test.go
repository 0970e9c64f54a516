package amount_test

import (
	"strings"
	"testing"

	"golang.org/x/text/currency"

	"stoa/billing/amount"
)

// TestIsCurrency compares the codes with those of another list, and checks that a code with decimals of its own is known.
func TestIsCurrency(t *testing.T) {
	t.Parallel()
	// Codes that are newer than that list.
	newer := map[string]bool{"MRU": true, "SLE": true, "UYW": true, "VES": true, "VED": true, "XCG": true, "ZWG": true}
	known := 0
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			for c := 'A'; c <= 'Z'; c++ {
				code := string([]rune{a, b, c})
				if !amount.IsCurrency(code) {
					continue
				}
				known++
				if _, err := currency.ParseISO(code); err != nil && !newer[code] {
					t.Errorf("%s: %v", code, err)
				}
			}
		}
	}
	if known < 150 || known > 190 {
		t.Errorf("there are %d currencies", known)
	}
	for _, code := range strings.Fields("USD EUR JPY KWD CLF UYW CHF") {
		if !amount.IsCurrency(code) {
			t.Errorf("%s is no currency", code)
		}
	}
	for _, text := range []string{"", "usd", "XXX", "XTS", "ABC", "US", "USDX", "D U", "D\nA", "ZZZ"} {
		if amount.IsCurrency(text) {
			t.Errorf("%q is a currency", text)
		}
	}
}
