package billing_test

import (
	"testing"

	"stoa/billing"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

var actor = audit.Actor{Name: "operator"}

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
