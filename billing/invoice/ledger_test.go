package invoice_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/invoice"
	"stoa/billing/ledger"
	"stoa/billing/price"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestLedger runs usage, grants, expiry, finalization, reversal, invoicing again and late usage in random order. Every
// entry sums to zero, the receivable is what is due, what is carried is the difference to the usage less the credits
// used, and every row is on exactly one invoice that is not reversed.
func TestLedger(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := openPriced(t, d)
		_, err := s.Prices.AddPlan(t.Context(), actor, price.Plan{
			Name: "taxed", Currency: "USD", Overage: map[string]price.Overage{"model_calls": {Per: 1, Amount: callPrice}},
			Taxes: []price.Tax{{Name: "VAT", Rate: 190_000}, {Name: "levy", Rate: 12_345}},
		})
		if err != nil {
			t.Fatal(err)
		}
		checks := 0
		rapid.Check(t, func(t *rapid.T) {
			if checks++; checks > map[db.Engine]int{db.SQLite: 40, db.Postgres: 10}[d.Engine()] {
				return // a hundred take minutes on a busy machine
			}
			b := &ledgerModel{s: s, app: usagetest.NewApp(), reissued: map[string]bool{}}
			b.app.Plan = "taxed"
			b.checkInvariants(t)
			t.Repeat(map[string]func(*rapid.T){
				"":         b.checkInvariants,
				"use":      b.useCalls,
				"grant":    b.grantCredit,
				"revoke":   b.revokeCredit,
				"expire":   func(t *rapid.T) { requireNoError(t, s.Invoices.ExpireCredits(context.Background())) },
				"finalise": b.finalizeInvoice,
				"reverse":  b.reverseInvoice,
				"again":    b.reissueInvoice,
			})
			requireNoError(t, s.Invoices.CloseAccount(context.Background(), actor, b.app))
			b.checkInvariants(t)
			if balance := b.accountBalances(t)[ledger.Unspent]; balance != 0 {
				t.Fatalf("%d are left of the credits of an app that is closed", balance)
			}
		})
		wantGapless(t, d)
	})
}

func requireNoError(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// callPrice is the price of a call: less than half a cent, so that invoices are rounded up and down.
const callPrice = 3_100_001

// ledgerModel is the expected state of an app's ledger.
type ledgerModel struct {
	s       *services
	app     tenancy.App
	used    amount.Money
	granted amount.Money
	// reissued are the ids of the invoices that replace others.
	reissued map[string]bool
}

// drawTime draws the time of an event; some are before the last invoiced month.
func drawTime(t *rapid.T) time.Time {
	return january.Add(time.Duration(rapid.IntRange(0, 24*150).Draw(t, "hours")) * time.Hour)
}

func (m *ledgerModel) useCalls(t *rapid.T) {
	n := rapid.IntRange(1, 5).Draw(t, "calls")
	requireNoError(t, usagetest.RecordCalls(context.Background(), m.s.Usage, m.app, drawTime(t), n))
	m.used += amount.Money(callPrice * n)
}

func (m *ledgerModel) grantCredit(t *rapid.T) {
	c := invoice.Credit{ID: agentsvc.NewID(), Amount: amount.Money(rapid.IntRange(1, 20_000_000).Draw(t, "amount")), Currency: "USD"}
	if rapid.Bool().Draw(t, "expires") {
		c.Expires = drawTime(t)
	}
	requireNoError(t, invoice.GrantCredit(m.s.Invoices, context.Background(), m.app, c))
	m.granted += c.Amount
}

func (m *ledgerModel) revokeCredit(t *rapid.T) {
	if all := m.listCredits(t); len(all) > 0 {
		c := rapid.SampledFrom(all).Draw(t, "credit")
		requireNoError(t, m.s.Invoices.RevokeCredit(context.Background(), actor, m.app, c.ID))
	}
}

func (m *ledgerModel) finalizeInvoice(t *rapid.T) {
	drafts := slices.DeleteFunc(m.listInvoices(t), func(inv invoice.Invoice) bool { return inv.Status != invoice.Draft })
	if len(drafts) == 0 {
		return
	}
	want, err := m.s.Invoices.FindInvoice(context.Background(), m.app, drafts[len(drafts)-1].ID)
	requireNoError(t, err)
	got, err := m.s.Invoices.FinalizeInvoice(context.Background(), actor, m.app, want.ID, invoice.FinalizeOptions{Force: true})
	if errors.Is(err, agentsvc.CodePrecondition) && want.Period.From.After(time.Now()) {
		return // late usage is on the invoice of that month
	}
	requireNoError(t, err)
	if fmt.Sprint(want.Lines, want.Credits, want.Totals, want.Period) != fmt.Sprint(got.Lines, got.Credits, got.Totals, got.Period) {
		t.Fatalf("the draft %+v became %+v", want, got)
	}
	again, err := m.s.Invoices.FinalizeInvoice(context.Background(), actor, m.app, want.ID, invoice.FinalizeOptions{Force: true})
	if requireNoError(t, err); again.Number != got.Number {
		t.Fatalf("it got the numbers %d and %d", got.Number, again.Number)
	}
}

func (m *ledgerModel) reverseInvoice(t *rapid.T) {
	final := slices.DeleteFunc(m.listInvoices(t), func(inv invoice.Invoice) bool { return inv.Number == 0 || inv.Kind == invoice.CreditNote })
	if len(final) > 0 {
		_, err := m.s.Invoices.ReverseInvoice(context.Background(), actor, m.app, rapid.SampledFrom(final).Draw(t, "invoice").ID)
		requireNoError(t, err)
	}
}

func (m *ledgerModel) reissueInvoice(t *rapid.T) {
	reversed := slices.DeleteFunc(m.listInvoices(t), func(inv invoice.Invoice) bool { return inv.Status != invoice.Reversed })
	if len(reversed) == 0 {
		return
	}
	was := rapid.SampledFrom(reversed).Draw(t, "invoice")
	inv, err := m.s.Invoices.ReissueInvoice(context.Background(), actor, m.app, was.ID, invoice.ReissueOptions{})
	requireNoError(t, err)
	if inv.Replaces != was.ID || inv.Totals[0].Charge != was.Totals[0].Charge || was.ReplacedBy != "" && was.ReplacedBy != inv.ID {
		t.Fatalf("%+v\nwas invoiced again as\n%+v", was, inv)
	}
	m.reissued[inv.ID] = true
}

func (m *ledgerModel) listCredits(t *rapid.T) []invoice.Credit {
	all, err := m.s.Invoices.ListCredits(context.Background(), m.app)
	requireNoError(t, err)
	return all
}

func (m *ledgerModel) listInvoices(t *rapid.T) []invoice.Invoice {
	all, err := m.s.Invoices.ListInvoices(context.Background(), m.app)
	requireNoError(t, err)
	return all
}

func (m *ledgerModel) accountBalances(t *rapid.T) map[ledger.Account]amount.Money {
	all, err := m.s.Ledgers.ListAccountBalances(context.Background(), m.app.ID)
	requireNoError(t, err)
	return all["USD"]
}

// checkInvariants compares the ledger with the model.
func (m *ledgerModel) checkInvariants(t *rapid.T) {
	entries, err := m.s.Ledgers.ListEntries(context.Background(), m.app.ID, 0, 10_000)
	requireNoError(t, err)
	for i, e := range entries {
		var sum amount.Money
		for _, p := range e.Postings {
			sum += p.Amount
		}
		if sum != 0 || e.ID != int64(len(entries)-i) {
			t.Fatalf("entry %d of %d: %+v sums to %d", len(entries)-i, len(entries), e, sum)
		}
	}
	var invoiced, again, reversed, drafted, paid, due, tax amount.Money
	for _, inv := range m.listInvoices(t) {
		for _, total := range inv.Totals {
			if inv.Status != invoice.Draft {
				due += total.Due
				tax += total.Tax
			}
			switch {
			case inv.Status == invoice.Draft:
				drafted += total.Charge
			case m.reissued[inv.ID]:
				again += total.Charge
				paid += total.Credits
			case inv.Kind == invoice.CreditNote:
				reversed -= total.Charge
				paid += total.Credits
			default:
				invoiced += total.Charge
				paid += total.Credits
			}
			unit := amount.MinorUnit(total.Currency)
			if total.Charge-total.Credits+total.Carried != total.Net+total.Remainder || total.Due != total.Net+total.Tax || total.Net%unit != 0 || total.Due%unit != 0 {
				t.Fatalf("total %+v", total)
			}
		}
	}
	if invoiced+drafted != m.used {
		t.Fatalf("%d were used, %d are invoiced and %d on drafts", m.used, invoiced, drafted)
	}
	balances := m.accountBalances(t)
	if balances[ledger.Receivable] != due || balances[ledger.Carried] != invoiced+again-reversed-paid-(due-tax) || balances[ledger.Tax] != -tax ||
		balances[ledger.Revenue] != reversed-invoiced-again {
		t.Fatalf("invoiced %d, reversed %d, paid by credits %d; balances %v", invoiced, reversed, paid, balances)
	}
	var remaining amount.Money
	for _, c := range m.listCredits(t) {
		remaining += c.Remaining
		if c.Remaining < 0 || c.Remaining > c.Amount || c.Pending < 0 || c.Pending > c.Remaining {
			t.Fatalf("credit %+v", c)
		}
	}
	if -balances[ledger.Unspent] != remaining || balances[ledger.Promotion] != remaining+paid {
		t.Fatalf("granted %d, remaining %d, used %d; balances %v", m.granted, remaining, paid, balances)
	}
}

// wantGapless fails unless the numbers of all invoices are 1, 2, 3 and so on.
func wantGapless(t *testing.T, d *db.DB) {
	t.Helper()
	var numbers []int64
	var b db.Batch
	b.Query(func(r db.Row) error {
		var n int64
		err := r.Scan(&n)
		numbers = append(numbers, n)
		return err
	}, `SELECT number FROM invoice ORDER BY number`)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if len(numbers) == 0 {
		t.Error("there are no invoices")
	}
	for i, n := range numbers {
		if n != int64(i)+1 {
			t.Fatalf("invoice %d of all has the number %d", i+1, n)
		}
	}
}

// TestLedgerIsFrozen checks that entries and postings cannot be changed.
func TestLedgerIsFrozen(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app := openPriced(t, d), usagetest.NewApp()
		if err := cmp.Or(usagetest.RecordCalls(t.Context(), s.Usage, app, january, 1), invoice.GrantCredit(s.Invoices, t.Context(), app, invoice.Credit{ID: "c", Amount: 3, Currency: "USD"})); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Invoices.FinalizeInvoice(t.Context(), actor, app, "2026-01", invoice.FinalizeOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"ledger_entry", "ledger_posting", "credit", "invoice"} {
			for _, sql := range []string{"UPDATE " + table + " SET app = 'other'", "DELETE FROM " + table} {
				var b db.Batch
				b.Exec(nil, sql)
				if err := d.Platform().Do(t.Context(), &b); err == nil {
					t.Errorf("%s: no error", sql)
				}
			}
		}
	})
}
