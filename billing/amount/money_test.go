package amount_test

import (
	"testing"

	"stoa/billing/amount"
)

func TestDecimal(t *testing.T) {
	t.Parallel()
	for amount, want := range map[amount.Money]string{
		0: "0.00", 1: "0.000000001", 1_500_000_000: "1.50", 12_345_678_901: "12.345678901", -20_000_000: "-0.02", -1 << 63: "-9223372036.854775808",
	} {
		if got := amount.Decimal(); got != want {
			t.Errorf("%d: %s, want %s", amount, got, want)
		}
	}
}
