package invoice

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/ledger"
	"stoa/billing/party"
	"stoa/billing/price"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// ReissueOptions say how a reissued invoice differs from the one that it replaces. The zero value keeps everything but the
// parties. They are stored with the new invoice.
type ReissueOptions struct {
	// Plan is the plan by whose present terms the usage is charged, "" for none; nil keeps the original's lines and taxes.
	Plan *string `json:"plan,omitempty"`
	// Buyer replaces the buyer; nil means that of the app, or for a deleted app that of the original.
	Buyer *party.Party `json:"buyer,omitempty"`
}

// ReissueInvoice invoices the usage of a reversed invoice again. The new invoice is final at once and has the lines,
// the taxes and the period of the original, whatever has become of its plan and its app; the credits that paid the
// original pay it again, also if they have expired or were revoked since. Seller and buyer are those of today while the
// app exists, else the original's. A repetition with equal options returns the new invoice. With other options, and for
// an invoice that is not reversed, it returns [agentsvc.CodePrecondition], for one that does not exist
// [agentsvc.CodeNotFound].
func (s *Service) ReissueInvoice(ctx context.Context, actor audit.Actor, app tenancy.App, id string, o ReissueOptions) (Invoice, error) {
	var out Invoice
	if o.Buyer != nil {
		if err := o.Buyer.Validate("buyer."); err != nil {
			return out, err
		}
	}
	err := s.ledger.Update(ctx, app, func(l *ledger.Tx) error {
		c, err := newFinalCounter(ctx, l, app)
		if err != nil {
			return err
		}
		was, err := c.readClosed(ctx, id)
		switch {
		case err != nil:
			return err
		case was.Kind == CreditNote:
			return agentsvc.NewError(agentsvc.CodePrecondition, "a credit note is not invoiced again; name the invoice %s", was.Reverses)
		case was.ReplacedBy != "":
			out, err = readRepeated(ctx, l, was, o)
			return err
		case was.ReversedBy == "":
			return agentsvc.NewError(agentsvc.CodePrecondition, "invoice %s is not reversed; reverse it first", id)
		}
		d, err := c.draftReissue(ctx, was, o.Plan)
		if err != nil {
			return err
		}
		if d.Parties, err = readReissueParties(ctx, l, was, o.Buyer); err != nil {
			return err
		}
		d.options = &o
		if err := storeDraft(ctx, l, &d); err != nil {
			return err
		}
		out = d.Invoice
		detail := map[string]any{"invoice": d.ID, "number": d.Number, "replaces": id}
		if o.Plan != nil {
			detail["plan"] = *o.Plan
		}
		return audit.Insert(ctx, l.Tx, audit.Entry{Actor: actor, Action: "invoice.reissue", App: app.Name, AppID: app.ID, Detail: detail})
	})
	if err != nil {
		return Invoice{}, fmt.Errorf("invoice %s again: %w", id, err)
	}
	return out, nil
}

// readRepeated returns the invoice that has replaced was if it was made with the options o. Otherwise the caller wants an
// invoice that does not exist: the error has the id of the one that can be made so.
func readRepeated(ctx context.Context, l *ledger.Tx, was Invoice, o ReissueOptions) (Invoice, error) {
	out, err := readInvoice(ctx, l.Query, l.App, was.ReplacedBy)
	if err != nil {
		return out, err
	}
	made, err := readReissueOptions(ctx, l, out.ID)
	if err != nil {
		return out, err
	}
	// As JSON, in which an address without lines is the same as none.
	given, err := json.Marshal(o)
	if err != nil {
		return out, err
	}
	if made == nil || string(given) == string(made) {
		return out, nil
	}
	last := out
	for last.ReplacedBy != "" {
		if last, err = readInvoice(ctx, l.Query, l.App, last.ReplacedBy); err != nil {
			return out, err
		}
	}
	advice := fmt.Sprintf("reverse %s first, then invoice %[1]s again with them", last.ID)
	if last.ReversedBy != "" {
		advice = fmt.Sprintf("invoice %s again, which is reversed, with them", last.ID)
	}
	return out, agentsvc.NewError(agentsvc.CodePrecondition, "invoice %s has been invoiced again as %s (number %d), with another plan or buyer than these; %s", was.ID, out.ID, out.Number, advice)
}

// readReissueOptions reads the options with which an invoice was made, as JSON; nil if an earlier version made it,
// which did not store them.
func readReissueOptions(ctx context.Context, l *ledger.Tx, id string) (json.RawMessage, error) {
	var stored struct {
		Options json.RawMessage `json:"reissue_options"`
	}
	err := l.Query(ctx, func(r db.Row) error {
		var body string
		if err := r.Scan(&body); err != nil {
			return err
		}
		return json.Unmarshal([]byte(body), &stored)
	}, `SELECT body FROM invoice WHERE app = $1 AND id = $2`, string(l.App), id)
	if err != nil {
		return nil, fmt.Errorf("read the options of invoice %s: %w", id, err)
	}
	return stored.Options, nil
}

// readReissueParties returns the parties of the invoice that replaces was: those of today while the app exists, else was's,
// because the buyer is deleted with its app.
func readReissueParties(ctx context.Context, l *ledger.Tx, was Invoice, buyer *party.Party) (party.Parties, error) {
	// The default app has no row in table app.
	exists := l.App == tenancy.DefaultID
	err := l.Query(ctx, func(r db.Row) error { exists = true; return r.Scan(new(int)) }, `SELECT 1 FROM app WHERE tenant = $1 AND status <> 'deleting'`, string(l.App))
	if err != nil {
		return party.Parties{}, fmt.Errorf("look for app %s: %w", l.App, err)
	}
	parties := was.Parties
	if exists {
		if parties, err = party.Read(ctx, l.Query, l.App); err != nil {
			return parties, err
		}
	}
	parties.Buyer = cmp.Or(buyer, parties.Buyer)
	return parties, nil
}

// draftReissue computes the invoice that replaces was, by the present terms of a plan or, if plan is nil, as was was made. It
// has no costs: a reversal leaves those posted.
func (c usageCounter) draftReissue(ctx context.Context, was Invoice, plan *string) (draft, error) {
	credits, err := readCredits(ctx, c.query, c.app.ID)
	if err != nil {
		return draft{}, err
	}
	c.app.Plan = was.Plan
	if plan != nil {
		c.app.Plan = *plan
		c.tariff = newTariff(c.terms, c.app)
	}
	d := draft{Invoice: c.newInvoice(nextID(was.ID))}
	d.Period, d.Replaces = was.Period, was.ID
	if d.basis, err = c.readBasis(ctx, was.ID); err != nil {
		return d, err
	}
	// payable is what credits may pay, by currency.
	payable := map[string]amount.Money{}
	if plan == nil {
		d.setLines(was.Lines)
		d.UnpricedCalls = was.UnpricedCalls
		for _, t := range was.Totals {
			payable[t.Currency] = t.Credits
		}
		d.payAgain(was.Credits, credits, payable, c.now)
		for i := range d.Totals {
			d.settleTotal(&d.Totals[i], was.taxesIn(d.Totals[i].Currency), was.carried())
		}
		return d, nil
	}
	if err := c.chargeByPlan(ctx, &d, was); err != nil {
		return d, err
	}
	for _, t := range d.Totals {
		payable[t.Currency] = t.Charge
	}
	d.payAgain(was.Credits, credits, payable, c.now)
	carried, err := readCarried(ctx, c.query, c.app.ID)
	if err != nil {
		return d, err
	}
	for i := range d.Totals {
		d.settleTotal(&d.Totals[i], c.tariff.plan.Taxes, carried)
	}
	return d, nil
}

// chargeByPlan sets the lines of d, which replaces was, by its usage and the present terms of the app's plan.
func (c usageCounter) chargeByPlan(ctx context.Context, d *draft, was Invoice) error {
	if _, ok := c.terms.Plan(c.app.Plan); !ok && c.app.Plan != "" {
		return agentsvc.NewInvalidError("plan", "there is no plan %.63q", c.app.Plan)
	}
	if d.basis == "" {
		return agentsvc.NewError(agentsvc.CodePrecondition, "the usage of invoice %s was not stored with it, so that no other plan can charge it; reissue it without a plan", was.ID)
	}
	if err := json.Unmarshal([]byte(d.basis), &d.sums); err != nil {
		return fmt.Errorf("read the usage of invoice %s: %w", was.ID, err)
	}
	var fee *Line
	// The base fee of a month is on the invoice of the month.
	if p := c.tariff.plan; p.BaseFee > 0 && !strings.Contains(was.ID, closingSuffix) {
		fee = &Line{Kind: BaseFeeLine, Plan: p.Name, Currency: p.Currency, Charge: p.BaseFee}
	}
	d.setUsageLines(c.tariff, fee)
	return nil
}

// payAgain lets the credits that paid an invoice pay d, which replaces it, also those that have expired or were revoked
// since, and then the open ones, up to payable in each currency.
func (d *draft) payAgain(paid []CreditUse, credits []Credit, payable map[string]amount.Money, now time.Time) {
	pay := func(c *Credit, limit amount.Money) {
		// A credit in a currency in which nothing is payable adds no total.
		if limit = min(limit, payable[c.Currency]); limit > 0 {
			limit = min(limit, d.totalFor(c.Currency).unpaid())
		}
		if limit <= 0 {
			return
		}
		if missing := limit - c.Remaining; missing > 0 {
			d.reinstated = append(d.reinstated, CreditUse{c.ID, c.Currency, missing})
			c.Remaining, c.Closed = c.Remaining+missing, c.Closed-missing
		}
		c.Remaining -= limit
		payable[c.Currency] -= limit
		d.recordCreditUse(c, limit)
	}
	for _, use := range paid {
		if i := slices.IndexFunc(credits, func(c Credit) bool { return c.ID == use.Credit }); i >= 0 {
			pay(&credits[i], min(use.Amount, credits[i].Remaining+credits[i].Closed))
		}
	}
	for i := range credits {
		// All of the usage is past, so each credit that has not expired can pay for all of it.
		if c := &credits[i]; c.Expires.IsZero() || c.Expires.After(now) {
			pay(c, c.Remaining)
		}
	}
}

// taxesIn returns the taxes on the amounts in a currency.
func (inv Invoice) taxesIn(currency string) (taxes []price.Tax) {
	for _, t := range inv.Taxes {
		if t.Currency == currency {
			taxes = append(taxes, t.Tax)
		}
	}
	return taxes
}

// carried returns what rounding had left of the invoices before inv. An invoice that replaces inv takes over the same: its
// postings then undo the rounding of the reversal.
func (inv Invoice) carried() map[string]amount.Money {
	carried := map[string]amount.Money{}
	for _, t := range inv.Totals {
		carried[t.Currency] = t.Carried
	}
	return carried
}

// readBasis reads the usage that an invoice charged, as JSON; "" if it was not stored.
func (c usageCounter) readBasis(ctx context.Context, id string) (sums string, err error) {
	err = c.query(ctx, func(r db.Row) error { return r.Scan(&sums) }, `SELECT sums FROM invoice_basis WHERE app = $1 AND id = $2`, string(c.app.ID), id)
	if err != nil {
		return "", fmt.Errorf("read the usage of invoice %s: %w", id, err)
	}
	return sums, nil
}

// nextID returns the id of the invoice that replaces another: 2026-11-2 for 2026-11, 2026-11-3 for 2026-11-2.
func nextID(id string) string {
	const month = len("2026-11")
	base, count := id[:month], id[month:]
	if rest, ok := strings.CutPrefix(count, closingSuffix); ok {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		base, count = base+closingSuffix+rest[:digits], rest[digits:]
	}
	n, err := strconv.Atoi(strings.TrimPrefix(count, "-"))
	if err != nil {
		n = 1
	}
	return base + "-" + strconv.Itoa(n+1)
}
