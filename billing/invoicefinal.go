package billing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// ErrPrecondition says that something else must be done first.
var ErrPrecondition = errors.New("not possible as things are")

// Finalize makes the draft of a month final: it gets its number, its charges and what credits pay of them are posted, and
// usage of the month that is recorded later lands on the next invoice. A month that is not over is closed early, one that
// has not begun is not ([ErrPrecondition]). To do so again changes nothing. Earlier drafts come first ([ErrPrecondition]); an
// invoice that is not there is [ErrNotFound].
func (s *Service) Finalize(ctx context.Context, actor string, app tenancy.App, id string) (Invoice, error) {
	var out Invoice
	err := s.inLedger(ctx, app, func(l *ledger) error {
		var err error
		if out, err = readInvoice(ctx, l.tx.Query, app.ID, id); errors.Is(err, ErrNotFound) {
			out, err = s.finalize(ctx, l, actor, app, id)
		}
		return err
	})
	if err != nil {
		return Invoice{}, fmt.Errorf("finalize invoice %s: %w", id, err)
	}
	return out, nil
}

// finalize makes the first draft final, which must be the one of that id, "" = whichever it is.
func (s *Service) finalize(ctx context.Context, l *ledger, actor string, app tenancy.App, id string) (Invoice, error) {
	c := s.counting(l.tx.Query, app, l.state, l.now)
	span, found, err := c.next(ctx)
	switch {
	case err != nil:
		return Invoice{}, err
	case !found || id != "" && span.month > id:
		return Invoice{}, errNoInvoice
	case id != "" && span.month < id:
		if _, err := time.Parse("2006-01", id); err != nil {
			return Invoice{}, errNoInvoice
		}
		return Invoice{}, refuse(ErrPrecondition, "the invoice of %s comes first", span.month)
	case id != "" && l.now.Before(c.begin(span)):
		return Invoice{}, refuse(ErrPrecondition, "the month %s has not begun", span.month)
	}
	if err := l.mark(ctx, &c, span); err != nil {
		return Invoice{}, err
	}
	have, err := credits(ctx, l.tx.Query, app.ID)
	if err != nil {
		return Invoice{}, err
	}
	left := slices.Clone(have)
	d, err := c.draft(ctx, span, left)
	if err != nil {
		return Invoice{}, err
	}
	if err := l.enter(ctx, d); err != nil {
		return Invoice{}, err
	}
	end := min(span.end, l.now.UnixMicro())
	for _, credit := range left {
		if credit.Remaining > 0 && !credit.Expires.IsZero() && credit.Expires.UnixMicro() <= end {
			if err := l.close(ctx, EntryExpiry, credit); err != nil {
				return Invoice{}, err
			}
		}
	}
	if err := l.keep(ctx, &d.Invoice); err != nil {
		return Invoice{}, err
	}
	if err := l.unmark(ctx, c); err != nil {
		return Invoice{}, err
	}
	l.state = billed{span.month, span.end, c.sealed}
	return d.Invoice, tenancy.Audit(ctx, l.tx, tenancy.Entry{Actor: actor, Action: "invoice.finalize", App: app.Name, AppID: app.ID, Detail: map[string]any{
		"invoice": d.ID, "number": d.Number,
	}})
}

// enter posts what a draft says.
func (l *ledger) enter(ctx context.Context, d draft) error {
	var entries []Entry
	for _, t := range d.Totals {
		entries = append(entries, move(EntryCharge, t.Currency, t.Charge, Receivable, Revenue))
	}
	for currency, cost := range d.costs {
		entries = append(entries, move(EntryCost, currency, cost, Expense, Payable))
	}
	for _, u := range d.Credits {
		e := move(EntryUse, u.Currency, u.Amount, Unspent, Receivable)
		e.Credit = u.Credit
		entries = append(entries, e)
	}
	for _, e := range entries {
		e.Invoice = d.ID
		if err := l.post(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// Reverse takes a final invoice back as a whole with a credit note, which it returns: what it charges is no longer owed, and
// credits that paid for it are there again, unless they are over. The usage on it is not invoiced anew. To do so again
// changes nothing. A draft is [ErrPrecondition], an invoice that is not there [ErrNotFound].
func (s *Service) Reverse(ctx context.Context, actor string, app tenancy.App, id string) (Invoice, error) {
	var note Invoice
	err := s.inLedger(ctx, app, func(l *ledger) error {
		inv, err := readInvoice(ctx, l.tx.Query, app.ID, id)
		switch {
		case errors.Is(err, ErrNotFound):
			if span, found, err := s.counting(l.tx.Query, app, l.state, l.now).next(ctx); err == nil && found && span.month == id {
				return refuse(ErrPrecondition, "a draft needs no reversal; finalize it first")
			}
			return err
		case err != nil:
			return err
		case inv.Kind == CreditNote:
			return refuse(ErrPrecondition, "a credit note is not reversed")
		case inv.ReversedBy != "":
			note, err = readInvoice(ctx, l.tx.Query, app.ID, inv.ReversedBy)
			return err
		}
		note = inv.note()
		if err := l.reverse(ctx, inv); err != nil {
			return err
		}
		if err := l.keep(ctx, &note); err != nil {
			return err
		}
		return tenancy.Audit(ctx, l.tx, tenancy.Entry{Actor: actor, Action: "invoice.reverse", App: app.Name, AppID: app.ID, Detail: map[string]any{
			"invoice": id, "credit_note": note.ID, "number": note.Number,
		}})
	})
	if err != nil {
		return Invoice{}, fmt.Errorf("reverse invoice %s: %w", id, err)
	}
	return note, nil
}

// note is the credit note that takes inv back.
func (inv Invoice) note() Invoice {
	n := inv
	n.ID, n.Kind, n.Reverses = inv.ID+"-reversal", CreditNote, inv.ID
	n.Lines, n.Credits, n.Totals = slices.Clone(inv.Lines), slices.Clone(inv.Credits), slices.Clone(inv.Totals)
	for i := range n.Lines {
		n.Lines[i].Charge = -n.Lines[i].Charge
	}
	for i := range n.Credits {
		n.Credits[i].Amount = -n.Credits[i].Amount
	}
	for i, t := range n.Totals {
		n.Totals[i] = InvoiceTotal{t.Currency, -t.Charge, -t.Credits, -t.Due}
	}
	return n
}

// reverse posts the opposite of what was posted when inv was made. What a credit has paid comes back to it, and goes the way
// of what was left of it if that was its end.
func (l *ledger) reverse(ctx context.Context, inv Invoice) error {
	for _, t := range inv.Totals {
		e := move(EntryReversal, t.Currency, t.Charge, Revenue, Receivable)
		e.Invoice = inv.ID
		if err := l.post(ctx, e); err != nil {
			return err
		}
	}
	for _, u := range inv.Credits {
		e := move(EntryReturn, u.Currency, u.Amount, Receivable, Unspent)
		e.Invoice, e.Credit = inv.ID, u.Credit
		if err := l.post(ctx, e); err != nil {
			return err
		}
	}
	all, err := credits(ctx, l.tx.Query, l.app)
	if err != nil {
		return err
	}
	for _, u := range inv.Credits {
		i := slices.IndexFunc(all, func(c Credit) bool { return c.ID == u.Credit })
		if i < 0 {
			continue
		}
		c, why := all[i], EntryExpiry
		if c.Status == CreditRevoked {
			why = EntryRevocation
		} else if c.Expires.IsZero() || c.Expires.UnixMicro() > min(l.now.UnixMicro(), l.state.until) {
			continue
		}
		if err := l.close(ctx, why, c); err != nil {
			return err
		}
	}
	return nil
}

// Close makes the drafts of an app final that is to be deleted, takes back what is left of its credits, and notes what it has
// used of the platform's budgets. It may be called again.
func (s *Service) Close(ctx context.Context, actor string, app tenancy.App) error {
	err := s.db.Platform().Tx(ctx, func(tx *db.Tx) error { return s.Meter(app.ID, app.Plan).sealDays(ctx, tx, -24*time.Hour) })
	if err != nil {
		return fmt.Errorf("close the books of app %s: %w", app.Name, err)
	}
	for more := true; more; {
		err := s.inLedger(ctx, app, func(l *ledger) error {
			_, err := s.finalize(ctx, l, actor, app, "")
			return err
		})
		more = err == nil
		if err != nil && !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("close the books of app %s: %w", app.Name, err)
		}
	}
	all, err := credits(ctx, s.ask, app.ID)
	for _, c := range all {
		if c.Remaining > 0 {
			err = errors.Join(err, s.RevokeCredit(ctx, actor, app, c.ID))
		}
	}
	return errors.Join(err, s.bequeath(ctx, app.ID))
}
