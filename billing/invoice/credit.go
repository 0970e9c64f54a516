package invoice

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/ledger"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// Credit is an amount that an app was granted and that pays its invoices. It pays for usage from before it expires,
// even if that is invoiced later. Among several, the one that expires first pays first, then the older one.
type Credit struct {
	ID       string
	Amount   amount.Money
	Currency string
	// Expires is zero for a credit that never expires.
	Expires   time.Time
	Note      string
	CreatedAt time.Time
	CreatedBy string
	// Key is the idempotency key of the grant; see [Service.AddCredit]. Reads do not return it.
	Key string

	// Remaining is what is left by the ledger. Pending is the part of it that the current drafts would use.
	Remaining, Pending amount.Money
	Status             CreditStatus
	// Closed is what expired or was revoked of it, by the ledger.
	Closed amount.Money
}

// CreditStatus is whether a credit can still pay.
type CreditStatus string

// The states of a credit.
const (
	CreditOpen CreditStatus = "open"
	// CreditUsed has nothing left.
	CreditUsed CreditStatus = "used"
	// CreditExpired pays only for usage from before its end.
	CreditExpired CreditStatus = "expired"
	// CreditRevoked was revoked by the operator.
	CreditRevoked CreditStatus = "revoked"
)

// maxAmount bounds a grant to a thousand million of a currency, in nano-units, so that nine of them fit 64 bits.
const maxAmount amount.Money = 1_000_000_000_000_000_000

const (
	// maxNoteBytes bounds [Credit.Note].
	maxNoteBytes = 500
	// maxOpenCredits bounds the credits of an app that are not used up: each splits the sums of every draft (see
	// draftInvoice).
	maxOpenCredits = 100
	// maxGrantTries is how often a grant is tried when the connection to the database breaks.
	maxGrantTries = 3
)

// AddCredit grants a credit to an app. Without a currency it has the one in which the app is charged. With c.Key, one
// actor's grant takes effect once: a repetition returns the same credit, and [agentsvc.ErrKeyReused] if it asks for a
// different one. A request without a key gets one, so that the retries after a broken connection are safe as well.
func (s *Service) AddCredit(ctx context.Context, actor audit.Actor, app tenancy.App, c Credit) (Credit, error) {
	c.ID, c.CreatedBy = agentsvc.NewID(), actor.Name
	c.Key = cmp.Or(c.Key, c.ID)
	charged := s.prices.CurrencyForPlan(app.Plan)
	c.Currency = cmp.Or(c.Currency, charged)
	switch {
	case c.Amount < 1 || c.Amount > maxAmount:
		return Credit{}, agentsvc.NewInvalidError("amount", "must be more than 0 and at most %s (%d nano-units): a credit pays for the app, and is taken back by revoking it",
			maxAmount.Decimal(c.Currency), maxAmount)
	case !amount.IsCurrency(c.Currency):
		return Credit{}, agentsvc.NewInvalidError("currency", "must be the code of a currency (ISO 4217), such as USD")
	case charged != "" && c.Currency != charged:
		return Credit{}, agentsvc.NewInvalidError("currency", "the app is charged in %s: a credit in another currency would pay nothing", charged)
	case len(c.Note) > maxNoteBytes || !utf8.ValidString(c.Note) || strings.ContainsFunc(c.Note, unicode.IsControl):
		return Credit{}, agentsvc.NewInvalidError("note", "must be at most %d bytes of text without control characters", maxNoteBytes)
	case !c.Expires.IsZero() && !c.Expires.After(time.Now()):
		return Credit{}, agentsvc.NewInvalidError("expires_at", "must be in the future")
	}
	made, err := s.grantCredit(ctx, actor, app, c)
	for try := 1; db.IsUnavailable(err) && try < maxGrantTries && ctx.Err() == nil; try++ {
		// The first attempt may have committed: the key finds the credit.
		made, err = s.grantCredit(ctx, actor, app, c)
	}
	if err != nil {
		return Credit{}, fmt.Errorf("grant a credit: %w", err)
	}
	return made, nil
}

// grantCredit stores a credit and returns it as read in the same transaction, so an error always means that nothing was
// granted.
func (s *Service) grantCredit(ctx context.Context, actor audit.Actor, app tenancy.App, c Credit) (made Credit, err error) {
	var expires int64
	if !c.Expires.IsZero() {
		expires = c.Expires.UnixMicro()
	}
	err = s.ledger.Update(ctx, app, func(l *ledger.Tx) error {
		if c.Key != "" {
			id, err := findGranted(ctx, l, c, expires)
			if err != nil || id != "" {
				if err == nil {
					made, err = s.readCredit(ctx, l.Query, app, id)
				}
				return err
			}
		}
		open, err := readCredits(ctx, l.Query, app.ID)
		if err != nil {
			return err
		}
		if open = slices.DeleteFunc(open, func(c Credit) bool { return c.Remaining == 0 }); len(open) >= maxOpenCredits {
			return agentsvc.NewError(agentsvc.CodePrecondition, "the app has %d credits that are not used up; more are not allowed", len(open))
		}
		_, err = l.Exec(ctx, `INSERT INTO credit (app, id, amount, currency, expires_at, note, actor, created_at, idempotency_key)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			string(app.ID), c.ID, int64(c.Amount), c.Currency, expires, c.Note, c.CreatedBy, l.Now.UnixMicro(), c.Key)
		if err != nil {
			return err
		}
		e := ledger.NewTransferEntry(ledger.EntryGrant, c.Currency, c.Amount, ledger.Promotion, ledger.Unspent)
		e.Credit = c.ID
		if err := l.PostEntry(ctx, e); err != nil {
			return err
		}
		detail := map[string]any{"credit": c.ID, "amount": int64(c.Amount), "amount_decimal": c.Amount.Decimal(c.Currency), "currency": c.Currency, "note": c.Note}
		if !c.Expires.IsZero() {
			detail["expires_at"] = c.Expires.UTC().Format(time.RFC3339)
		}
		err = audit.Insert(ctx, l.Tx, audit.Entry{Actor: actor, Action: "credit.create", App: app.Name, AppID: app.ID, Detail: detail})
		if err != nil {
			return err
		}
		made, err = s.readCredit(ctx, l.Query, app, c.ID)
		return err
	})
	return made, err
}

// findGranted returns the id of the credit that the actor was granted under the key of c, "" if there is none. If that
// credit has other terms it returns [agentsvc.ErrKeyReused].
func findGranted(ctx context.Context, l *ledger.Tx, c Credit, expires int64) (id string, err error) {
	same := false
	err = l.Query(ctx, func(r db.Row) error {
		var amount, until int64
		var currency, note string
		err := r.Scan(&id, &amount, &currency, &until, &note)
		same = amount == int64(c.Amount) && currency == c.Currency && until == expires && note == c.Note
		return err
	}, `SELECT id, amount, currency, expires_at, note FROM credit WHERE app = $1 AND actor = $2 AND idempotency_key = $3`, string(l.App), c.CreatedBy, c.Key)
	if err == nil && id != "" && !same {
		err = agentsvc.ErrKeyReused
	}
	return id, err
}

// RevokeCredit closes a credit with what is left of it; what it has paid stays paid. A repetition has no effect. If
// there is no such credit it returns [agentsvc.CodeNotFound].
func (s *Service) RevokeCredit(ctx context.Context, actor audit.Actor, app tenancy.App, id string) error {
	err := s.ledger.Update(ctx, app, func(l *ledger.Tx) error {
		all, err := readCredits(ctx, l.Query, app.ID)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(c Credit) bool { return c.ID == id })
		if i < 0 {
			return errNoCredit
		}
		c := all[i]
		if c.Remaining == 0 {
			return nil
		}
		if err := closeCredit(ctx, l, ledger.EntryRevocation, c); err != nil {
			return err
		}
		return audit.Insert(ctx, l.Tx, audit.Entry{Actor: actor, Action: "credit.revoke", App: app.Name, AppID: app.ID, Detail: map[string]any{
			"credit": id, "amount": int64(c.Remaining), "amount_decimal": c.Remaining.Decimal(c.Currency), "currency": c.Currency,
		}})
	})
	if err != nil {
		return fmt.Errorf("revoke credit %s: %w", id, err)
	}
	return nil
}

var errNoCredit = agentsvc.NewError(agentsvc.CodeNotFound, "there is no such credit")

// closeCredit posts that the rest of c is no longer available.
func closeCredit(ctx context.Context, l *ledger.Tx, why ledger.EntryKind, c Credit) error {
	e := ledger.NewTransferEntry(why, c.Currency, c.Remaining, ledger.Unspent, ledger.Promotion)
	e.Credit = c.ID
	return l.PostEntry(ctx, e)
}

// ListCredits returns the credits of an app in the order in which they pay, with their status and pending amounts.
func (s *Service) ListCredits(ctx context.Context, app tenancy.App) ([]Credit, error) {
	return s.readAllCredits(ctx, queryOutside(s.db.Platform()), app)
}

// readAllCredits is ListCredits by a given query, so that it can run inside a transaction.
func (s *Service) readAllCredits(ctx context.Context, request queryFunc, app tenancy.App) ([]Credit, error) {
	a, err := s.computeAccount(ctx, request, app)
	if err != nil {
		return nil, err
	}
	for i := range a.credits {
		c := &a.credits[i]
		if i := slices.IndexFunc(a.creditsAfter, func(x Credit) bool { return x.ID == c.ID }); i >= 0 {
			c.Pending = c.Remaining - a.creditsAfter[i].Remaining
		}
		switch {
		case c.Status == CreditRevoked:
		case !c.Expires.IsZero() && !c.Expires.After(a.now):
			c.Status = CreditExpired
		case c.Remaining == 0:
			c.Status = CreditUsed
		}
	}
	return a.credits, nil
}

// readCredit returns a credit of an app. If there is none it returns errNoCredit. It computes all credits: what is
// pending depends on the order in which they pay.
func (s *Service) readCredit(ctx context.Context, request queryFunc, app tenancy.App, id string) (Credit, error) {
	all, err := s.readAllCredits(ctx, request, app)
	if err != nil {
		return Credit{}, err
	}
	if i := slices.IndexFunc(all, func(c Credit) bool { return c.ID == id }); i >= 0 {
		return all[i], nil
	}
	return Credit{}, errNoCredit
}

// readCredits reads the credits of an app from the ledger, in the order in which they pay. The remainder is the negated
// balance of a credit's postings to account credits, where a grant is negative.
func readCredits(ctx context.Context, request queryFunc, app db.ID) ([]Credit, error) {
	list := []Credit{}
	err := request(ctx, func(r db.Row) error {
		c := Credit{Status: CreditOpen}
		var expires, created, revoked int64
		err := r.Scan(&c.ID, (*int64)(&c.Amount), &c.Currency, &expires, &c.Note, &c.CreatedBy, &created, (*int64)(&c.Remaining), &revoked, (*int64)(&c.Closed))
		c.CreatedAt = time.UnixMicro(created).UTC()
		if expires != 0 {
			c.Expires = time.UnixMicro(expires).UTC()
		}
		if revoked > 0 {
			c.Status = CreditRevoked
		}
		list = append(list, c)
		return err
	}, `SELECT c.id, c.amount, c.currency, c.expires_at, c.note, c.actor, c.created_at,
			CAST(-SUM(p.amount) AS BIGINT), CAST(SUM(CASE WHEN e.kind = 'revocation' THEN 1 ELSE 0 END) AS BIGINT),
			CAST(SUM(CASE WHEN e.kind IN ('expiry', 'revocation', 'reinstatement') THEN p.amount ELSE 0 END) AS BIGINT)
		FROM credit c JOIN ledger_entry e ON e.app = c.app AND e.credit = c.id
			JOIN ledger_posting p ON p.app = e.app AND p.entry = e.id AND p.account = 'credits'
		WHERE c.app = $1 GROUP BY c.id, c.amount, c.currency, c.expires_at, c.note, c.actor, c.created_at
		ORDER BY CASE WHEN c.expires_at = 0 THEN 1 ELSE 0 END, c.expires_at, c.created_at, c.id`, string(app))
	if err != nil {
		return nil, fmt.Errorf("read the credits of app %s: %w", app, err)
	}
	return list, nil
}
