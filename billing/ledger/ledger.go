// Package ledger has a ledger of double entry for each app. It is append-only, and outlives its app.
package ledger

import (
	"context"
	"fmt"
	"math"
	"time"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Account is an account of an app's ledger. Each app has all of them in each currency. Debits are positive, credits
// negative.
type Account string

// The accounts.
const (
	// Receivable is what the app owes: what was due by its invoices, in whole minor units of the currency.
	Receivable Account = "receivable"
	// Revenue is what was invoiced.
	Revenue Account = "revenue"
	// Unspent is what is left of the credits that were granted.
	Unspent Account = "credits"
	// Promotion is what granted credits cost the platform.
	Promotion Account = "promotion"
	// Carried is what rounding has left of invoices, and the next invoice takes over: less than a minor unit, unless
	// invoices were reversed.
	Carried Account = "carried"
	// Tax is the tax on invoices, which the platform owes the authorities.
	Tax Account = "tax"
	// Expense is what the invoiced usage costs the platform.
	Expense Account = "cost"
	// Payable is what the platform owes its vendors for that usage.
	Payable Account = "payable"
)

// EntryKind is the reason for an entry of the ledger.
type EntryKind string

// The kinds of entries, with the accounts that they debit and credit.
const (
	// EntryCharge is an invoice before tax: debits Receivable, credits Revenue.
	EntryCharge EntryKind = "charge"
	// EntryCost is the cost of the usage on an invoice: debits Expense, credits Payable.
	EntryCost EntryKind = "cost"
	// EntryRounding makes an invoice a multiple of the minor unit: debits Carried, credits Receivable, or the reverse.
	EntryRounding EntryKind = "rounding"
	// EntryTax is the tax of an invoice: debits Receivable, credits Tax.
	EntryTax EntryKind = "tax"
	// EntryGrant is a new credit: debits Promotion, credits Unspent.
	EntryGrant EntryKind = "grant"
	// EntryUse is a credit that pays for an invoice: debits Unspent, credits Receivable.
	EntryUse EntryKind = "use"
	// EntryExpiry closes a credit that has expired: debits Unspent, credits Promotion.
	EntryExpiry EntryKind = "expiry"
	// EntryRevocation closes a credit that the operator revoked: the same accounts as EntryExpiry.
	EntryRevocation EntryKind = "revocation"
	// EntryReinstatement undoes an EntryExpiry or an EntryRevocation of a credit that had paid an invoice and pays the one that
	// replaces it: debits Promotion, credits Unspent.
	EntryReinstatement EntryKind = "reinstatement"
	// EntryReturn undoes an EntryUse of a reversed invoice: debits Receivable, credits Unspent.
	EntryReturn EntryKind = "return"
	// EntryReversal undoes the EntryCharge, the EntryRounding and the EntryTax of a reversed invoice, in an entry each.
	EntryReversal EntryKind = "reversal"
)

// Entry is an entry of an app's ledger. Its postings sum to zero. It never changes: the database refuses to
// update or delete it, on PostgreSQL by the role's rights and on SQLite by triggers.
type Entry struct {
	// ID counts the entries of the app: 1, 2, 3 and so on, without gaps.
	ID   int64
	Kind EntryKind
	// Invoice is the id of the invoice that the entry belongs to, "" for none.
	Invoice string
	// Credit is the id of the credit that the entry is about, "" for none.
	Credit   string
	Currency string
	At       time.Time
	Postings []Posting
}

// Posting is one side of an entry. A positive Amount debits the account, a negative one credits it.
type Posting struct {
	Account Account
	Amount  amount.Money
}

// NewTransferEntry returns an entry that debits amount to one account (to) and credits it to another (from).
func NewTransferEntry(kind EntryKind, currency string, amount amount.Money, to, from Account) Entry {
	return Entry{Kind: kind, Currency: currency, Postings: []Posting{{to, amount}, {from, -amount}}}
}

// Service stores the ledgers of apps. It is safe for concurrent use, in any number of processes on one database.
type Service struct{ db *db.DB }

// New returns the ledgers in database d.
func New(d *db.DB) *Service { return &Service{d} }

// Tx is the ledger of an app within a transaction that has locked it. [Service.Update] makes it, and stores
// Billed at the end.
type Tx struct {
	*db.Tx
	App db.ID
	// Now is the database's time at the beginning of the transaction.
	Now time.Time
	// Billed is how far usage is invoiced. The function that Update calls may change it.
	Billed Billed
	// entries is the number of entries, which is the id of the last one.
	entries int64
}

// Billed says which usage is invoiced: the rows used before Until and recorded before Recorded, and of those used
// before Until but recorded later the ones in table usage_billed. Both times are Unix microseconds. The second time is
// needed because a row becomes visible some time after the recorded_at it carries.
type Billed struct {
	// Month is the last invoiced month, such as 2026-11; "" for none.
	Month    string
	Until    int64
	Recorded int64
}

// Update calls f in a transaction that has locked the ledger of app, which it creates if there is none, and then
// stores the ledger's state. The insert updates the name of an existing row, which is what locks it: two processes
// cannot post at once.
func (s *Service) Update(ctx context.Context, app tenancy.App, f func(l *Tx) error) error {
	return s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO ledger (app, name, opened_at, entries, billed_month, billed_until, billed_recorded)
			VALUES ($1, $2, stoa_now(), 0, '', 0, 0) ON CONFLICT (app) DO UPDATE SET name = excluded.name`, string(app.ID), app.Name)
		if err != nil {
			return err
		}
		l := &Tx{Tx: tx, App: app.ID}
		var now int64
		err = tx.Query(ctx, func(r db.Row) error {
			return r.Scan(&l.entries, &l.Billed.Month, &l.Billed.Until, &l.Billed.Recorded, &now)
		}, `SELECT entries, billed_month, billed_until, billed_recorded, stoa_now() FROM ledger WHERE app = $1`, string(app.ID))
		if err != nil {
			return err
		}
		l.Now = time.UnixMicro(now).UTC()
		if err := f(l); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE ledger SET entries = $2, billed_month = $3, billed_until = $4, billed_recorded = $5 WHERE app = $1`,
			string(app.ID), l.entries, l.Billed.Month, l.Billed.Until, l.Billed.Recorded)
		return err
	})
}

// PostEntry appends an entry with the next id. If its postings do not sum to zero it returns an error; if all of them
// are zero it does nothing.
func (t *Tx) PostEntry(ctx context.Context, e Entry) error {
	var sum amount.Money
	var moves bool
	for _, p := range e.Postings {
		sum += p.Amount
		moves = moves || p.Amount != 0
	}
	if sum != 0 {
		return fmt.Errorf("post %s for app %s: the postings sum to %d", e.Kind, t.App, sum)
	}
	if !moves {
		return nil
	}
	t.entries++
	_, err := t.Exec(ctx, `INSERT INTO ledger_entry (app, id, kind, invoice, credit, currency, at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		string(t.App), t.entries, string(e.Kind), e.Invoice, e.Credit, e.Currency, t.Now.UnixMicro())
	if err != nil {
		return err
	}
	for _, p := range e.Postings {
		_, err := t.Exec(ctx, `INSERT INTO ledger_posting (app, entry, account, amount) VALUES ($1, $2, $3, $4)`,
			string(t.App), t.entries, string(p.Account), int64(p.Amount))
		if err != nil {
			return err
		}
	}
	return nil
}

// ListAccountBalances returns the balances of an app's accounts, by currency. Those of one currency sum to zero.
func (s *Service) ListAccountBalances(ctx context.Context, app db.ID) (map[string]map[Account]amount.Money, error) {
	all := map[string]map[Account]amount.Money{}
	var b db.Batch
	b.Query(func(r db.Row) error {
		var currency, account string
		var n int64
		if err := r.Scan(&currency, &account, &n); err != nil {
			return err
		}
		if all[currency] == nil {
			all[currency] = map[Account]amount.Money{}
		}
		all[currency][Account(account)] = amount.Money(n)
		return nil
	}, `SELECT e.currency, p.account, `+amount.SumSQL("p.amount")+` FROM ledger_entry e
		JOIN ledger_posting p ON p.app = e.app AND p.entry = e.id WHERE e.app = $1 GROUP BY e.currency, p.account`, string(app))
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read the balances of app %s: %w", app, err)
	}
	return all, nil
}

// ListEntries returns at most n entries of an app's ledger with an id below before, newest first; before 0 means
// no bound.
func (s *Service) ListEntries(ctx context.Context, app db.ID, before int64, n int) ([]Entry, error) {
	if before <= 0 {
		before = math.MaxInt64
	}
	list := []Entry{}
	var b db.Batch
	// The subquery limits entries, not postings.
	b.Query(func(r db.Row) error {
		var e Entry
		var p Posting
		var at int64
		err := r.Scan(&e.ID, (*string)(&e.Kind), &e.Invoice, &e.Credit, &e.Currency, &at, (*string)(&p.Account), (*int64)(&p.Amount))
		// The rows of one entry follow each other: append the further postings to it.
		if last := len(list) - 1; last >= 0 && list[last].ID == e.ID {
			list[last].Postings = append(list[last].Postings, p)
			return err
		}
		e.At, e.Postings = time.UnixMicro(at).UTC(), []Posting{p}
		list = append(list, e)
		return err
	}, `SELECT e.id, e.kind, e.invoice, e.credit, e.currency, e.at, p.account, p.amount
		FROM (SELECT * FROM ledger_entry WHERE app = $1 AND id < $2 ORDER BY id DESC LIMIT $3) e
		JOIN ledger_posting p ON p.app = e.app AND p.entry = e.id ORDER BY e.id DESC, p.account`, string(app), before, n)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read the ledger of app %s: %w", app, err)
	}
	return list, nil
}

// FindFormerApp returns the app with that id or, failing that, the latest one with that name that has a ledger. The app
// itself may be deleted: a ledger outlives its app. If there is none it returns [agentsvc.CodeNotFound].
func (s *Service) FindFormerApp(ctx context.Context, name string) (tenancy.App, error) {
	var app tenancy.App
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan((*string)(&app.ID), &app.Name) },
		`SELECT app, name FROM ledger WHERE app = $1 OR name = $1 ORDER BY app = $1 DESC, opened_at DESC LIMIT 1`, name)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return app, fmt.Errorf("look for the ledger of %s: %w", name, err)
	}
	if app.ID == "" {
		return app, agentsvc.NewError(agentsvc.CodeNotFound, "no such app")
	}
	return app, nil
}
