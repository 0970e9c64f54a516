package billing_test

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestHugeRows inserts rows whose sums do not fit 64 bits, as an earlier version could have written them. Everything
// that sums usage goes on: the sums of that app are the largest value, and those of other apps are exact.
func TestHugeRows(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ctx, s := t.Context(), openPriced(t, d)
		huge, other := insertApp(t, d, `{"stripe_customer": "cus_1"}`), insertApp(t, d, `{"stripe_customer": "cus_2"}`)
		const odd = 1<<53 + 1 // a floating-point sum would lose the last digit
		at := time.Now().UTC().Add(-time.Minute).Truncate(time.Microsecond)
		since := at.Add(-48 * time.Hour)
		var webhook atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var body struct {
				Data struct{ Rows []json.RawMessage }
			}
			raw, _ := io.ReadAll(r.Body)
			if json.Unmarshal(raw, &body) == nil {
				webhook.Add(int64(len(body.Data.Rows)))
			}
		}))
		defer server.Close()
		var events atomic.Int64
		stripe := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			events.Add(1)
			_, _ = io.WriteString(w, `{"object": "billing.meter_event"}`)
		}))
		defer stripe.Close()
		secret, err := billing.ParseWebhookSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
		requireNoErrors(t, err)
		meters := map[string]string{}
		for _, m := range billing.StripeMeters {
			meters[m] = "stoa_" + m
		}
		sink, err := billing.NewStripeSink(stripe.Client(), "sk_test_1", stripe.URL, meters)
		requireNoErrors(t, err)
		export := newExporter(d, s, map[string]billing.Sink{
			"ndjson": billing.FileSink{Folder: t.TempDir(), Format: billing.NDJSON}, "csv": billing.FileSink{Folder: t.TempDir(), Format: billing.CSV},
			"webhook": billing.WebhookSink{URL: server.URL, Secret: secret, Client: server.Client()}, "stripe": sink,
		})
		requireNoErrors(t, export.DeliverAll(ctx)) // an export has what is recorded after its beginning

		for _, b := range []billing.Budget{
			{Name: "tokens", Unit: billing.InTokens, Amount: 1 << 62, Window: billing.Total, Hard: true},
			{Name: "money", Unit: billing.InMoney, Amount: math.MaxInt64, Window: billing.Total},
		} {
			addBudget(t, s, huge, b)
			addBudget(t, s, other, b)
			b.Hard = false
			addBudget(t, s, tenancy.App{}, b)
		}
		most := billing.Quantities{
			InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64, CacheReadTokens: math.MaxInt64, CacheWriteTokens: math.MaxInt64,
			ReasoningTokens: math.MaxInt64, ModelCalls: math.MaxInt64,
		}
		kinds := map[billing.Kind]billing.Quantities{
			billing.ModelCall: most, billing.ToolCall: {ToolCalls: math.MaxInt64}, billing.Run: {Runs: math.MaxInt64, RunTime: math.MaxInt64},
			billing.Embedding: {Embeddings: math.MaxInt64}, billing.Storage: {StoredBytes: math.MaxInt64},
		}
		var rows []billing.UsageRow
		for kind, q := range kinds {
			for range 3 {
				rows = append(rows, billing.UsageRow{
					Task: "t", Key: agentsvc.NewID(), MeteredUsage: billing.MeteredUsage{Kind: kind, At: at, Provider: "p", Model: "m", Quantities: q},
					UsagePrice: billing.UsagePrice{Cost: math.MaxInt64, Charge: math.MaxInt64, Currency: "USD", Version: "1"},
				})
			}
		}
		var b db.Batch
		billing.InsertRows(&b, huge.ID, rows)
		exact := billing.UsageRow{
			Task: "t", MeteredUsage: billing.MeteredUsage{
				Kind: billing.ModelCall, At: at, Provider: "p", Model: "m", Quantities: billing.Quantities{InputTokens: odd, OutputTokens: 1, ModelCalls: 1},
			},
			UsagePrice: billing.UsagePrice{Cost: 1, Charge: odd, Currency: "USD", Version: "1"},
		}
		for range 3 {
			exact.Key = agentsvc.NewID()
			billing.InsertRows(&b, other.ID, []billing.UsageRow{exact})
		}
		requireNoErrors(t, d.Platform().Write(ctx, &b))

		_, sum, err := s.Usage.SumUsage(ctx, huge.ID, "", billing.UsageQuery{From: since, To: at.Add(time.Hour)})
		requireNoErrors(t, err)
		if sum.InputTokens != math.MaxInt64 || sum.Charge != math.MaxInt64 || sum.StoredBytes != math.MaxInt64 || sum.RunTime < math.MaxInt64/2 {
			t.Errorf("the huge sums are %+v", sum)
		}
		_, sum, err = s.Usage.SumUsage(ctx, other.ID, "", billing.UsageQuery{From: since, To: at.Add(time.Hour), By: billing.UsageGroups})
		requireNoErrors(t, err)
		if sum.InputTokens != 3*odd || sum.Charge != 3*odd || sum.ModelCalls != 3 {
			t.Errorf("the other app's sums are %+v", sum)
		}

		wrong, err := s.Budgets.RebuildBalances(ctx)
		requireNoErrors(t, err, s.Budgets.RecountNewBudgets(ctx))
		if len(wrong) != 6 {
			t.Errorf("%d balances were worked out anew, want 6: %+v", len(wrong), wrong)
		}
		wantBalance := func(app db.ID, name string, want int64) {
			t.Helper()
			if got := balanceOf(t, s, app, name); got != [2]int64{want, 0} {
				t.Errorf("budget %s of %q stands at %v, want %d", name, app, got, want)
			}
		}
		wantBalance("", "tokens", math.MaxInt64)
		wantBalance("", "money", math.MaxInt64)
		wantBalance(huge.ID, "tokens", math.MaxInt64)
		wantBalance(other.ID, "tokens", 3*(odd+1))
		wantBalance(other.ID, "money", 3*odd)
		if all, err := s.Budgets.ListBudgets(ctx, ""); err != nil || len(all) != 2 || all[0].Remaining() != 0 {
			t.Errorf("the platform's budgets are %+v, error %v", all, err)
		}
		a := newUsageRequest()
		a.Provider, a.Model = "p", "m"
		r, err := s.Budgets.NewBudgetGate(other.ID, "").ReserveUsage(ctx, a)
		requireNoErrors(t, err)
		requireNoErrors(t, r.SettleUsage(ctx, s.Usage.NewMeter(other.ID, ""), usageOf(r, a, 5, 6)))
		wantBalance(other.ID, "tokens", 3*(odd+1)+11)
		wantBalance("", "tokens", math.MaxInt64)
		_, err = s.Budgets.NewBudgetGate(huge.ID, "").ReserveUsage(ctx, newUsageRequest())
		wantExhausted(t, err, "tokens")
		for _, app := range []tenancy.App{huge, other, {}} {
			addBudget(t, s, app, billing.Budget{Name: "another", Unit: billing.InTokens, Amount: 10, Window: billing.Month})
		}

		for _, app := range []tenancy.App{huge, other} {
			made, err := s.Invoices.AddCredit(ctx, actor, app, billing.Credit{Amount: 7, Expires: time.Now().Add(time.Hour)})
			requireNoErrors(t, err)
			drafts, err := s.Invoices.ListInvoices(ctx, app)
			requireNoErrors(t, err)
			if len(drafts) == 0 {
				t.Fatalf("app %s has no draft", app.Name)
			}
			last := drafts[0]
			final, err := s.Invoices.FinalizeInvoice(ctx, actor, app, last.ID)
			requireNoErrors(t, err)
			want := billing.Money(math.MaxInt64)
			if app.ID == other.ID {
				want = 3*odd + 10
			}
			if got := final.Totals; len(got) != 1 || got[0].Charge != want || got[0].Credits != 7 || got[0].Due != want-7 {
				t.Errorf("the invoice of %s comes to %+v, want %d less 7", app.Name, got, want)
			}
			requireNoErrors(t, final.WriteCSV(io.Discard), final.WriteHTML(io.Discard))
			note, err := s.Invoices.ReverseInvoice(ctx, actor, app, last.ID)
			requireNoErrors(t, err, note.WriteCSV(io.Discard), note.WriteHTML(io.Discard))
			requireNoErrors(t, s.Invoices.RevokeCredit(ctx, actor, app, made.ID), s.Invoices.ExpireCredits(ctx))
			balances, err := s.Ledgers.ListAccountBalances(ctx, app.ID)
			requireNoErrors(t, err)
			if balances["USD"][billing.Receivable] != 0 || balances["USD"][billing.Revenue] != 0 {
				t.Errorf("the books of %s stand at %v", app.Name, balances)
			}
		}
		requireNoErrors(t, s.Invoices.FinalizeDueInvoices(ctx), export.DeliverAll(ctx))
		list, err := billing.ListExports(ctx, d)
		requireNoErrors(t, err)
		for _, x := range list {
			if x.Rows != 19 || x.Refused != 0 || x.Error != "" {
				t.Errorf("export %+v, want 19 rows", x)
			}
		}
		if webhook.Load() != 19 || events.Load() == 0 {
			t.Errorf("%d rows were posted, %d events sent to Stripe", webhook.Load(), events.Load())
		}
		requireNoErrors(t, s.CloseApp(context.WithoutCancel(ctx), actor, huge))
		wantBalance("", "tokens", math.MaxInt64)
	})
}
