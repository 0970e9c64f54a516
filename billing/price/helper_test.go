package price_test

import (
	"log/slog"
	"testing"

	"stoa/billing/change"
	"stoa/billing/price"
	"stoa/tenancy/db"
)

// openPrices returns the prices of d.
func openPrices(t *testing.T, d *db.DB) *price.Service {
	t.Helper()
	feed, err := change.Open(t.Context(), d, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s, err := price.Open(t.Context(), d, nil, feed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
