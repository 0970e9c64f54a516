package billing_test

import (
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/agentsvc"
	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

const actor = "operator"

// openBilling returns the billing of d.
func openBilling(t *testing.T, d *db.DB) *billing.Service {
	t.Helper()
	s, err := billing.Open(t.Context(), d, nil, billing.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func wantInvalid(t *testing.T, err error, field string) {
	t.Helper()
	var invalid *agentsvc.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != field {
		t.Errorf("error %v, want one about %s", err, field)
	}
}

var (
	january = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	june    = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
)

func chargeItem(meter, provider, model string, per int64, amount billing.Money) billing.PriceItem {
	return billing.PriceItem{Kind: billing.Charge, Meter: meter, Provider: provider, Model: model, Per: per, Amount: amount}
}

// TestPrices creates versions of the price book and prices usage by them.
func TestPrices(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := openBilling(t, d)
		first := billing.PriceVersion{Version: "2026-1", Currency: "USD", Effective: january, Items: []billing.PriceItem{
			chargeItem("input_tokens", "", "", 1_000_000, 1_000_000_000),
			chargeItem("output_tokens", "", "gpt-*", 1_000_000, 4_000_000_000),
			chargeItem("output_tokens", "", "gpt-4o-*", 1_000_000, 2_000_000_000),
			chargeItem("output_tokens", "", "gpt-4o-mini", 1_000_000, 500_000_000),
			chargeItem("output_tokens", "azure", "gpt-4o-mini", 1_000_000, 600_000_000),
			chargeItem("cache_read_tokens", "", "gpt-4o-mini", 1_000_000, 100_000_000),
			chargeItem("tool_calls", "", "", 3, 1),
			chargeItem("run_seconds", "", "", 1, 10),
			{Kind: billing.Cost, Meter: "model_calls", Per: 1, Amount: 7},
		}}
		second := billing.PriceVersion{Version: "2026-6", Currency: "USD", Effective: june, Items: []billing.PriceItem{chargeItem("model_calls", "", "", 1, 5)}}
		euros := billing.PriceVersion{Version: "euros", Currency: "EUR", Effective: june.AddDate(0, 1, 0), Items: []billing.PriceItem{chargeItem("model_calls", "", "", 1, 9)}}
		for _, p := range []billing.PriceVersion{second, first, euros} {
			if _, err := s.Prices.AddPriceVersion(t.Context(), actor, p); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.Prices.AddPriceVersion(t.Context(), actor, first)
		wantErr(t, err, tenancy.ErrExists)

		got, err := s.Prices.ListPriceVersions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]billing.PriceVersion{euros, second, first}, got, cmpopts.IgnoreFields(billing.PriceVersion{}, "CreatedAt")); diff != "" {
			t.Errorf("price books (-want +got):\n%s", diff)
		}

		tokens := func(in, out, cached int64) billing.Quantities {
			return billing.Quantities{InputTokens: in, OutputTokens: out, CacheReadTokens: cached, ModelCalls: 1}
		}
		march, july := january.AddDate(0, 2, 0), june.AddDate(0, 1, 10)
		tests := []struct {
			name     string
			currency string
			row      billing.MeteredUsage
			want     billing.UsagePrice
		}{
			{"the exact model", "USD", modelCall(march, "openai", "gpt-4o-mini", tokens(1_000_000, 1_000_000, 0)), usagePrice(7, 1_500_000_000, "2026-1", false)},
			{"the exact model of a provider", "USD", modelCall(march, "azure", "gpt-4o-mini", tokens(0, 1_000_000, 0)), usagePrice(7, 600_000_000, "2026-1", false)},
			{"the longer pattern", "USD", modelCall(march, "openai", "gpt-4o-2024", tokens(0, 1_000_000, 0)), usagePrice(7, 2_000_000_000, "2026-1", false)},
			{"the shorter pattern", "USD", modelCall(march, "openai", "gpt-5/x", tokens(0, 1_000_000, 0)), usagePrice(7, 4_000_000_000, "2026-1", false)},
			{"a price of the cache", "USD", modelCall(march, "openai", "gpt-4o-mini", tokens(1_000_000, 0, 1_000_000)), usagePrice(7, 100_000_000, "2026-1", false)},
			{"none of the cache", "USD", modelCall(march, "openai", "gpt-5", tokens(1_000_000, 0, 1_000_000)), usagePrice(7, 1_000_000_000, "2026-1", false)},
			{"rounded up", "USD", modelCall(march, "openai", "gpt-4o-mini", tokens(0, 1, 0)), usagePrice(7, 500, "2026-1", false)},
			{"no price of the output", "USD", modelCall(march, "scripted", "scripted", tokens(10, 10, 0)), usagePrice(7, 10_000, "2026-1", true)},
			{"before any", "USD", modelCall(january.Add(-1), "openai", "gpt-5", tokens(1, 1, 0)), billing.UsagePrice{Unpriced: true}},
			{"the second", "USD", modelCall(june, "openai", "gpt-5", tokens(1, 1, 0)), usagePrice(0, 5, "2026-6", false)},
			{"dollars beside euros", "USD", modelCall(july, "openai", "gpt-5", tokens(1, 1, 0)), usagePrice(0, 5, "2026-6", false)},
			{"euros", "EUR", modelCall(july, "openai", "gpt-5", tokens(1, 1, 0)), billing.UsagePrice{Charge: 9, Currency: "EUR", Version: "euros"}},
			{"the currency that was first", "", modelCall(july, "openai", "gpt-5", tokens(1, 1, 0)), usagePrice(0, 5, "2026-6", false)},
			{"tools", "USD", billing.MeteredUsage{Kind: billing.ToolCall, At: march, Quantities: billing.Quantities{ToolCalls: 1}}, usagePrice(0, 1, "2026-1", false)},
			{"seconds", "USD", billing.MeteredUsage{Kind: billing.Run, At: march, Quantities: billing.Quantities{RunTime: 1100 * time.Millisecond, Runs: 1}}, usagePrice(0, 11, "2026-1", false)},
			{"free tools are not flagged", "USD", billing.MeteredUsage{Kind: billing.ToolCall, At: june, Quantities: billing.Quantities{ToolCalls: 1}}, usagePrice(0, 0, "2026-6", false)},
			{"embeddings without a price", "USD", billing.MeteredUsage{Kind: billing.Embedding, At: march, Quantities: billing.Quantities{Embeddings: 2}}, usagePrice(0, 0, "2026-1", true)},
			{"more than fits", "USD", modelCall(march, "openai", "gpt-5", tokens(0, math.MaxInt64, 0)), usagePrice(7, math.MaxInt64, "2026-1", false)},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				if diff := cmp.Diff(tt.want, s.Prices.CachedBook().PriceUsage(tt.currency, tt.row)); diff != "" {
					t.Errorf("worth (-want +got):\n%s", diff)
				}
			})
		}
	})
}

func modelCall(at time.Time, provider, model string, q billing.Quantities) billing.MeteredUsage {
	return billing.MeteredUsage{Kind: billing.ModelCall, At: at, Provider: provider, Model: model, Quantities: q}
}

func usagePrice(cost, charge billing.Money, version string, unpriced bool) billing.UsagePrice {
	return billing.UsagePrice{Cost: cost, Charge: charge, Currency: "USD", Version: version, Unpriced: unpriced}
}

func TestPriceMistakes(t *testing.T) {
	t.Parallel()
	s := openBilling(t, dbtest.NewSQLite(t))
	good := chargeItem("runs", "", "", 1, 1)
	item := func(change func(*billing.PriceItem)) []billing.PriceItem {
		it := good
		change(&it)
		return []billing.PriceItem{it}
	}
	tests := []struct {
		field string
		price billing.PriceVersion
	}{
		{"version", billing.PriceVersion{Version: "a b", Currency: "USD", Effective: june, Items: []billing.PriceItem{good}}},
		{"currency", billing.PriceVersion{Version: "a", Currency: "usd", Effective: june, Items: []billing.PriceItem{good}}},
		{"effective_from", billing.PriceVersion{Version: "a", Currency: "USD", Items: []billing.PriceItem{good}}},
		{"items", billing.PriceVersion{Version: "a", Currency: "USD", Effective: june}},
		{"items[1]", billing.PriceVersion{Version: "a", Currency: "USD", Effective: june, Items: []billing.PriceItem{good, good}}},
		{"items[0].kind", billing.PriceVersion{Version: "a", Currency: "USD", Effective: june, Items: item(func(it *billing.PriceItem) { it.Kind = "price" })}},
		{"items[0].meter", billing.PriceVersion{Version: "a", Currency: "USD", Effective: june, Items: item(func(it *billing.PriceItem) { it.Meter = "tokens" })}},
		{"items[0].per", billing.PriceVersion{Version: "a", Currency: "USD", Effective: june, Items: item(func(it *billing.PriceItem) { it.Per = 0 })}},
		{"items[0].amount", billing.PriceVersion{Version: "a", Currency: "USD", Effective: june, Items: item(func(it *billing.PriceItem) { it.Amount = -1 })}},
	}
	for _, tt := range tests {
		t.Run(tt.field, func(t *testing.T) {
			_, err := s.Prices.AddPriceVersion(t.Context(), actor, tt.price)
			wantInvalid(t, err, tt.field)
		})
	}
}

// TestRemovePrice checks that a version can be withdrawn before it is in force.
func TestRemovePrice(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, ctx := openBilling(t, d), t.Context()
		for _, p := range []struct {
			version, currency string
			from              time.Time
		}{
			{"first", "USD", time.Now().Add(24 * time.Hour)}, {"now", "EUR", january}, {"soon", "EUR", time.Now().Add(30 * time.Second)},
			{"tomorrow", "EUR", time.Now().Add(24 * time.Hour)},
		} {
			_, err := s.Prices.AddPriceVersion(ctx, actor, billing.PriceVersion{Version: p.version, Currency: p.currency, Effective: p.from, Items: []billing.PriceItem{chargeItem("runs", "", "", 1, 1)}})
			requireNoErrors(t, err)
		}
		for version, want := range map[string]error{
			"nosuch": tenancy.ErrNotFound, "now": tenancy.ErrPrecondition, "soon": tenancy.ErrPrecondition, "first": tenancy.ErrPrecondition,
		} {
			wantErr(t, s.Prices.RemovePriceVersion(ctx, actor, version), want)
		}
		requireNoErrors(t, s.Prices.RemovePriceVersion(ctx, actor, "tomorrow"))
		wantErr(t, s.Prices.RemovePriceVersion(ctx, actor, "tomorrow"), tenancy.ErrNotFound)
		if left, err := s.Prices.ListPriceVersions(ctx); err != nil || len(left) != 3 {
			t.Errorf("%d versions are left, %v, want 3", len(left), err)
		}
	})
}
