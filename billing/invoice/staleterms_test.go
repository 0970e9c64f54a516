package invoice_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/agentsvctest"
	"stoa/billing/amount"
	"stoa/billing/invoice"
	"stoa/billing/price"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestFinalInvoiceReadsTerms changes the plan and the price book in one process and makes an invoice final in another,
// whose caches have not heard of the change: the invoice has the prices of the database.
func TestFinalInvoiceReadsTerms(t *testing.T) {
	t.Parallel()
	finalize := func(ctx context.Context, s *services, app tenancy.App) error {
		_, err := s.Invoices.FinalizeInvoice(ctx, actor, app, "2026-01", invoice.FinalizeOptions{})
		return err
	}
	cases := map[string]struct {
		// before happens in the process that changes the plan, before it does; final in the other one.
		before, final func(ctx context.Context, s *services, app tenancy.App) error
		id            string
		// fee is the base fee on the invoice. The app has no history of plans, so only a reissue has one.
		fee amount.Money
	}{
		"finalize": {final: finalize, id: "2026-01"},
		"reissue": {
			before: func(ctx context.Context, s *services, app tenancy.App) error {
				if err := finalize(ctx, s, app); err != nil {
					return err
				}
				_, err := s.Invoices.ReverseInvoice(ctx, actor, app, "2026-01")
				return err
			},
			final: func(ctx context.Context, s *services, app tenancy.App) error {
				_, err := s.Invoices.ReissueInvoice(ctx, actor, app, "2026-01", invoice.ReissueOptions{Plan: &app.Plan})
				return err
			},
			id: "2026-01-2", fee: 7_000_000_000,
		},
		"deletion": {final: func(ctx context.Context, s *services, app tenancy.App) error {
			return s.Invoices.CloseAccount(ctx, audit.System, app)
		}, id: "2026-01"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
				s, ctx, app := openBilling(t, d), t.Context(), usagetest.NewApp()
				app.Plan = "yen"
				_, err := s.Prices.AddPlan(ctx, actor, price.Plan{Name: "yen", Currency: "USD"})
				agentsvctest.RequireNoErrors(t, err)
				other := openBilling(t, d)
				_, err = s.Prices.AddVersion(ctx, actor, price.Version{Version: "1", Currency: "USD", Effective: time.UnixMicro(0), Items: []price.Item{usagetest.ChargeItem("model_calls", "", "", 1, 10_000_000_000)}})
				agentsvctest.RequireNoErrors(t, err, usagetest.RecordCalls(ctx, s.Usage, app, usagetest.DateIn2026(1, 5), 1))
				if c.before != nil {
					agentsvctest.RequireNoErrors(t, c.before(ctx, s, app))
				}
				// The plan charges the meter by the book, so the book of the process that makes the invoice counts too.
				_, err = s.Prices.UpdatePlan(ctx, actor, price.Plan{
					Name: "yen", Currency: "USD", Taxes: []price.Tax{{Name: "VAT", Rate: 100_000}}, Included: map[string]int64{"model_calls": 0}, BaseFee: 7_000_000_000,
				})
				agentsvctest.RequireNoErrors(t, err, c.final(ctx, other, app))
				got, err := other.Invoices.FindFinalInvoice(ctx, app.ID, c.id)
				agentsvctest.RequireNoErrors(t, err)
				net := 10_000_000_000 + c.fee
				want := []invoice.Total{{Currency: "USD", Charge: net, Net: net, Tax: net / 10, Due: net + net/10}}
				if diff := cmp.Diff(want, got.Totals); diff != "" {
					t.Errorf("totals of %s (-want +got):\n%s", c.id, diff)
				}
			})
		})
	}
}
