package amount_test

import (
	"testing"

	"stoa/billing/amount"
)

func TestDecimal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		m              amount.Money
		currency, want string
	}{
		{0, "USD", "0.00"}, {1, "USD", "0.000000001"}, {1_500_000_000, "USD", "1.50"}, {12_345_678_901, "", "12.345678901"}, {-20_000_000, "EUR", "-0.02"},
		{-1 << 63, "USD", "-9223372036.854775808"}, {1_000_000_000_000, "JPY", "1000"}, {-1_500_000_000, "JPY", "-1.5"}, {0, "JPY", "0"}, {0, "KWD", "0.000"},
		{1_500_000_000, "KWD", "1.500"}, {0, "CLF", "0.0000"},
	} {
		if got := tt.m.Decimal(tt.currency); got != tt.want {
			t.Errorf("%d %s: %s, want %s", tt.m, tt.currency, got, tt.want)
		}
	}
}

func TestParseDecimal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]amount.Money{
		"0": 0, "12.5": 12_500_000_000, "-0.02": -20_000_000, "0.000000001": 1, "9223372036.854775807": 1<<63 - 1, "-9223372036.854775808": -1 << 63,
	} {
		if got, err := amount.ParseDecimal(text); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", ".", "1.", ".5", "-", "--1", "+1", "1,50", "1e3", " 1", "0.0000000001", "9223372036.854775808"} {
		if got, err := amount.ParseDecimal(text); err == nil {
			t.Errorf("%q is accepted as %d", text, got)
		}
	}
}

func TestRound(t *testing.T) {
	t.Parallel()
	tests := []struct {
		currency   string
		from, want amount.Money
	}{
		{"USD", 4_999_999, 0}, {"USD", 5_000_000, 10_000_000}, {"USD", -5_000_000, 0}, {"USD", -5_000_001, -10_000_000}, {"USD", 1_234_567_890, 1_230_000_000},
		{"JPY", 1_499_999_999, 1_000_000_000}, {"JPY", 1_500_000_000, 2_000_000_000}, {"KWD", 1_499_999, 1_000_000},
		{"USD", 1<<63 - 1, 9_223_372_036_850_000_000}, {"USD", -1 << 63, -9_223_372_036_850_000_000},
	}
	for _, tt := range tests {
		if got := tt.from.Round(amount.MinorUnit(tt.currency)); got != tt.want {
			t.Errorf("%d in %s: %d, want %d", tt.from, tt.currency, got, tt.want)
		}
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		percent string
		net     amount.Money
		want    amount.Money
	}{
		{"19", 10_000_000_000, 1_900_000_000}, {"8.875", 1_000_000_000, 90_000_000}, {"7", 500_000_000, 40_000_000}, {"0.0001", 1_000_000_000, 0},
		{"100", 9_223_372_036_850_000_000, 9_223_372_036_850_000_000},
	}
	for _, tt := range tests {
		r, err := amount.ParsePercent(tt.percent)
		if err != nil || r.Percent() != tt.percent {
			t.Errorf("%s percent is %s, %v", tt.percent, r.Percent(), err)
		}
		if got := r.TaxOf(tt.net, amount.MinorUnit("USD")); got != tt.want {
			t.Errorf("%s percent of %d: %d, want %d", tt.percent, tt.net, got, tt.want)
		}
	}
	for _, text := range []string{"0", "-1", "100.0001", "19%", "0.00001"} {
		if _, err := amount.ParsePercent(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
