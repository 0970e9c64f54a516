package invoice

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"stoa/agentsvc"
	"stoa/billing/ledger"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// ReissueInvoice invoices the usage of a reversed invoice again, by the plan that the app has now, with its base fee. The
// usage keeps its price; the credits that are open now pay. The new invoice is final at once. A repetition returns it.
// For an invoice that is not reversed it returns [agentsvc.CodePrecondition], for one that does not exist
// [agentsvc.CodeNotFound].
func (s *Service) ReissueInvoice(ctx context.Context, actor audit.Actor, app tenancy.App, id string) (Invoice, error) {
	var out Invoice
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
			out, err = readInvoice(ctx, l.Query, app.ID, was.ReplacedBy)
			return err
		case was.ReversedBy == "":
			return agentsvc.NewError(agentsvc.CodePrecondition, "invoice %s is not reversed; reverse it first", id)
		}
		d, err := c.draftReissue(ctx, was)
		if err != nil {
			return err
		}
		if err := storeDraft(ctx, l, &d); err != nil {
			return err
		}
		out = d.Invoice
		return audit.Insert(ctx, l.Tx, audit.Entry{Actor: actor, Action: "invoice.reissue", App: app.Name, AppID: app.ID, Detail: map[string]any{
			"invoice": d.ID, "number": d.Number, "replaces": id,
		}})
	})
	if err != nil {
		return Invoice{}, fmt.Errorf("invoice %s again: %w", id, err)
	}
	return out, nil
}

// draftReissue computes the invoice that replaces was. It has no costs: a reversal leaves those posted.
func (c usageCounter) draftReissue(ctx context.Context, was Invoice) (draft, error) {
	d := draft{Invoice: c.newInvoice(nextID(was.ID))}
	d.Period, d.Replaces = was.Period, was.ID
	var err error
	if d.sums, err = c.readSums(ctx, was.ID); err != nil {
		return d, err
	}
	credits, err := readCredits(ctx, c.query, c.app.ID)
	if err != nil {
		return d, err
	}
	// All of the usage is past, so each credit that has not expired can pay for all of it.
	credits = slices.DeleteFunc(credits, func(x Credit) bool { return !x.Expires.IsZero() && !x.Expires.After(c.now) })
	carried, err := readCarried(ctx, c.query, c.app.ID)
	if err != nil {
		return d, err
	}
	var fee *Line
	if p := c.tariff.plan; p.BaseFee > 0 {
		fee = &Line{Kind: BaseFeeLine, Plan: p.Name, Currency: p.Currency, Charge: p.BaseFee}
	}
	d.charge(c.tariff, fee, credits, carried)
	return d, nil
}

// readSums reads the usage that an invoice charged.
func (c usageCounter) readSums(ctx context.Context, id string) ([]invoiceSum, error) {
	sums := ""
	err := c.query(ctx, func(r db.Row) error { return r.Scan(&sums) }, `SELECT sums FROM invoice_basis WHERE app = $1 AND id = $2`, string(c.app.ID), id)
	if err != nil {
		return nil, fmt.Errorf("read the usage of invoice %s: %w", id, err)
	}
	if sums == "" {
		return nil, agentsvc.NewError(agentsvc.CodePrecondition, "the usage of invoice %s was not stored with it; charge it by hand", id)
	}
	var list []invoiceSum
	err = json.Unmarshal([]byte(sums), &list)
	return list, err
}

// nextID returns the id of the invoice that replaces another: 2026-11-2 for 2026-11, 2026-11-3 for 2026-11-2.
func nextID(id string) string {
	n := 1
	if parts := strings.SplitN(id, "-", 3); len(parts) == 3 {
		n, _ = strconv.Atoi(parts[2])
		id = parts[0] + "-" + parts[1]
	}
	return id + "-" + strconv.Itoa(n+1)
}
