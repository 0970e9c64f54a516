package invoice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/billing/ledger"
	"stoa/billing/party"
	"stoa/tenancy"
	"stoa/tenancy/audit"
)

// FinalizeInvoice makes the draft of a month final: it assigns the number and posts the charges, the costs and the
// credits used. Usage of the month that is recorded later is on the next invoice. A month that has not ended is closed
// early, with force only. A repetition returns the final invoice.
//
// It returns [agentsvc.CodePrecondition] if the month has not begun or, without force, not ended, or if an earlier draft
// must be finalized first, and [agentsvc.CodeNotFound] if there is no such draft.
func (s *Service) FinalizeInvoice(ctx context.Context, actor audit.Actor, app tenancy.App, id string, force bool) (Invoice, error) {
	var out Invoice
	err := s.ledger.Update(ctx, app, func(l *ledger.Tx) error {
		var err error
		if out, err = readInvoice(ctx, l.Query, app.ID, id); errors.Is(err, agentsvc.CodeNotFound) {
			out, err = s.finalizeFirstDraft(ctx, l, actor, app, id, force)
		}
		return err
	})
	if err != nil {
		return Invoice{}, fmt.Errorf("finalize invoice %s: %w", id, err)
	}
	return out, nil
}

// finalizeFirstDraft makes the first draft final. Its id must be id, unless that is "". A month that is running needs
// force. The caller has locked the
// ledger; all statements are in its transaction.
func (s *Service) finalizeFirstDraft(ctx context.Context, l *ledger.Tx, actor audit.Actor, app tenancy.App, id string, force bool) (Invoice, error) {
	c, err := newFinalCounter(ctx, l, app)
	if err != nil {
		return Invoice{}, err
	}
	span, found, err := c.nextSpan(ctx)
	switch {
	case err != nil:
		return Invoice{}, err
	case !found || id != "" && span.month > id:
		return Invoice{}, errNoInvoice
	case id != "" && span.month < id:
		if _, err := time.Parse("2006-01", id); err != nil {
			return Invoice{}, errNoInvoice
		}
		return Invoice{}, agentsvc.NewError(agentsvc.CodePrecondition, "finalize the invoice of %s first", span.month)
	case id != "" && l.Now.Before(c.spanBegin(span)):
		return Invoice{}, agentsvc.NewError(agentsvc.CodePrecondition, "the month %s has not begun", span.month)
	case !force && l.Now.UnixMicro() < span.end:
		return Invoice{}, agentsvc.NewError(agentsvc.CodePrecondition, "the month %s ends at %s; to close it now, with the rest of its usage on the next invoice, "+
			`use force ({"force": true}, or --force)`, span.month, time.UnixMicro(span.end).UTC().Format(time.RFC3339))
	}
	// The rows are fixed before they are summed: rows that become visible between the sums and the commit belong to the
	// next invoice.
	if err := markUsage(ctx, l, &c, span); err != nil {
		return Invoice{}, err
	}
	have, err := readCredits(ctx, l.Query, app.ID)
	if err != nil {
		return Invoice{}, err
	}
	left := slices.Clone(have)
	carried, err := readCarried(ctx, l.Query, app.ID)
	if err != nil {
		return Invoice{}, err
	}
	d, err := c.draftInvoice(ctx, span, left, carried)
	if err != nil {
		return Invoice{}, err
	}
	if err := storeDraft(ctx, l, &d); err != nil {
		return Invoice{}, err
	}
	// Credits that expired within the span are not needed any more.
	end := min(span.end, l.Now.UnixMicro())
	for _, credit := range left {
		if credit.Remaining > 0 && !credit.Expires.IsZero() && credit.Expires.UnixMicro() <= end {
			if err := closeCredit(ctx, l, ledger.EntryExpiry, credit); err != nil {
				return Invoice{}, err
			}
		}
	}
	if err := unmarkUsage(ctx, l, c); err != nil {
		return Invoice{}, err
	}
	l.Billed = ledger.Billed{Month: span.month, Until: span.end, Recorded: c.sealed}
	return d.Invoice, audit.Insert(ctx, l.Tx, audit.Entry{Actor: actor, Action: "invoice.finalize", App: app.Name, AppID: app.ID, Detail: map[string]any{
		"invoice": d.ID, "number": d.Number,
	}})
}

// storeDraft makes a draft final: it adds the parties, posts it, and stores it with its number and its usage.
func storeDraft(ctx context.Context, l *ledger.Tx, d *draft) error {
	var err error
	if d.Parties, err = party.Read(ctx, l.Query, l.App); err != nil {
		return err
	}
	if err := postDraft(ctx, l, *d); err != nil {
		return err
	}
	if err := storeInvoice(ctx, l, &d.Invoice); err != nil {
		return err
	}
	sums, err := json.Marshal(mergeSums(d.sums))
	if err != nil {
		return err
	}
	_, err = l.Exec(ctx, `INSERT INTO invoice_basis (app, id, replaces, sums) VALUES ($1, $2, $3, $4)`, string(l.App), d.ID, d.Replaces, string(sums))
	return err
}

// postDraft posts the charges, the rounding, the taxes, the costs and the credit uses of a draft.
func postDraft(ctx context.Context, l *ledger.Tx, d draft) error {
	var entries []ledger.Entry
	for _, t := range d.Totals {
		entries = append(entries,
			ledger.NewTransferEntry(ledger.EntryCharge, t.Currency, t.Charge, ledger.Receivable, ledger.Revenue),
			ledger.NewTransferEntry(ledger.EntryRounding, t.Currency, t.rounding(), ledger.Carried, ledger.Receivable),
			ledger.NewTransferEntry(ledger.EntryTax, t.Currency, t.Tax, ledger.Receivable, ledger.Tax))
	}
	for currency, cost := range d.costs {
		entries = append(entries, ledger.NewTransferEntry(ledger.EntryCost, currency, cost, ledger.Expense, ledger.Payable))
	}
	for _, u := range d.Credits {
		e := ledger.NewTransferEntry(ledger.EntryUse, u.Currency, u.Amount, ledger.Unspent, ledger.Receivable)
		e.Credit = u.Credit
		entries = append(entries, e)
	}
	for _, e := range entries {
		e.Invoice = d.ID
		if err := l.PostEntry(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// ReverseInvoice reverses a final invoice as a whole with a credit note, which it returns: its charges are no longer
// owed, and credits that paid for it are available again unless they have expired. Only ReissueInvoice invoices its usage
// again. A repetition returns the same credit note. For a draft or a credit note it returns [agentsvc.CodePrecondition], for an
// invoice that does not exist [agentsvc.CodeNotFound].
func (s *Service) ReverseInvoice(ctx context.Context, actor audit.Actor, app tenancy.App, id string) (Invoice, error) {
	var note Invoice
	err := s.ledger.Update(ctx, app, func(l *ledger.Tx) error {
		inv, err := newUsageCounter(l.Query, s.prices.CachedTerms(), app, l.Billed, l.Now).readClosed(ctx, id)
		switch {
		case err != nil:
			return err
		case inv.Kind == CreditNote:
			return agentsvc.NewError(agentsvc.CodePrecondition, "a credit note is not reversed")
		case inv.ReversedBy != "":
			note, err = readInvoice(ctx, l.Query, app.ID, inv.ReversedBy)
			return err
		}
		note = inv.newCreditNote()
		if err := postReversal(ctx, l, inv); err != nil {
			return err
		}
		if err := storeInvoice(ctx, l, &note); err != nil {
			return err
		}
		return audit.Insert(ctx, l.Tx, audit.Entry{Actor: actor, Action: "invoice.reverse", App: app.Name, AppID: app.ID, Detail: map[string]any{
			"invoice": id, "credit_note": note.ID, "number": note.Number,
		}})
	})
	if err != nil {
		return Invoice{}, fmt.Errorf("reverse invoice %s: %w", id, err)
	}
	return note, nil
}

// readClosed reads a final invoice. For a draft it returns [agentsvc.CodePrecondition].
func (c usageCounter) readClosed(ctx context.Context, id string) (Invoice, error) {
	inv, err := readInvoice(ctx, c.query, c.app.ID, id)
	if errors.Is(err, agentsvc.CodeNotFound) {
		if span, found, err := c.nextSpan(ctx); err == nil && found && span.month == id {
			return inv, agentsvc.NewError(agentsvc.CodePrecondition, "%s is a draft; finalize it first", id)
		}
	}
	return inv, err
}

// newCreditNote returns the credit note of inv: the same lines with negated amounts.
func (inv Invoice) newCreditNote() Invoice {
	n := inv
	n.ID, n.Kind, n.Reverses = inv.ID+"-reversal", CreditNote, inv.ID
	n.ReversesNumber = inv.Number
	n.Replaces, n.ReplacedBy = "", ""
	n.Lines, n.Credits, n.Totals, n.Taxes = slices.Clone(inv.Lines), slices.Clone(inv.Credits), slices.Clone(inv.Totals), slices.Clone(inv.Taxes)
	for i := range n.Lines {
		n.Lines[i].Charge = -n.Lines[i].Charge
	}
	for i := range n.Credits {
		n.Credits[i].Amount = -n.Credits[i].Amount
	}
	for i, t := range n.Totals {
		n.Totals[i] = t.negate()
	}
	for i := range n.Taxes {
		n.Taxes[i].Net, n.Taxes[i].Amount = -n.Taxes[i].Net, -n.Taxes[i].Amount
	}
	return n
}

// postReversal posts the opposite of the charges, the rounding, the taxes and the credit uses of inv; the costs stay, since the platform had them. A
// credit gets back what it had paid. If the credit was revoked or has expired, that amount is closed at once.
func postReversal(ctx context.Context, l *ledger.Tx, inv Invoice) error {
	for _, t := range inv.Totals {
		for _, e := range []ledger.Entry{
			ledger.NewTransferEntry(ledger.EntryReversal, t.Currency, t.Charge, ledger.Revenue, ledger.Receivable),
			ledger.NewTransferEntry(ledger.EntryReversal, t.Currency, t.rounding(), ledger.Receivable, ledger.Carried),
			ledger.NewTransferEntry(ledger.EntryReversal, t.Currency, t.Tax, ledger.Tax, ledger.Receivable),
		} {
			e.Invoice = inv.ID
			if err := l.PostEntry(ctx, e); err != nil {
				return err
			}
		}
	}
	for _, u := range inv.Credits {
		e := ledger.NewTransferEntry(ledger.EntryReturn, u.Currency, u.Amount, ledger.Receivable, ledger.Unspent)
		e.Invoice, e.Credit = inv.ID, u.Credit
		if err := l.PostEntry(ctx, e); err != nil {
			return err
		}
	}
	all, err := readCredits(ctx, l.Query, l.App)
	if err != nil {
		return err
	}
	for _, u := range inv.Credits {
		i := slices.IndexFunc(all, func(c Credit) bool { return c.ID == u.Credit })
		if i < 0 {
			continue
		}
		c, why := all[i], ledger.EntryExpiry
		if c.Status == CreditRevoked {
			why = ledger.EntryRevocation
		} else if c.Expires.IsZero() || c.Expires.UnixMicro() > min(l.Now.UnixMicro(), l.Billed.Until) {
			continue
		}
		if err := closeCredit(ctx, l, why, c); err != nil {
			return err
		}
	}
	return nil
}

// CloseAccount makes all drafts of an app that is to be deleted final and revokes its credits. It may be repeated.
func (s *Service) CloseAccount(ctx context.Context, actor audit.Actor, app tenancy.App) error {
	for more := true; more; {
		err := s.ledger.Update(ctx, app, func(l *ledger.Tx) error {
			_, err := s.finalizeFirstDraft(ctx, l, actor, app, "", true)
			return err
		})
		more = err == nil
		if err != nil && !errors.Is(err, agentsvc.CodeNotFound) {
			return err
		}
	}
	all, err := readCredits(ctx, queryOutside(s.db.Platform()), app.ID)
	for _, c := range all {
		if c.Remaining > 0 {
			err = errors.Join(err, s.RevokeCredit(ctx, actor, app, c.ID))
		}
	}
	return err
}
