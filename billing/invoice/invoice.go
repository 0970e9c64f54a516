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
	"math"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/billing/ledger"
	"stoa/billing/party"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Invoice is what an app is charged for a month, or a credit note that reverses an invoice. A draft is computed at each
// request. A final invoice is stored as the JSON of this struct and never changes; only Status, ReversedBy and
// ReplacedBy are computed when it is read.
type Invoice struct {
	// ID is the month, such as 2026-11, or 2026-11-2 for the invoice that replaces a reversed one; a credit note's ID is
	// that of its invoice with the suffix -reversal.
	ID     string `json:"id"`
	Kind   Kind   `json:"kind"`
	Status Status `json:"status"`
	// Number counts the final documents of the platform: 1, 2, 3 and so on, without gaps. 0 for a draft.
	Number  int64       `json:"number,omitempty"`
	App     string      `json:"app"`
	AppID   db.ID       `json:"app_id"`
	Plan    string      `json:"plan,omitempty"`
	Period  Period      `json:"period"`
	Lines   []Line      `json:"lines"`
	Credits []CreditUse `json:"credits"`
	Taxes   []TaxLine   `json:"taxes"`
	Totals  []Total     `json:"totals"`
	// UnpricedCalls are the model calls and embedded texts on it that are charged nothing, or in part, because neither the price
	// book nor the plan has a price.
	UnpricedCalls int64 `json:"unpriced_calls,omitempty"`
	party.Parties
	FinalizedAt *Timestamp `json:"finalized_at,omitempty"`
	References
}

// References are the ids of the documents that an invoice refers to and is referred to by.
type References struct {
	Reverses string `json:"reverses,omitempty"`
	// ReversesNumber is the number of that invoice.
	ReversesNumber int64  `json:"reverses_number,omitempty"`
	ReversedBy     string `json:"reversed_by,omitempty"`
	// Replaces is the reversed invoice whose usage this one charges again.
	Replaces   string `json:"replaces,omitempty"`
	ReplacedBy string `json:"replaced_by,omitempty"`
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

// ListInvoices returns the invoices and credit notes of an app without their lines, newest first, drafts before final
// ones.
func (s *Service) ListInvoices(ctx context.Context, app tenancy.App) ([]Invoice, error) {
	a, err := s.computeAccount(ctx, queryOutside(s.db.Platform()), app)
	if err != nil {
		return nil, err
	}
	list := []Invoice{}
	for _, d := range slices.Backward(a.drafts) {
		list = append(list, d.Summary())
	}
	final, err := s.ListFinalInvoices(ctx, app.ID)
	return append(list, final...), err
}

// ListFinalInvoices returns the final invoices and credit notes of an app without their lines, newest first.
func (s *Service) ListFinalInvoices(ctx context.Context, app db.ID) ([]Invoice, error) {
	list, err := readInvoices(ctx, queryOutside(s.db.Tenant(app)), app, "")
	for i := range list {
		list[i] = list[i].Summary()
	}
	return list, err
}

// Summary returns the invoice as lists show it, without its lines and parties.
func (inv Invoice) Summary() Invoice {
	inv.Lines, inv.Parties = nil, party.Parties{}
	return inv
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

var errNoInvoice = agentsvc.NewError(agentsvc.CodeNotFound, "there is no such invoice: the list of invoices has the ids, which are months such as 2026-11")

// maxInvoices bounds a list: forty years of invoices, each of them reversed, are fewer.
const maxInvoices = 1000

// readInvoices reads the final invoices, newest first, or only the one with that id if id is not "".
func readInvoices(ctx context.Context, request queryFunc, app db.ID, id string) ([]Invoice, error) {
	list := []Invoice{}
	err := request(ctx, func(r db.Row) error {
		inv, err := scanInvoice(r)
		list = append(list, inv)
		return err
	}, selectInvoices+`WHERE i.app = $1 AND (CAST($2 AS TEXT) = '' OR i.id = $2) ORDER BY i.number DESC LIMIT $3`, string(app), id, maxInvoices)
	if err != nil {
		return nil, fmt.Errorf("read the invoices of app %s: %w", app, err)
	}
	return list, nil
}

// selectInvoices selects what scanInvoice reads.
const selectInvoices = `SELECT i.body, COALESCE(r.id, ''), COALESCE(b.id, '') FROM invoice i LEFT JOIN invoice r ON r.app = i.app AND r.reverses = i.id
	LEFT JOIN invoice_basis b ON b.app = i.app AND b.replaces = i.id `

// scanInvoice reads a row of selectInvoices.
func scanInvoice(r db.Row) (Invoice, error) {
	var inv Invoice
	var body, reversed, replaced string
	if err := r.Scan(&body, &reversed, &replaced); err != nil {
		return inv, err
	}
	err := json.Unmarshal([]byte(body), &inv)
	if inv.ReplacedBy = replaced; reversed != "" {
		inv.Status, inv.ReversedBy = Reversed, reversed
	}
	return inv, err
}

// AllQuery selects final documents of all apps.
type AllQuery struct {
	// Month selects the documents of a month such as 2026-11, "" all.
	Month string
	// Before selects documents with a smaller number, 0 all.
	Before int64
	// Size bounds the list.
	Size int
}

// ListAllInvoices returns final invoices and credit notes of all apps, also deleted ones, without their lines, by number,
// the newest first.
func (s *Service) ListAllInvoices(ctx context.Context, q AllQuery) ([]Invoice, error) {
	before := q.Before
	if before <= 0 {
		before = math.MaxInt64
	}
	list := []Invoice{}
	err := queryOutside(s.db.Platform())(ctx, func(r db.Row) error {
		inv, err := scanInvoice(r)
		list = append(list, inv.Summary())
		return err
	}, selectInvoices+`WHERE i.number < $1 AND (CAST($2 AS TEXT) = '' OR i.id = $2 OR i.id LIKE CAST($2 AS TEXT) || '-%') ORDER BY i.number DESC LIMIT $3`,
		before, q.Month, q.Size)
	if err != nil {
		return nil, fmt.Errorf("list the invoices of all apps: %w", err)
	}
	return list, nil
}

// ListDrafts returns the drafts of an app without their lines, oldest first.
func (s *Service) ListDrafts(ctx context.Context, app tenancy.App) ([]Invoice, error) {
	a, err := s.computeAccount(ctx, queryOutside(s.db.Platform()), app)
	list := []Invoice{}
	for _, d := range a.drafts {
		list = append(list, d.Summary())
	}
	return list, err
}

// storeInvoice assigns the next number and stores the invoice, with the options of one that is made again. The update
// locks the counter until the transaction ends: a number is never skipped or used twice.
func storeInvoice(ctx context.Context, l *ledger.Tx, inv *Invoice, options *ReissueOptions) error {
	err := l.Query(ctx, func(r db.Row) error { return r.Scan(&inv.Number) }, `UPDATE invoice_number SET last = last + 1 WHERE id = 1 RETURNING last`)
	if err != nil {
		return err
	}
	inv.Status, inv.FinalizedAt = Final, &Timestamp{l.Now.Truncate(time.Millisecond)}
	body, err := json.Marshal(struct {
		*Invoice
		Options *ReissueOptions `json:"reissue_options,omitempty"`
	}{inv, options})
	if err != nil {
		return err
	}
	_, err = l.Exec(ctx, `INSERT INTO invoice (app, id, number, reverses, finalized_at, body) VALUES ($1, $2, $3, $4, $5, $6)`,
		string(l.App), inv.ID, inv.Number, inv.Reverses, l.Now.UnixMicro(), string(body))
	return err
}
