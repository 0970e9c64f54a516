package billing_test

import (
	"math"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/billing"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestBoundedRow checks that reported quantities are limited when a row is written, and its price as well.
func TestBoundedRow(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app := openBilling(t, d), newApp()
		_, err := s.Prices.AddPriceVersion(t.Context(), actor, billing.PriceVersion{Version: "1", Currency: "USD", Effective: time.UnixMicro(0), Items: []billing.PriceItem{
			chargeItem("input_tokens", "", "", 1, 1_000_000_000), chargeItem("output_tokens", "", "", 1, 1),
		}})
		requireNoErrors(t, err)
		at := time.Now().Add(-time.Minute)
		f := billing.RunFacts{Task: "t", Turn: 1, Epoch: 1, Agent: "a", Events: []agentsvc.Event{
			{Usage: &agentsvc.Usage{Call: "1", StartedAt: at, InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64}},
			{Usage: &agentsvc.Usage{Call: "2", StartedAt: at, InputTokens: -5, OutputTokens: 3}},
		}}
		requireNoErrors(t, s.Usage.NewMeter(app.ID, "").WriteUsage(t.Context(), f))
		_, sum, err := s.Usage.SumUsage(t.Context(), app.ID, "", billing.UsageQuery{From: at.Add(-time.Hour), To: at.Add(time.Hour)})
		requireNoErrors(t, err)
		if sum.InputTokens != billing.MaxTokens || sum.OutputTokens != billing.MaxTokens+3 || sum.Charge != billing.MaxUsagePrice+3 {
			t.Errorf("the rows come to %d and %d tokens, charged %d", sum.InputTokens, sum.OutputTokens, sum.Charge)
		}
	})
}
