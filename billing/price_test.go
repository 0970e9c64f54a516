package billing_test

import (
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

const actor = "operator"

// open returns the billing of d.
func open(t *testing.T, d *db.DB) *billing.Service {
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
	var invalid *billing.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != field {
		t.Errorf("error %v, want one about %s", err, field)
	}
}

var (
	january = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	june    = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
)

func charge(meter, provider, model string, per int64, amount billing.Money) billing.Item {
	return billing.Item{Kind: billing.Charge, Meter: meter, Provider: provider, Model: model, Per: per, Amount: amount}
}

// TestPrices makes versions of the price book and prices usage by them.
func TestPrices(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		first := billing.Price{Version: "2026-1", Currency: "USD", Effective: january, Items: []billing.Item{
			charge("input_tokens", "", "", 1_000_000, 1_000_000_000),
			charge("output_tokens", "", "gpt-*", 1_000_000, 4_000_000_000),
			charge("output_tokens", "", "gpt-4o-*", 1_000_000, 2_000_000_000),
			charge("output_tokens", "", "gpt-4o-mini", 1_000_000, 500_000_000),
			charge("output_tokens", "azure", "gpt-4o-mini", 1_000_000, 600_000_000),
			charge("cache_read_tokens", "", "gpt-4o-mini", 1_000_000, 100_000_000),
			charge("tool_calls", "", "", 3, 1),
			charge("run_seconds", "", "", 1, 10),
			{Kind: billing.Cost, Meter: "model_calls", Per: 1, Amount: 7},
		}}
		second := billing.Price{Version: "2026-6", Currency: "USD", Effective: june, Items: []billing.Item{charge("model_calls", "", "", 1, 5)}}
		euros := billing.Price{Version: "euros", Currency: "EUR", Effective: june.AddDate(0, 1, 0), Items: []billing.Item{charge("model_calls", "", "", 1, 9)}}
		for _, p := range []billing.Price{second, first, euros} {
			if _, err := s.AddPrice(t.Context(), actor, p); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.AddPrice(t.Context(), actor, first)
		wantErr(t, err, billing.ErrExists)

		got, err := s.Prices(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]billing.Price{euros, second, first}, got, cmpopts.IgnoreFields(billing.Price{}, "CreatedAt")); diff != "" {
			t.Errorf("price books (-want +got):\n%s", diff)
		}

		tokens := func(in, out, cached int64) billing.Quantities {
			return billing.Quantities{InputTokens: in, OutputTokens: out, CacheReadTokens: cached, ModelCalls: 1}
		}
		march, july := january.AddDate(0, 2, 0), june.AddDate(0, 1, 10)
		tests := []struct {
			name     string
			currency string
			row      billing.Usage
			want     billing.Worth
		}{
			{"the exact model", "USD", call(march, "openai", "gpt-4o-mini", tokens(1_000_000, 1_000_000, 0)), worth(7, 1_500_000_000, "2026-1", false)},
			{"the exact model of a provider", "USD", call(march, "azure", "gpt-4o-mini", tokens(0, 1_000_000, 0)), worth(7, 600_000_000, "2026-1", false)},
			{"the longer pattern", "USD", call(march, "openai", "gpt-4o-2024", tokens(0, 1_000_000, 0)), worth(7, 2_000_000_000, "2026-1", false)},
			{"the shorter pattern", "USD", call(march, "openai", "gpt-5/x", tokens(0, 1_000_000, 0)), worth(7, 4_000_000_000, "2026-1", false)},
			{"a price of the cache", "USD", call(march, "openai", "gpt-4o-mini", tokens(1_000_000, 0, 1_000_000)), worth(7, 100_000_000, "2026-1", false)},
			{"none of the cache", "USD", call(march, "openai", "gpt-5", tokens(1_000_000, 0, 1_000_000)), worth(7, 1_000_000_000, "2026-1", false)},
			{"rounded up", "USD", call(march, "openai", "gpt-4o-mini", tokens(0, 1, 0)), worth(7, 500, "2026-1", false)},
			{"no price of the output", "USD", call(march, "scripted", "scripted", tokens(10, 10, 0)), worth(7, 10_000, "2026-1", true)},
			{"before any", "USD", call(january.Add(-1), "openai", "gpt-5", tokens(1, 1, 0)), billing.Worth{Unpriced: true}},
			{"the second", "USD", call(june, "openai", "gpt-5", tokens(1, 1, 0)), worth(0, 5, "2026-6", false)},
			{"dollars beside euros", "USD", call(july, "openai", "gpt-5", tokens(1, 1, 0)), worth(0, 5, "2026-6", false)},
			{"euros", "EUR", call(july, "openai", "gpt-5", tokens(1, 1, 0)), billing.Worth{Charge: 9, Currency: "EUR", Version: "euros"}},
			{"the currency that was first", "", call(july, "openai", "gpt-5", tokens(1, 1, 0)), worth(0, 5, "2026-6", false)},
			{"tools", "USD", billing.Usage{Kind: billing.ToolCall, At: march, Quantities: billing.Quantities{ToolCalls: 1}}, worth(0, 1, "2026-1", false)},
			{"seconds", "USD", billing.Usage{Kind: billing.Run, At: march, Quantities: billing.Quantities{RunTime: 1100 * time.Millisecond, Runs: 1}}, worth(0, 11, "2026-1", false)},
			{"free tools are not flagged", "USD", billing.Usage{Kind: billing.ToolCall, At: june, Quantities: billing.Quantities{ToolCalls: 1}}, worth(0, 0, "2026-6", false)},
			{"embeddings without a price", "USD", billing.Usage{Kind: billing.Embedding, At: march, Quantities: billing.Quantities{Embeddings: 2}}, worth(0, 0, "2026-1", true)},
			{"more than fits", "USD", call(march, "openai", "gpt-5", tokens(0, math.MaxInt64, 0)), worth(7, math.MaxInt64, "2026-1", false)},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				if diff := cmp.Diff(tt.want, s.Worth(tt.currency, tt.row)); diff != "" {
					t.Errorf("worth (-want +got):\n%s", diff)
				}
			})
		}
	})
}

func call(at time.Time, provider, model string, q billing.Quantities) billing.Usage {
	return billing.Usage{Kind: billing.ModelCall, At: at, Provider: provider, Model: model, Quantities: q}
}

func worth(cost, charge billing.Money, version string, unpriced bool) billing.Worth {
	return billing.Worth{Cost: cost, Charge: charge, Currency: "USD", Version: version, Unpriced: unpriced}
}

func TestPriceMistakes(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.SQLite(t))
	good := charge("runs", "", "", 1, 1)
	item := func(change func(*billing.Item)) []billing.Item {
		it := good
		change(&it)
		return []billing.Item{it}
	}
	tests := []struct {
		field string
		price billing.Price
	}{
		{"version", billing.Price{Version: "a b", Currency: "USD", Effective: june, Items: []billing.Item{good}}},
		{"currency", billing.Price{Version: "a", Currency: "usd", Effective: june, Items: []billing.Item{good}}},
		{"effective_from", billing.Price{Version: "a", Currency: "USD", Items: []billing.Item{good}}},
		{"items", billing.Price{Version: "a", Currency: "USD", Effective: june}},
		{"items[1]", billing.Price{Version: "a", Currency: "USD", Effective: june, Items: []billing.Item{good, good}}},
		{"items[0].kind", billing.Price{Version: "a", Currency: "USD", Effective: june, Items: item(func(it *billing.Item) { it.Kind = "price" })}},
		{"items[0].meter", billing.Price{Version: "a", Currency: "USD", Effective: june, Items: item(func(it *billing.Item) { it.Meter = "tokens" })}},
		{"items[0].per", billing.Price{Version: "a", Currency: "USD", Effective: june, Items: item(func(it *billing.Item) { it.Per = 0 })}},
		{"items[0].amount", billing.Price{Version: "a", Currency: "USD", Effective: june, Items: item(func(it *billing.Item) { it.Amount = -1 })}},
	}
	for _, tt := range tests {
		t.Run(tt.field, func(t *testing.T) {
			_, err := s.AddPrice(t.Context(), actor, tt.price)
			wantInvalid(t, err, tt.field)
		})
	}
}

// TestTotals: usage in several currencies has a total in each.
func TestTotals(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := priced(t, d), someApp(), t.Context()
		_, err := s.AddPlan(ctx, actor, billing.Plan{Name: "euro", Currency: "EUR"})
		check(t, err)
		_, err = s.AddPrice(ctx, actor, billing.Price{Version: "euro", Currency: "EUR", Effective: january, Items: []billing.Item{charge("model_calls", "", "", 1, 9)}})
		check(t, err, spend(ctx, s, app, day(1, 5), 2))
		total := func() billing.Sum {
			_, sum, err := s.Usage(ctx, app.ID, app.Plan, billing.Query{From: january, To: day(2, 1), By: []string{"model"}})
			check(t, err)
			return sum
		}
		if sum := total(); sum.Charge != 20 || sum.Cost != 8 || sum.Currency != "USD" || sum.Charges != nil {
			t.Errorf("in dollars: %+v", sum)
		}
		app.Plan = "euro"
		check(t, spend(ctx, s, app, day(1, 6), 3))
		sum := total()
		want := []billing.Charged{{Currency: "EUR", Charge: 27}, {Currency: "USD", Cost: 8, Charge: 20}}
		if diff := cmp.Diff(want, sum.Charges); diff != "" || sum.Charge != 0 || sum.Cost != 0 || sum.Currency != "" || sum.ModelCalls != 5 {
			t.Errorf("in both: %+v (-want +got):\n%s", sum, diff)
		}
	})
}

// TestUsageStays: the database refuses to change what was counted, and to delete it while its app is there.
func TestUsageStays(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, app := priced(t, d), tenancy.App{ID: tenancy.DefaultID, Name: tenancy.DefaultName}
		check(t, spend(t.Context(), s, app, day(1, 5), 2))
		for what, on := range map[string]struct {
			h   *db.Handle
			sql string
		}{
			"change by the app":      {d.Tenant(app.ID), `UPDATE usage SET charge = 0 WHERE tenant = $1`},
			"change by the platform": {d.Platform(), `UPDATE usage SET charge = 0 WHERE tenant = $1`},
			"deletion by the app":    {d.Tenant(app.ID), `DELETE FROM usage WHERE tenant = $1`},
		} {
			var b db.Batch
			b.Exec(nil, on.sql, string(app.ID))
			if err := on.h.Do(t.Context(), &b); err == nil {
				t.Errorf("a %s was not refused", what)
			}
		}
		wantTotals(t, s, app, map[string][2]billing.Money{"2026-01 draft": {20, 0}})
	})
}

// TestRemovePrice: a version can be withdrawn before it holds.
func TestRemovePrice(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, ctx := open(t, d), t.Context()
		for _, p := range []struct {
			version, currency string
			from              time.Time
		}{
			{"first", "USD", time.Now().Add(24 * time.Hour)}, {"now", "EUR", january}, {"soon", "EUR", time.Now().Add(30 * time.Second)},
			{"tomorrow", "EUR", time.Now().Add(24 * time.Hour)},
		} {
			_, err := s.AddPrice(ctx, actor, billing.Price{Version: p.version, Currency: p.currency, Effective: p.from, Items: []billing.Item{charge("runs", "", "", 1, 1)}})
			check(t, err)
		}
		for version, want := range map[string]error{
			"nosuch": billing.ErrNotFound, "now": billing.ErrPrecondition, "soon": billing.ErrPrecondition, "first": billing.ErrPrecondition,
		} {
			wantErr(t, s.RemovePrice(ctx, actor, version), want)
		}
		check(t, s.RemovePrice(ctx, actor, "tomorrow"))
		wantErr(t, s.RemovePrice(ctx, actor, "tomorrow"), billing.ErrNotFound)
		if left, err := s.Prices(ctx); err != nil || len(left) != 3 {
			t.Errorf("%d versions are left, %v, want 3", len(left), err)
		}
	})
}
