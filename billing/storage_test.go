package billing_test

import (
	"testing"
	"time"

	"stoa/billing/amount"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestSampleStorage checks that stored bytes become one usage row a day, with any number of samples and processes, and
// are on the invoice.
func TestSampleStorage(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := openBilling(t, d)
		_, err := s.Prices.AddVersion(t.Context(), actor, price.Version{Version: "1", Currency: "USD", Effective: time.UnixMicro(0), Items: []price.Item{
			usagetest.ChargeItem("stored_bytes", "", "", 1000, 7),
		}})
		if err != nil {
			t.Fatal(err)
		}
		app := usagetest.NewApp()
		sample := func(bytes int64) {
			t.Helper()
			for range 2 { // as two processes
				if err := s.Usage.NewMeter(app.ID, "").SampleStorage(t.Context(), bytes); err != nil {
					t.Fatal(err)
				}
				bytes++
			}
		}
		stored := func() (rows int, bytes int64, charge amount.Money) {
			t.Helper()
			list, sum, err := s.Usage.SumUsage(t.Context(), app.ID, "", usage.Query{From: time.UnixMicro(0), To: time.Now().Add(time.Hour), By: []string{"day"}})
			if err != nil {
				t.Fatal(err)
			}
			return len(list), sum.StoredBytes, sum.Charge
		}
		back := func(hours int) { // moves all samples into the past
			t.Helper()
			var b db.Batch
			b.Exec(nil, `UPDATE stored_sample SET hour = hour - $2 WHERE tenant = $1`, string(app.ID), hours)
			if err := d.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Usage.NewMeter(app.ID, "").SampleStorage(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		back(72)
		sample(24_000)
		if n, _, _ := stored(); n != 0 {
			t.Error("a day that is not over, or on which nothing was kept, has a row")
		}
		back(48)
		sample(48_000)
		if n, bytes, charge := stored(); n != 1 || bytes != 1000 || charge != 7 {
			t.Errorf("%d rows of %d bytes for %d, want one of 1000 for 7", n, bytes, charge)
		}
		back(48) // a sample of a day that has its row changes nothing
		sample(1)
		if n, bytes, _ := stored(); n != 1 || bytes != 1000 {
			t.Errorf("%d rows of %d bytes, want one of 1000", n, bytes)
		}
		if err := s.CloseApp(t.Context(), actor, app); err != nil {
			t.Fatal(err)
		}
		_, bytes, charge := stored()
		if bytes != 1001 {
			t.Errorf("%d bytes, want those of the last day as well", bytes)
		}
		list, err := s.Invoices.ListFinalInvoices(t.Context(), app.ID)
		if err != nil {
			t.Fatal(err)
		}
		var due amount.Money
		for _, inv := range list {
			due += inv.Totals[0].Due + inv.Totals[0].Remainder - inv.Totals[0].Carried
		}
		if due != charge || due == 0 {
			t.Errorf("the invoices are about %d, the usage about %d", due, charge)
		}
	})
}
