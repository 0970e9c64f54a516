package invoice_test

import (
	"testing"
	"time"

	"stoa/billing/invoice"
	"stoa/billing/ledger"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

var actor = audit.Actor{Name: "operator"}

var (
	january = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// services are the invoices of a database and what they need.
type services struct {
	usagetest.Services
	DB       *db.DB
	Ledgers  *ledger.Service
	Invoices *invoice.Service
}

// openWith returns the services of d, without prices.
func openWith(t *testing.T, d *db.DB, o invoice.Options) *services {
	t.Helper()
	s, ledgers := usagetest.Open(t, d), ledger.New(d)
	return &services{s, d, ledgers, invoice.New(d, s.Prices, ledgers, o)}
}

// openBilling returns the services of d, without prices.
func openBilling(t *testing.T, d *db.DB) *services {
	t.Helper()
	return openWith(t, d, invoice.Options{Log: usagetest.Log})
}

// openPriced returns the services of d with the prices of [usagetest.AddPrices].
func openPriced(t *testing.T, d *db.DB) *services {
	t.Helper()
	s := openBilling(t, d)
	usagetest.AddPrices(t, s.Prices)
	return s
}
