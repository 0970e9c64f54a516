package usage_test

import (
	"math"
	"testing"
	"time"

	"stoa/agentsvc/agentsvctest"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestBoundedRow checks that reported quantities are limited when a row is written, and its price as well.
func TestBoundedRow(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app := usagetest.Open(t, d), usagetest.NewApp()
		_, err := s.Prices.AddVersion(t.Context(), actor, price.Version{Version: "1", Currency: "USD", Effective: time.UnixMicro(0), Items: []price.Item{
			usagetest.ChargeItem("input_tokens", "", "", 1, 1_000_000_000), usagetest.ChargeItem("output_tokens", "", "", 1, 1),
		}})
		agentsvctest.RequireNoErrors(t, err)
		at := time.Now().Add(-time.Minute)
		f := usage.RunFacts{Task: "t", Turn: 1, Epoch: 1, Agent: "a", Events: []agentsvc.Event{
			{Usage: &agentsvc.Usage{Call: "1", StartedAt: at, InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64}},
			{Usage: &agentsvc.Usage{Call: "2", StartedAt: at, InputTokens: -5, OutputTokens: 3}},
		}}
		agentsvctest.RequireNoErrors(t, s.Usage.NewMeter(app.ID, "").WriteUsage(t.Context(), f))
		_, sum, err := s.Usage.SumUsage(t.Context(), app.ID, "", usage.Query{From: at.Add(-time.Hour), To: at.Add(time.Hour)})
		agentsvctest.RequireNoErrors(t, err)
		if sum.InputTokens != amount.MaxTokens || sum.OutputTokens != amount.MaxTokens+3 || sum.Charge != amount.MaxPrice+3 {
			t.Errorf("the rows come to %d and %d tokens, charged %d", sum.InputTokens, sum.OutputTokens, sum.Charge)
		}
	})
}
