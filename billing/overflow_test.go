package billing_test

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"stoa/agentsvc/agentsvctest"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/budget"
	"stoa/billing/budget/budgettest"
	"stoa/billing/calendar"
	"stoa/billing/export"
	"stoa/billing/export/file"
	"stoa/billing/export/stripe"
	"stoa/billing/export/webhook"
	"stoa/billing/invoice"
	"stoa/billing/ledger"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/billing/usage/usagetest"
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
		huge, other := usagetest.InsertApp(t, d, `{"stripe_customer": "cus_1"}`), usagetest.InsertApp(t, d, `{"stripe_customer": "cus_2"}`)
		const odd = 1<<53 + 1 // a floating-point sum would lose the last digit
		at := time.Now().UTC().Add(-time.Minute).Truncate(time.Microsecond)
		since := at.Add(-48 * time.Hour)
		var posted atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var body struct {
				Data struct{ Rows []json.RawMessage }
			}
			raw, _ := io.ReadAll(r.Body)
			if json.Unmarshal(raw, &body) == nil {
				posted.Add(int64(len(body.Data.Rows)))
			}
		}))
		defer server.Close()
		var events atomic.Int64
		stripeServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			events.Add(1)
			_, _ = io.WriteString(w, `{"object": "billing.meter_event"}`)
		}))
		defer stripeServer.Close()
		secret, err := webhook.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
		agentsvctest.RequireNoErrors(t, err)
		meters := map[string]string{}
		for _, m := range stripe.Meters {
			meters[m] = "stoa_" + m
		}
		sink, err := stripe.New(stripeServer.Client(), "sk_test_1", stripeServer.URL, meters)
		agentsvctest.RequireNoErrors(t, err)
		exporter := s.Exports.NewExporter(map[string]export.Sink{
			"ndjson": file.Sink{Folder: t.TempDir(), Format: file.NDJSON}, "csv": file.Sink{Folder: t.TempDir(), Format: file.CSV},
			"webhook": webhook.Sink{URL: server.URL, Secret: secret, Client: server.Client()}, "stripe": sink,
		}, nil)
		agentsvctest.RequireNoErrors(t, exporter.DeliverAll(ctx)) // an export has what is recorded after its beginning

		for _, b := range []budget.Budget{
			{Name: "tokens", Unit: budget.InTokens, Amount: 1 << 62, Window: calendar.Total, Hard: true},
			{Name: "money", Unit: budget.InMoney, Amount: math.MaxInt64, Window: calendar.Total},
		} {
			budgettest.AddBudget(t, s.Budgets, huge, b)
			budgettest.AddBudget(t, s.Budgets, other, b)
			b.Hard = false
			budgettest.AddBudget(t, s.Budgets, tenancy.App{}, b)
		}
		most := amount.Quantities{
			InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64, CacheReadTokens: math.MaxInt64, CacheWriteTokens: math.MaxInt64,
			ReasoningTokens: math.MaxInt64, ModelCalls: math.MaxInt64,
		}
		kinds := map[amount.Kind]amount.Quantities{
			amount.ModelCall: most, amount.ToolCall: {ToolCalls: math.MaxInt64}, amount.Run: {Runs: math.MaxInt64, RunTime: math.MaxInt64},
			amount.Embedding: {Embeddings: math.MaxInt64}, amount.Storage: {StoredBytes: math.MaxInt64},
		}
		var rows []usage.Row
		for kind, q := range kinds {
			for range 3 {
				rows = append(rows, usage.Row{
					Task: "t", Key: agentsvc.NewID(), Usage: price.Usage{Kind: kind, At: at, Provider: "p", Model: "m", Quantities: q},
					Price: price.Price{Cost: math.MaxInt64, Charge: math.MaxInt64, Currency: "USD", Version: "1"},
				})
			}
		}
		var b db.Batch
		usage.InsertRows(&b, huge.ID, rows)
		exact := usage.Row{
			Task: "t", Usage: price.Usage{
				Kind: amount.ModelCall, At: at, Provider: "p", Model: "m", Quantities: amount.Quantities{InputTokens: odd, OutputTokens: 1, ModelCalls: 1},
			},
			Price: price.Price{Cost: 1, Charge: odd, Currency: "USD", Version: "1"},
		}
		for range 3 {
			exact.Key = agentsvc.NewID()
			usage.InsertRows(&b, other.ID, []usage.Row{exact})
		}
		agentsvctest.RequireNoErrors(t, d.Platform().Write(ctx, &b))

		_, sum, err := s.Usage.SumUsage(ctx, huge.ID, "", usage.Query{From: since, To: at.Add(time.Hour)})
		agentsvctest.RequireNoErrors(t, err)
		if sum.InputTokens != math.MaxInt64 || sum.Charge != math.MaxInt64 || sum.StoredBytes != math.MaxInt64 || sum.RunTime < math.MaxInt64/2 {
			t.Errorf("the huge sums are %+v", sum)
		}
		_, sum, err = s.Usage.SumUsage(ctx, other.ID, "", usage.Query{From: since, To: at.Add(time.Hour), By: usage.Groups})
		agentsvctest.RequireNoErrors(t, err)
		if sum.InputTokens != 3*odd || sum.Charge != 3*odd || sum.ModelCalls != 3 {
			t.Errorf("the other app's sums are %+v", sum)
		}

		wrong, err := s.Budgets.RebuildBalances(ctx)
		agentsvctest.RequireNoErrors(t, err, s.Budgets.RecountNewBudgets(ctx, time.Minute))
		if len(wrong) != 6 {
			t.Errorf("%d balances were worked out anew, want 6: %+v", len(wrong), wrong)
		}
		wantBalance := func(app db.ID, name string, want int64) {
			t.Helper()
			if got := budgettest.FindBalance(t, s.Budgets, app, name); got != [2]int64{want, 0} {
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
		a := budgettest.NewRequest()
		a.Provider, a.Model = "p", "m"
		r, err := s.Budgets.NewGate(other.ID, "").ReserveBudget(ctx, a)
		agentsvctest.RequireNoErrors(t, err)
		agentsvctest.RequireNoErrors(t, r.SettleReservation(ctx, s.Usage.NewMeter(other.ID, ""), budgettest.UsageOf(r, a, 5, 6)))
		wantBalance(other.ID, "tokens", 3*(odd+1)+11)
		wantBalance("", "tokens", math.MaxInt64)
		_, err = s.Budgets.NewGate(huge.ID, "").ReserveBudget(ctx, budgettest.NewRequest())
		wantExhausted(t, err, "tokens")
		for _, app := range []tenancy.App{huge, other, {}} {
			budgettest.AddBudget(t, s.Budgets, app, budget.Budget{Name: "another", Unit: budget.InTokens, Amount: 10, Window: calendar.Month})
		}

		for _, app := range []tenancy.App{huge, other} {
			made, err := s.Invoices.AddCredit(ctx, actor, app, invoice.Credit{Amount: 7, Expires: time.Now().Add(time.Hour)})
			agentsvctest.RequireNoErrors(t, err)
			drafts, err := s.Invoices.ListInvoices(ctx, app)
			agentsvctest.RequireNoErrors(t, err)
			if len(drafts) == 0 {
				t.Fatalf("app %s has no draft", app.Name)
			}
			last := drafts[0]
			final, err := s.Invoices.FinalizeInvoice(ctx, actor, app, last.ID, invoice.FinalizeOptions{Force: true})
			agentsvctest.RequireNoErrors(t, err)
			want := amount.Money(math.MaxInt64)
			if app.ID == other.ID {
				want = 3*odd + 10
			}
			if got := final.Totals; len(got) != 1 || got[0].Charge != want || got[0].Credits != 7 || got[0].Due+got[0].Remainder != want-7 {
				t.Errorf("the invoice of %s comes to %+v, want %d less 7", app.Name, got, want)
			}
			agentsvctest.RequireNoErrors(t, final.WriteCSV(io.Discard), final.WriteHTML(io.Discard))
			note, err := s.Invoices.ReverseInvoice(ctx, actor, app, last.ID)
			agentsvctest.RequireNoErrors(t, err, note.WriteCSV(io.Discard), note.WriteHTML(io.Discard))
			agentsvctest.RequireNoErrors(t, s.Invoices.RevokeCredit(ctx, actor, app, made.ID), s.Invoices.ExpireCredits(ctx))
			balances, err := s.Ledgers.ListAccountBalances(ctx, app.ID)
			agentsvctest.RequireNoErrors(t, err)
			if balances["USD"][ledger.Receivable] != 0 || balances["USD"][ledger.Revenue] != 0 {
				t.Errorf("the books of %s stand at %v", app.Name, balances)
			}
		}
		agentsvctest.RequireNoErrors(t, s.Invoices.FinalizeDueInvoices(ctx), exporter.DeliverAll(ctx))
		list, err := s.Exports.ListExports(ctx)
		agentsvctest.RequireNoErrors(t, err)
		for _, x := range list {
			if x.Rows != 19 || x.Refused != 0 || x.Error != "" {
				t.Errorf("export %+v, want 19 rows", x)
			}
		}
		if posted.Load() != 19 || events.Load() == 0 {
			t.Errorf("%d rows were posted, %d events sent to Stripe", posted.Load(), events.Load())
		}
		agentsvctest.RequireNoErrors(t, s.CloseApp(context.WithoutCancel(ctx), actor, huge))
		wantBalance("", "tokens", math.MaxInt64)
	})
}

func wantExhausted(t testing.TB, err error, budgets ...string) {
	t.Helper()
	if e := agentsvc.DetailOf[*agentsvc.ExhaustedBudget](err); e == nil || !slices.Contains(budgets, e.Budget) {
		t.Errorf("error %v, want that one of %v is used up", err, budgets)
	}
}
