package billing_test

import (
	"errors"
	"testing"

	"stoa/billing"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
)

const actor = "operator"

// openBilling returns the billing of d, without prices.
func openBilling(t *testing.T, d *db.DB) *billing.Service {
	t.Helper()
	s, err := billing.Open(t.Context(), d, nil, billing.Options{Log: usagetest.Log})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// openPriced returns the billing of d with the prices of [usagetest.AddPrices].
func openPriced(t *testing.T, d *db.DB) *billing.Service {
	t.Helper()
	s := openBilling(t, d)
	usagetest.AddPrices(t, s.Prices)
	return s
}

func requireNoErrors(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}
