package usage_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestUsageRows writes rows of all kinds, repeated and in another order, and reads them back.
func TestUsageRows(t *testing.T) {
	t.Parallel()
	row := func(key string, kind amount.Kind, q amount.Quantities, w price.Price) usage.Row {
		return usage.Row{
			Task: "t1", Key: key, Agent: "clerk", Owner: agentsvc.Owner{Issuer: "stoa", Subject: "key:k1"},
			Usage: price.Usage{Kind: kind, At: time.UnixMicro(1_700_000_000_000_001).UTC(), Quantities: q}, Price: w,
		}
	}
	w := price.Price{Cost: 1, Charge: 2, Currency: "EUR", Version: "v1", Unpriced: true}
	want := []usage.Row{
		row("1", amount.ModelCall, amount.Quantities{
			InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 4, ReasoningTokens: 5, ModelCalls: 6,
		}, w),
		row("2", amount.Run, amount.Quantities{Runs: 7, RunTime: 8 * time.Microsecond}, w),
		row("3", amount.ToolCall, amount.Quantities{ToolCalls: 9}, w),
		row("4", amount.ToolCall, amount.Quantities{}, price.Price{}),
		row("5", amount.Embedding, amount.Quantities{Embeddings: 10}, w),
		row("6", amount.Storage, amount.Quantities{StoredBytes: 11}, w),
	}
	want[0].Provider, want[0].Model, want[0].Estimated = "some", "large", true
	want[4].Provider, want[4].Model = "other", "small"
	again := []usage.Row{want[3], want[1], want[5], want[0]}
	for i := range again {
		again[i].Cost, again[i].Agent = 100, "other"
	}
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		var b db.Batch
		usage.InsertRows(&b, "acme", want)
		usage.InsertRows(&b, "acme", again)
		if err := d.Tenant("acme").Write(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		var got []usage.Row
		var q db.Batch
		q.Query(func(r db.Row) error {
			var u usage.Row
			err := u.Scan(r)
			if u.Recorded.IsZero() {
				t.Error("a row does not say when it was recorded")
			}
			u.Recorded = time.Time{}
			got = append(got, u)
			return err
		}, `SELECT `+usage.Columns+`, recorded_at FROM usage WHERE tenant = 'acme' ORDER BY key`)
		if err := d.Tenant("acme").Do(t.Context(), &q); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
	})
}
