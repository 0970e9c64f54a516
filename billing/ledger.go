package billing

import (
	"context"
	"fmt"
	"math"
	"time"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Account is one of those that the books of each app have, in each currency. What is debited to one is positive.
type Account string

// The accounts.
const (
	Receivable Account = "receivable" // what the app owes: invoiced, less the credits used for it
	Revenue    Account = "revenue"    // what was invoiced
	Unspent    Account = "credits"    // what was granted and is left
	Promotion  Account = "promotion"  // what credits cost the platform
	Expense    Account = "cost"       // what the invoiced usage costs the platform
	Payable    Account = "payable"    // to those whom it pays for that
)

// EntryKind says what an entry of the books is about.
type EntryKind string

// The kinds of entries.
const (
	EntryCharge     EntryKind = "charge"     // an invoice: receivable to revenue
	EntryCost       EntryKind = "cost"       // what the usage on it costs: cost to payable
	EntryGrant      EntryKind = "grant"      // a credit: promotion to credits
	EntryUse        EntryKind = "use"        // a credit pays an invoice: credits to receivable
	EntryExpiry     EntryKind = "expiry"     // what is left of a credit at its end: credits to promotion
	EntryRevocation EntryKind = "revocation" // the same where the operator took it back
	EntryReturn     EntryKind = "return"     // a use taken back, with the invoice
	EntryReversal   EntryKind = "reversal"   // an invoice taken back: revenue to receivable
)

// LedgerEntry is one of the books of an app. Its postings sum to zero; it never changes.
type LedgerEntry struct {
	ID       int64
	Kind     EntryKind
	Invoice  string // that it belongs to, "" = none
	Credit   string // that it is about, "" = none
	Currency string
	At       time.Time
	Postings []Posting
}

// Posting is what an entry does to an account: it debits it, or credits it where Amount is negative.
type Posting struct {
	Account Account
	Amount  Money
}

// newTransferEntry is an entry by which an amount goes from one account to another.
func newTransferEntry(kind EntryKind, currency string, amount Money, to, from Account) LedgerEntry {
	return LedgerEntry{Kind: kind, Currency: currency, Postings: []Posting{{to, amount}, {from, -amount}}}
}

// ledger is the books of an app, held for writing within a transaction.
type ledger struct {
	tx      *db.Tx
	app     db.ID
	entries int64 // there are
	state   billedState
	now     time.Time // of the transaction
}

// billedState is how far usage is invoiced. Rows of before until that were recorded before recorded are, and of those that were
// recorded later the ones that usage_billed has.
type billedState struct {
	month    string // the last one, such as 2026-11; "" = none
	until    int64
	recorded int64
}

// updateLedger runs f in a transaction that has the books of app to itself, in whichever process others want them.
func (s *Service) updateLedger(ctx context.Context, app tenancy.App, f func(l *ledger) error) error {
	return s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO ledger (app, name, opened_at, entries, billed_month, billed_until, billed_recorded)
			VALUES ($1, $2, stoa_now(), 0, '', 0, 0) ON CONFLICT (app) DO UPDATE SET name = excluded.name`, string(app.ID), app.Name)
		if err != nil {
			return err
		}
		l := &ledger{tx: tx, app: app.ID}
		var now int64
		err = tx.Query(ctx, func(r db.Row) error {
			return r.Scan(&l.entries, &l.state.month, &l.state.until, &l.state.recorded, &now)
		}, `SELECT entries, billed_month, billed_until, billed_recorded, stoa_now() FROM ledger WHERE app = $1`, string(app.ID))
		if err != nil {
			return err
		}
		l.now = timeFromMicros(now)
		if err := f(l); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE ledger SET entries = $2, billed_month = $3, billed_until = $4, billed_recorded = $5 WHERE app = $1`,
			string(app.ID), l.entries, l.state.month, l.state.until, l.state.recorded)
		return err
	})
}

// postEntry adds an entry. One that moves nothing is none.
func (l *ledger) postEntry(ctx context.Context, e LedgerEntry) error {
	var sum Money
	var moves bool
	for _, p := range e.Postings {
		sum += p.Amount
		moves = moves || p.Amount != 0
	}
	if sum != 0 {
		return fmt.Errorf("post %s for app %s: the postings sum to %d", e.Kind, l.app, sum)
	}
	if !moves {
		return nil
	}
	l.entries++
	_, err := l.tx.Exec(ctx, `INSERT INTO ledger_entry (app, id, kind, invoice, credit, currency, at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		string(l.app), l.entries, string(e.Kind), e.Invoice, e.Credit, e.Currency, l.now.UnixMicro())
	if err != nil {
		return err
	}
	for _, p := range e.Postings {
		_, err := l.tx.Exec(ctx, `INSERT INTO ledger_posting (app, entry, account, amount) VALUES ($1, $2, $3, $4)`,
			string(l.app), l.entries, string(p.Account), int64(p.Amount))
		if err != nil {
			return err
		}
	}
	return nil
}

// ListAccountBalances returns what the accounts of an app stand at, by currency. Those of each currency sum to zero.
func (s *Service) ListAccountBalances(ctx context.Context, app db.ID) (map[string]map[Account]Money, error) {
	all := map[string]map[Account]Money{}
	var b db.Batch
	b.Query(func(r db.Row) error {
		var currency, account string
		var amount int64
		if err := r.Scan(&currency, &account, &amount); err != nil {
			return err
		}
		if all[currency] == nil {
			all[currency] = map[Account]Money{}
		}
		all[currency][Account(account)] = Money(amount)
		return nil
	}, `SELECT e.currency, p.account, `+sumSQL("p.amount")+` FROM ledger_entry e
		JOIN ledger_posting p ON p.app = e.app AND p.entry = e.id WHERE e.app = $1 GROUP BY e.currency, p.account`, string(app))
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read the balances of app %s: %w", app, err)
	}
	return all, nil
}

// ListLedgerEntries returns at most n entries of the books of an app, the newest first, of those before one (0 = of all).
func (s *Service) ListLedgerEntries(ctx context.Context, app db.ID, before int64, n int) ([]LedgerEntry, error) {
	if before <= 0 {
		before = math.MaxInt64
	}
	list := []LedgerEntry{}
	var b db.Batch
	b.Query(func(r db.Row) error {
		var e LedgerEntry
		var p Posting
		var at int64
		err := r.Scan(&e.ID, (*string)(&e.Kind), &e.Invoice, &e.Credit, &e.Currency, &at, (*string)(&p.Account), (*int64)(&p.Amount))
		if last := len(list) - 1; last >= 0 && list[last].ID == e.ID {
			list[last].Postings = append(list[last].Postings, p)
			return err
		}
		e.At, e.Postings = timeFromMicros(at), []Posting{p}
		list = append(list, e)
		return err
	}, `SELECT e.id, e.kind, e.invoice, e.credit, e.currency, e.at, p.account, p.amount
		FROM (SELECT * FROM ledger_entry WHERE app = $1 AND id < $2 ORDER BY id DESC LIMIT $3) e
		JOIN ledger_posting p ON p.app = e.app AND p.entry = e.id ORDER BY e.id DESC, p.account`, string(app), before, n)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read the books of app %s: %w", app, err)
	}
	return list, nil
}

// FindFormerApp returns the app of that id, or else the last one of that name, of which there are books although it may be gone.
func (s *Service) FindFormerApp(ctx context.Context, name string) (tenancy.App, error) {
	var app tenancy.App
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan((*string)(&app.ID), &app.Name) },
		`SELECT app, name FROM ledger WHERE app = $1 OR name = $1 ORDER BY app = $1 DESC, opened_at DESC LIMIT 1`, name)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return app, fmt.Errorf("look for the books of %s: %w", name, err)
	}
	if app.ID == "" {
		return app, errorWithMessage(ErrNotFound, "no such app")
	}
	return app, nil
}
