// Package invoice charges apps. An [Invoice] charges a month: it is a draft, computed from the usage rows at each
// request, until it is made final and stored. Each [Credit] that an app was granted pays a part of its invoices. What
// is final is posted to the app's ledger.
package invoice

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/ledger"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Invoice is what an app is charged for a month, or a credit note that reverses an invoice. A draft is computed at each
// request. A final invoice is stored as the JSON of this struct and never changes; only Status and ReversedBy are
// computed when it is read.
type Invoice struct {
	// ID is the month, such as 2026-11; a credit note's ID is that of its invoice with the suffix -reversal.
	ID     string `json:"id"`
	Kind   Kind   `json:"kind"`
	Status Status `json:"status"`
	// Number counts the final documents of the platform: 1, 2, 3 and so on, without gaps. 0 for a draft.
	Number      int64       `json:"number,omitempty"`
	App         string      `json:"app"`
	AppID       db.ID       `json:"app_id"`
	Plan        string      `json:"plan,omitempty"`
	Period      Period      `json:"period"`
	Lines       []Line      `json:"lines"`
	Credits     []CreditUse `json:"credits"`
	Totals      []Total     `json:"totals"`
	FinalizedAt *Timestamp  `json:"finalized_at,omitempty"`
	Reverses    string      `json:"reverses,omitempty"`
	ReversedBy  string      `json:"reversed_by,omitempty"`
}

// Kind distinguishes invoices from credit notes.
type Kind string

// The kinds.
const (
	Invoiced   Kind = "invoice"
	CreditNote Kind = "credit_note"
)

// Status is the state of an invoice.
type Status string

// The states. A draft becomes final once; a final invoice may be reversed once. There is no way back.
const (
	Draft    Status = "draft"
	Final    Status = "final"
	Reversed Status = "reversed"
)

// Period is the time that an invoice covers. Usage from before it that was recorded after the previous invoice is on it
// too, in lines that are marked late.
type Period struct {
	From     Timestamp `json:"from"`
	To       Timestamp `json:"to"`
	Timezone string    `json:"timezone"`
}

// CreditUse is the amount of an invoice that a credit pays.
type CreditUse struct {
	Credit   string       `json:"credit"`
	Currency string       `json:"currency"`
	Amount   amount.Money `json:"amount"`
}

// Total is the total of an invoice in a currency. Due is Charge less Credits.
type Total struct {
	Currency string       `json:"currency"`
	Charge   amount.Money `json:"charge"`
	Credits  amount.Money `json:"credits"`
	Due      amount.Money `json:"due"`
}

// ListInvoices returns the invoices and credit notes of an app without their lines, newest first, drafts before final
// ones.
func (s *Service) ListInvoices(ctx context.Context, app tenancy.App) ([]Invoice, error) {
	a, err := s.computeAccount(ctx, queryOutside(s.db.Platform()), app)
	if err != nil {
		return nil, err
	}
	list := []Invoice{}
	for _, d := range slices.Backward(a.drafts) {
		d.Lines = nil
		list = append(list, d.Invoice)
	}
	final, err := s.ListFinalInvoices(ctx, app.ID)
	return append(list, final...), err
}

// ListFinalInvoices returns the final invoices and credit notes of an app without their lines, newest first.
func (s *Service) ListFinalInvoices(ctx context.Context, app db.ID) ([]Invoice, error) {
	list, err := readInvoices(ctx, queryOutside(s.db.Tenant(app)), app, "")
	for i := range list {
		list[i].Lines = nil
	}
	return list, err
}

// FindInvoice returns an invoice of an app, draft or final. If there is none it returns [agentsvc.CodeNotFound].
func (s *Service) FindInvoice(ctx context.Context, app tenancy.App, id string) (Invoice, error) {
	inv, err := s.FindFinalInvoice(ctx, app.ID, id)
	if !errors.Is(err, agentsvc.CodeNotFound) {
		return inv, err
	}
	a, err := s.computeAccount(ctx, queryOutside(s.db.Platform()), app)
	if err != nil {
		return Invoice{}, err
	}
	if i := slices.IndexFunc(a.drafts, func(d draft) bool { return d.ID == id }); i >= 0 {
		return a.drafts[i].Invoice, nil
	}
	return Invoice{}, errNoInvoice
}

// FindFinalInvoice is [Service.FindInvoice] without the drafts. It works for an app that is deleted as well.
func (s *Service) FindFinalInvoice(ctx context.Context, app db.ID, id string) (Invoice, error) {
	return readInvoice(ctx, queryOutside(s.db.Tenant(app)), app, id)
}

// readInvoice reads one final invoice. If there is none it returns errNoInvoice.
func readInvoice(ctx context.Context, request queryFunc, app db.ID, id string) (Invoice, error) {
	if id == "" {
		return Invoice{}, errNoInvoice
	}
	list, err := readInvoices(ctx, request, app, id)
	if err != nil || len(list) == 0 {
		return Invoice{}, cmp.Or(err, errNoInvoice)
	}
	return list[0], nil
}

var errNoInvoice = agentsvc.NewError(agentsvc.CodeNotFound, "there is no such invoice")

// maxInvoices bounds a list: forty years of invoices, each of them reversed, are fewer.
const maxInvoices = 1000

// readInvoices reads the final invoices, newest first, or only the one with that id if id is not "".
func readInvoices(ctx context.Context, request queryFunc, app db.ID, id string) ([]Invoice, error) {
	list := []Invoice{}
	err := request(ctx, func(r db.Row) error {
		var body, reversed string
		if err := r.Scan(&body, &reversed); err != nil {
			return err
		}
		var inv Invoice
		err := json.Unmarshal([]byte(body), &inv)
		if reversed != "" {
			inv.Status, inv.ReversedBy = Reversed, reversed
		}
		list = append(list, inv)
		return err
	}, `SELECT i.body, COALESCE(r.id, '') FROM invoice i LEFT JOIN invoice r ON r.app = i.app AND r.reverses = i.id
		WHERE i.app = $1 AND (CAST($2 AS TEXT) = '' OR i.id = $2) ORDER BY i.number DESC LIMIT $3`, string(app), id, maxInvoices)
	if err != nil {
		return nil, fmt.Errorf("read the invoices of app %s: %w", app, err)
	}
	return list, nil
}

// storeInvoice assigns the next number and stores the invoice. The update locks the counter until the transaction ends:
// a number is never skipped or used twice.
func storeInvoice(ctx context.Context, l *ledger.Tx, inv *Invoice) error {
	err := l.Query(ctx, func(r db.Row) error { return r.Scan(&inv.Number) }, `UPDATE invoice_number SET last = last + 1 WHERE id = 1 RETURNING last`)
	if err != nil {
		return err
	}
	inv.Status, inv.FinalizedAt = Final, &Timestamp{l.Now.Truncate(time.Millisecond)}
	body, err := json.Marshal(inv)
	if err != nil {
		return err
	}
	_, err = l.Exec(ctx, `INSERT INTO invoice (app, id, number, reverses, finalized_at, body) VALUES ($1, $2, $3, $4, $5, $6)`,
		string(l.App), inv.ID, inv.Number, inv.Reverses, l.Now.UnixMicro(), string(body))
	return err
}

// totalFor returns the total of inv in a currency, and appends one if there is none. The pointer is valid until the
// next append.
func (inv *Invoice) totalFor(currency string) *Total {
	i := slices.IndexFunc(inv.Totals, func(t Total) bool { return t.Currency == currency })
	if i < 0 {
		i = len(inv.Totals)
		inv.Totals = append(inv.Totals, Total{Currency: currency})
	}
	return &inv.Totals[i]
}
