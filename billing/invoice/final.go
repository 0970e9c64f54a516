package invoice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"stoa/agentsvc"
	"stoa/billing/ledger"
	"stoa/billing/party"
	"stoa/tenancy"
	"stoa/tenancy/audit"
)

// FinalizeOptions allow what [Service.FinalizeInvoice] refuses by default.
type FinalizeOptions struct {
	// Force closes a month that has not ended.
	Force bool
	// AllowUnpriced charges nothing for what neither the price book nor the plan has a price for.
	AllowUnpriced bool
}

// FinalizeInvoice makes the draft of a month final: it assigns the number and posts the charges, the costs and the
// credits used. Usage of the month that is recorded later is on the next invoice. A repetition returns the final invoice.
//
// It returns [agentsvc.CodePrecondition] if the month has not begun, if an earlier draft must be finalized first or if o
// does not allow it, and [agentsvc.CodeNotFound] if there is no such draft.
func (s *Service) FinalizeInvoice(ctx context.Context, actor audit.Actor, app tenancy.App, id string, o FinalizeOptions) (Invoice, error) {
	var out Invoice
	err := s.ledger.Update(ctx, app, func(l *ledger.Tx) error {
		var err error
		if out, err = readInvoice(ctx, l.Query, app.ID, id); errors.Is(err, agentsvc.CodeNotFound) {
			out, err = s.finalizeFirstDraft(ctx, l, actor, app, id, o)
		}
		return err
	})
	if err != nil {
		return Invoice{}, fmt.Errorf("finalize invoice %s: %w", id, err)
	}
	return out, nil
}

// finalizeFirstDraft makes the first draft final. Its id must be id. The caller has locked the ledger; all statements are in
// its transaction.
func (s *Service) finalizeFirstDraft(ctx context.Context, l *ledger.Tx, actor audit.Actor, app tenancy.App, id string, o FinalizeOptions) (Invoice, error) {
	c, err := newFinalCounter(ctx, l, app)
	if err != nil {
		return Invoice{}, err
	}
	span, found, err := c.nextSpan(ctx)
	switch {
	case err != nil:
		return Invoice{}, err
	case !found || span.month > id:
		return Invoice{}, errNoInvoice
	case span.month < id:
		if _, err := time.Parse("2006-01", id); err != nil {
			return Invoice{}, errNoInvoice
		}
		return Invoice{}, agentsvc.NewError(agentsvc.CodePrecondition, "finalize the invoice of %s first", span.month)
	case l.Now.Before(c.spanBegin(span)):
		return Invoice{}, agentsvc.NewError(agentsvc.CodePrecondition, "the month %s has not begun", span.month)
	case !o.Force && l.Now.UnixMicro() < span.end:
		return Invoice{}, agentsvc.NewError(agentsvc.CodePrecondition, "the month %s ends at %s; to close it now, with the rest of its usage on the next invoice, "+
			`use force ({"force": true}, or --force)`, span.month, time.UnixMicro(span.end).UTC().Format(time.RFC3339))
	}
	return c.finalizeSpan(ctx, l, actor, span, o.AllowUnpriced)
}

// closeFirstDraft makes the first draft of an app final that is being deleted, and reports whether there was one. Its period
// ends now. Usage of a month that was closed early is on an invoice of its own: there is none of a month that has not begun.
func (s *Service) closeFirstDraft(ctx context.Context, l *ledger.Tx, actor audit.Actor, app tenancy.App) (bool, error) {
	c, err := newFinalCounter(ctx, l, app)
	if err != nil {
		return false, err
	}
	span, found, err := c.nextSpan(ctx)
	if err != nil || !found {
		return false, err
	}
	if span.until = min(span.end, l.Now.UnixMicro()); l.Now.Before(c.spanBegin(span)) {
		if span.month = l.Billed.Month; span.month == "" { // a row from a machine whose clock is fast
			span.month = monthName(l.Now, c.tariff.zone)
		}
		if span.id, err = findClosingID(ctx, l, span.month); err != nil {
			return false, err
		}
	}
	_, err = c.finalizeSpan(ctx, l, actor, span, true)
	return err == nil, err
}

// closingSuffix ends the id of an invoice of late usage that was made when the app was deleted.
const closingSuffix = "-closing"

// findClosingID returns the id of the next such invoice: 2026-11-closing, then 2026-11-closing2 and so on, for the usage that
// was recorded while a deletion was interrupted.
func findClosingID(ctx context.Context, l *ledger.Tx, month string) (string, error) {
	for n := 1; ; n++ {
		id := month + closingSuffix
		if n > 1 {
			id += strconv.Itoa(n)
		}
		if _, err := readInvoice(ctx, l.Query, l.App, id); err != nil {
			if errors.Is(err, agentsvc.CodeNotFound) {
				return id, nil
			}
			return "", err
		}
	}
}

// finalizeSpan makes the invoice of a span final and records that its usage is invoiced.
func (c usageCounter) finalizeSpan(ctx context.Context, l *ledger.Tx, actor audit.Actor, span invoiceSpan, allowUnpriced bool) (Invoice, error) {
	// The rows are fixed before they are summed: rows that become visible between the sums and the commit belong to the
	// next invoice.
	if err := markUsage(ctx, l, &c, span); err != nil {
		return Invoice{}, err
	}
	have, err := readCredits(ctx, l.Query, l.App)
	if err != nil {
		return Invoice{}, err
	}
	left := slices.Clone(have)
	carried, err := readCarried(ctx, l.Query, l.App)
	if err != nil {
		return Invoice{}, err
	}
	d, err := c.draftInvoice(ctx, span, left, carried)
	if err != nil {
		return Invoice{}, err
	}
	if d.UnpricedCalls > 0 && !allowUnpriced {
		line := d.Lines[slices.IndexFunc(d.Lines, func(l Line) bool { return l.Unpriced })]
		return Invoice{}, agentsvc.NewError(agentsvc.CodePrecondition, "%s would be charged nothing or in part, since neither the price book nor the plan has a price (%s). "+
			"A new price book applies to later calls only; an overage price of the plan charges these as well. To make the invoice final as it is, "+
			`use allow_unpriced ({"allow_unpriced": true}, or --allow-unpriced)`, countNoun(d.UnpricedCalls, "call"), line.Description())
	}
	if d.Parties, err = party.Read(ctx, l.Query, l.App); err != nil {
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
	return d.Invoice, audit.Insert(ctx, l.Tx, audit.Entry{Actor: actor, Action: "invoice.finalize", App: c.app.Name, AppID: c.app.ID, Detail: map[string]any{
		"invoice": d.ID, "number": d.Number,
	}})
}

// countNoun returns a count with its noun, in the plural unless it is 1.
func countNoun(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// storeDraft makes a draft final: it posts it, and stores it with its number and its usage.
func storeDraft(ctx context.Context, l *ledger.Tx, d *draft) error {
	if err := postDraft(ctx, l, *d); err != nil {
		return err
	}
	if err := storeInvoice(ctx, l, &d.Invoice, d.options); err != nil {
		return err
	}
	basis := d.basis
	if d.Replaces == "" {
		sums, err := json.Marshal(mergeSums(d.sums))
		if err != nil {
			return err
		}
		basis = string(sums)
	}
	_, err := l.Exec(ctx, `INSERT INTO invoice_basis (app, id, replaces, sums) VALUES ($1, $2, $3, $4)`, string(l.App), d.ID, d.Replaces, basis)
	return err
}

// postDraft posts the charges, the rounding, the taxes, the costs and the credit uses of a draft. Credits that are reinstated
// for it are before their use.
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
	for _, u := range d.reinstated {
		e := ledger.NewTransferEntry(ledger.EntryReinstatement, u.Currency, u.Amount, ledger.Promotion, ledger.Unspent)
		e.Credit = u.Credit
		entries = append(entries, e)
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
		if err := storeInvoice(ctx, l, &note, nil); err != nil {
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
		err := s.ledger.Update(ctx, app, func(l *ledger.Tx) (err error) {
			more, err = s.closeFirstDraft(ctx, l, actor, app)
			return err
		})
		if err != nil {
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
