package billing_test

import (
	"testing"
	"time"

	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestUnheard: calls that began in a process that had not heard of a budget yet, or before it was made, count in it
// without anybody's help.
func TestUnheard(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		one, other := open(t, d), open(t, d)
		meter, allowance := other.Meter(acme.ID, ""), other.Allowance(acme.ID, "")
		free, bounded := ask(), ask()
		r, err := allowance.Reserve(t.Context(), free)
		if err != nil || r != nil {
			t.Fatalf("reserved %+v, %v of no budget", r, err)
		}
		began := time.Now()
		add(t, other, tenancy.App{}, calls(100))
		r, err = allowance.Reserve(t.Context(), bounded)
		if err != nil || r == nil {
			t.Fatal(r, err)
		}
		add(t, one, acme, tokens(1000))

		short := ask()
		if err := meter.Write(t.Context(), billing.FactsOf(short, used(&billing.Reservation{Began: began}, short, 3, 4))); err != nil {
			t.Fatal(err)
		}
		wantStanding(t, one, acme.ID, "tokens", 0, 0)
		if err := billing.SettleDown(one, t.Context()); err != nil {
			t.Fatal(err)
		}
		wantStanding(t, one, acme.ID, "tokens", 7, 0)

		if _, err := other.Budgets(t.Context(), acme.ID); err != nil { // now it hears of it
			t.Fatal(err)
		}
		if err := allowance.Spent(t.Context(), meter, free, used(&billing.Reservation{Began: began}, free, 10, 20)); err != nil {
			t.Fatal(err)
		}
		wantStanding(t, one, acme.ID, "tokens", 37, 0)
		if err := r.Settle(t.Context(), meter, used(r, bounded, 100, 863)); err != nil {
			t.Fatal(err)
		}
		wantStanding(t, one, acme.ID, "tokens", 1000, 0)
		wantStanding(t, one, "", "calls", 3, 0)
		if b, err := one.Find(t.Context(), acme.ID, "tokens"); err != nil || len(b.Passed) != 3 || b.Passed[2].Threshold != 100 || b.Passed[2].At.Before(began) {
			t.Errorf("passed %+v, %v, want three thresholds", b.Passed, err)
		}
		wantRight(t, one)
	})
}

// TestForeignBudget: a budget of the platform in another currency than an app's is in nobody's way there.
func TestForeignBudget(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := priced(t, d)
		add(t, s, tenancy.App{}, billing.Budget{Name: "euros", Unit: billing.InMoney, Currency: "EUR", Amount: 0, Window: billing.Total, Hard: true})
		a := s.Allowance(acme.ID, "")
		if err := a.Check(t.Context(), "assistant", ana); err != nil {
			t.Error(err)
		}
		if r, err := a.Reserve(t.Context(), ask()); err != nil || r != nil {
			t.Errorf("reserved %+v, %v", r, err)
		}
	})
}

// TestStored: what an app stores is a usage row a day, whoever measures it and however often, and is on its invoice.
func TestStored(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		_, err := s.AddPrice(t.Context(), actor, billing.Price{Version: "1", Currency: "USD", Effective: time.UnixMicro(0), Items: []billing.Item{
			charge("stored_bytes", "", "", 1000, 7),
		}})
		if err != nil {
			t.Fatal(err)
		}
		app := someApp()
		sample := func(bytes int64) {
			t.Helper()
			for range 2 { // two processes measure
				if err := s.Meter(app.ID, "").Sample(t.Context(), bytes); err != nil {
					t.Fatal(err)
				}
				bytes++
			}
		}
		stored := func() (rows int, bytes int64, charge billing.Money) {
			t.Helper()
			list, sum, err := s.Usage(t.Context(), app.ID, "", billing.Query{From: time.UnixMicro(0), To: time.Now().Add(time.Hour), By: []string{"day"}})
			if err != nil {
				t.Fatal(err)
			}
			return len(list), sum.StoredBytes, sum.Charge
		}
		back := func(hours int) { // as if all had been measured so much earlier
			t.Helper()
			var b db.Batch
			b.Exec(nil, `UPDATE stored_sample SET hour = hour - $2 WHERE tenant = $1`, string(app.ID), hours)
			if err := d.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
		sample(24_000)
		if n, _, _ := stored(); n != 0 {
			t.Error("a day that is not over has a row")
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
		if err := s.Close(t.Context(), actor, app); err != nil {
			t.Fatal(err)
		}
		_, bytes, charge := stored()
		if bytes != 1001 {
			t.Errorf("%d bytes, want those of the last day as well", bytes)
		}
		list, err := s.FinalInvoices(t.Context(), app.ID)
		if err != nil {
			t.Fatal(err)
		}
		var due billing.Money
		for _, inv := range list {
			due += inv.Totals[0].Due
		}
		if due != charge || due == 0 {
			t.Errorf("the invoices are about %d, the usage about %d", due, charge)
		}
	})
}
