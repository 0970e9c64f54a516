package price_test

import (
	"math"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/agentsvctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/billing/amount"
	"stoa/billing/price"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

var actor = audit.Actor{Name: "operator"}

var (
	january = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	june    = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
)

func chargeItem(meter, provider, model string, per int64, amount amount.Money) price.Item {
	return price.Item{Kind: price.Charge, Meter: meter, Provider: provider, Model: model, Per: per, Amount: amount}
}

// TestPrices creates versions of the price book and prices usage by them.
func TestPrices(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := openPrices(t, d)
		first := price.Version{Version: "2026-1", Currency: "USD", Effective: january, Items: []price.Item{
			chargeItem("input_tokens", "", "", 1_000_000, 1_000_000_000),
			chargeItem("output_tokens", "", "gpt-*", 1_000_000, 4_000_000_000),
			chargeItem("output_tokens", "", "gpt-4o-*", 1_000_000, 2_000_000_000),
			chargeItem("output_tokens", "", "gpt-4o-mini", 1_000_000, 500_000_000),
			chargeItem("output_tokens", "azure", "gpt-4o-mini", 1_000_000, 600_000_000),
			chargeItem("cache_read_tokens", "", "gpt-4o-mini", 1_000_000, 100_000_000),
			chargeItem("tool_calls", "", "", 3, 1),
			chargeItem("run_seconds", "", "", 1, 10),
			{Kind: price.Cost, Meter: "model_calls", Per: 1, Amount: 7},
		}}
		second := price.Version{Version: "2026-6", Currency: "USD", Effective: june, Items: []price.Item{
			// A missing cost is no missing price: the app is charged.
			chargeItem("model_calls", "", "", 1, 5), {Kind: price.Cost, Meter: "model_calls", Provider: "another", Per: 1, Amount: 7},
		}}
		euros := price.Version{Version: "euros", Currency: "EUR", Effective: june.AddDate(0, 1, 0), Items: []price.Item{chargeItem("model_calls", "", "", 1, 9)}}
		for _, p := range []price.Version{second, first, euros} {
			if _, err := s.AddVersion(t.Context(), actor, p); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.AddVersion(t.Context(), actor, first)
		agentsvctest.CheckError(t, err, agentsvc.CodeExists)

		got, err := s.ListVersions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]price.Version{euros, second, first}, got, cmpopts.IgnoreFields(price.Version{}, "CreatedAt")); diff != "" {
			t.Errorf("price books (-want +got):\n%s", diff)
		}

		tokens := func(in, out, cached int64) amount.Quantities {
			return amount.Quantities{InputTokens: in, OutputTokens: out, CacheReadTokens: cached, ModelCalls: 1}
		}
		march, july := january.AddDate(0, 2, 0), june.AddDate(0, 1, 10)
		tests := []struct {
			name     string
			currency string
			row      price.Usage
			want     price.Price
		}{
			{"the exact model", "USD", modelCall(march, "openai", "gpt-4o-mini", tokens(1_000_000, 1_000_000, 0)), usagePrice(7, 1_500_000_000, "2026-1", false)},
			{"the exact model of a provider", "USD", modelCall(march, "azure", "gpt-4o-mini", tokens(0, 1_000_000, 0)), usagePrice(7, 600_000_000, "2026-1", false)},
			{"the longer pattern", "USD", modelCall(march, "openai", "gpt-4o-2024", tokens(0, 1_000_000, 0)), usagePrice(7, 2_000_000_000, "2026-1", false)},
			{"the shorter pattern", "USD", modelCall(march, "openai", "gpt-5/x", tokens(0, 1_000_000, 0)), usagePrice(7, 4_000_000_000, "2026-1", false)},
			{"a price of the cache", "USD", modelCall(march, "openai", "gpt-4o-mini", tokens(1_000_000, 0, 1_000_000)), usagePrice(7, 100_000_000, "2026-1", false)},
			{"none of the cache", "USD", modelCall(march, "openai", "gpt-5", tokens(1_000_000, 0, 1_000_000)), usagePrice(7, 1_000_000_000, "2026-1", false)},
			{"rounded up", "USD", modelCall(march, "openai", "gpt-4o-mini", tokens(0, 1, 0)), usagePrice(7, 500, "2026-1", false)},
			{"no price of the output", "USD", modelCall(march, "scripted", "scripted", tokens(10, 10, 0)), usagePrice(7, 10_000, "2026-1", true)},
			{"before any", "USD", modelCall(january.Add(-1), "openai", "gpt-5", tokens(1, 1, 0)), price.Price{Unpriced: true}},
			{"the second", "USD", modelCall(june, "openai", "gpt-5", tokens(1, 1, 0)), usagePrice(0, 5, "2026-6", false)},
			{"dollars beside euros", "USD", modelCall(july, "openai", "gpt-5", tokens(1, 1, 0)), usagePrice(0, 5, "2026-6", false)},
			{"euros", "EUR", modelCall(july, "openai", "gpt-5", tokens(1, 1, 0)), price.Price{Charge: 9, Currency: "EUR", Version: "euros"}},
			{"the currency that was first", "", modelCall(july, "openai", "gpt-5", tokens(1, 1, 0)), usagePrice(0, 5, "2026-6", false)},
			{"tools", "USD", price.Usage{Kind: amount.ToolCall, At: march, Quantities: amount.Quantities{ToolCalls: 1}}, usagePrice(0, 1, "2026-1", false)},
			{"seconds", "USD", price.Usage{Kind: amount.Run, At: march, Quantities: amount.Quantities{RunTime: 1100 * time.Millisecond, Runs: 1}}, usagePrice(0, 11, "2026-1", false)},
			{"free tools are not flagged", "USD", price.Usage{Kind: amount.ToolCall, At: june, Quantities: amount.Quantities{ToolCalls: 1}}, usagePrice(0, 0, "2026-6", false)},
			{"embeddings without a price", "USD", price.Usage{Kind: amount.Embedding, At: march, Quantities: amount.Quantities{Embeddings: 2}}, usagePrice(0, 0, "2026-1", true)},
			{"more than fits", "USD", modelCall(march, "openai", "gpt-5", tokens(0, math.MaxInt64, 0)), usagePrice(7, math.MaxInt64, "2026-1", false)},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				if diff := cmp.Diff(tt.want, s.CachedBook().PriceUsage(tt.currency, tt.row)); diff != "" {
					t.Errorf("worth (-want +got):\n%s", diff)
				}
			})
		}
	})
}

func modelCall(at time.Time, provider, model string, q amount.Quantities) price.Usage {
	return price.Usage{Kind: amount.ModelCall, At: at, Provider: provider, Model: model, Quantities: q}
}

func usagePrice(cost, charge amount.Money, version string, unpriced bool) price.Price {
	return price.Price{Cost: cost, Charge: charge, Currency: "USD", Version: version, Unpriced: unpriced}
}

func TestPriceMistakes(t *testing.T) {
	t.Parallel()
	s := openPrices(t, dbtest.NewSQLite(t))
	good := chargeItem("runs", "", "", 1, 1)
	item := func(change func(*price.Item)) []price.Item {
		it := good
		change(&it)
		return []price.Item{it}
	}
	tests := []struct {
		field string
		price price.Version
	}{
		{"version", price.Version{Version: "a b", Currency: "USD", Effective: june, Items: []price.Item{good}}},
		{"currency", price.Version{Version: "a", Currency: "usd", Effective: june, Items: []price.Item{good}}},
		{"effective_from", price.Version{Version: "a", Currency: "USD", Items: []price.Item{good}}},
		{"items", price.Version{Version: "a", Currency: "USD", Effective: june}},
		{"items[1]", price.Version{Version: "a", Currency: "USD", Effective: june, Items: []price.Item{good, good}}},
		{"items[0].kind", price.Version{Version: "a", Currency: "USD", Effective: june, Items: item(func(it *price.Item) { it.Kind = "price" })}},
		{"items[0].meter", price.Version{Version: "a", Currency: "USD", Effective: june, Items: item(func(it *price.Item) { it.Meter = "tokens" })}},
		{"items[0].per", price.Version{Version: "a", Currency: "USD", Effective: june, Items: item(func(it *price.Item) { it.Per = 0 })}},
		{"items[0].amount", price.Version{Version: "a", Currency: "USD", Effective: june, Items: item(func(it *price.Item) { it.Amount = -1 })}},
	}
	for _, tt := range tests {
		t.Run(tt.field, func(t *testing.T) {
			_, err := s.AddVersion(t.Context(), actor, tt.price)
			agentsvctest.CheckInvalid(t, err, tt.field)
		})
	}
}

// TestRemovePrice checks that a version can be withdrawn before it is in force.
func TestRemovePrice(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, ctx := openPrices(t, d), t.Context()
		for _, p := range []struct {
			version, currency string
			from              time.Time
		}{
			{"first", "USD", time.Now().Add(24 * time.Hour)}, {"now", "EUR", january}, {"soon", "EUR", time.Now().Add(30 * time.Second)},
			{"tomorrow", "EUR", time.Now().Add(24 * time.Hour)},
		} {
			_, err := s.AddVersion(ctx, actor, price.Version{Version: p.version, Currency: p.currency, Effective: p.from, Items: []price.Item{chargeItem("runs", "", "", 1, 1)}})
			agentsvctest.RequireNoErrors(t, err)
		}
		for version, want := range map[string]error{
			"nosuch": agentsvc.CodeNotFound, "now": agentsvc.CodePrecondition, "soon": agentsvc.CodePrecondition, "first": agentsvc.CodePrecondition,
		} {
			agentsvctest.CheckError(t, s.RemoveVersion(ctx, actor, version), want)
		}
		agentsvctest.RequireNoErrors(t, s.RemoveVersion(ctx, actor, "tomorrow"))
		agentsvctest.CheckError(t, s.RemoveVersion(ctx, actor, "tomorrow"), agentsvc.CodeNotFound)
		if left, err := s.ListVersions(ctx); err != nil || len(left) != 3 {
			t.Errorf("%d versions are left, %v, want 3", len(left), err)
		}
	})
}
