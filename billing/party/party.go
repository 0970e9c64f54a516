// Package party has the parties of invoices: the seller, which is the platform, and the buyer of each app.
package party

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// Party is the seller or the buyer of an invoice, as its page shows it.
type Party struct {
	Name    string   `json:"name"`
	Address []string `json:"address,omitempty"` // lines
	TaxID   string   `json:"tax_id,omitempty"`
	Email   string   `json:"email,omitempty"`
	// Note is a line at the end, such as the terms of payment.
	Note string `json:"note,omitempty"`
}

const (
	// maxAddressLines bounds [Party.Address].
	maxAddressLines = 8
	// maxPartyBytes bounds each text of a Party.
	maxPartyBytes = 500
)

// Validate returns an error with [agentsvc.CodeInvalid] for an invalid field. at is the path of the party, with a dot at its
// end, or "".
func (p Party) Validate(at string) error {
	texts := map[string]string{"name": p.Name, "tax_id": p.TaxID, "email": p.Email, "note": p.Note}
	for i, line := range p.Address {
		texts[fmt.Sprintf("address[%d]", i)] = line
	}
	switch {
	case p.Name == "":
		return agentsvc.NewInvalidError(at+"name", "is missing")
	case len(p.Address) > maxAddressLines:
		return agentsvc.NewInvalidError(at+"address", "there are %d lines, %d are allowed", len(p.Address), maxAddressLines)
	}
	for field, text := range texts {
		if len(text) > maxPartyBytes || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			return agentsvc.NewInvalidError(at+field, "must be at most %d bytes of text without control characters", maxPartyBytes)
		}
	}
	return nil
}

// Parties are the seller and the buyer of an invoice, as far as they are set.
type Parties struct {
	Seller *Party `json:"seller,omitempty"`
	Buyer  *Party `json:"buyer,omitempty"`
}

// of returns the buyer, or the seller for the id "".
func (p Parties) of(app db.ID) *Party {
	if app == "" {
		return p.Seller
	}
	return p.Buyer
}

// fields returns the fields of p that are set, by their names in JSON; none for nil.
func (p *Party) fields() map[string]any {
	fields := map[string]any{}
	if p == nil {
		return fields
	}
	for name, text := range map[string]string{"name": p.Name, "tax_id": p.TaxID, "email": p.Email, "note": p.Note} {
		if text != "" {
			fields[name] = text
		}
	}
	if len(p.Address) > 0 {
		fields["address"] = p.Address
	}
	return fields
}

// Service stores the parties. It is safe for concurrent use, in any number of processes on one database.
type Service struct{ db *db.DB }

// New returns the parties in database d.
func New(d *db.DB) *Service { return &Service{d} }

// QueryFunc is a query within a transaction or outside of any.
type QueryFunc func(ctx context.Context, read func(db.Row) error, sql string, args ...any) error

// Read reads the parties of an app's invoices. For the id "" it reads the seller alone.
func Read(ctx context.Context, query QueryFunc, app db.ID) (Parties, error) {
	var parties Parties
	err := query(ctx, func(r db.Row) error {
		var id, body string
		if err := r.Scan(&id, &body); err != nil {
			return err
		}
		p := &Party{}
		if id == "" {
			parties.Seller = p
		} else {
			parties.Buyer = p
		}
		return json.Unmarshal([]byte(body), p)
	}, `SELECT tenant, body FROM invoice_party WHERE tenant IN ('', $1)`, string(app))
	if err != nil {
		return Parties{}, fmt.Errorf("read the parties of the invoices of app %s: %w", app, err)
	}
	return parties, nil
}

// FindParty returns the buyer of an app's invoices, or the seller of all for the zero App. If it is not set it returns
// [agentsvc.CodeNotFound].
func (s *Service) FindParty(ctx context.Context, app tenancy.App) (Party, error) {
	parties, err := Read(ctx, func(ctx context.Context, read func(db.Row) error, sql string, args ...any) error {
		var b db.Batch
		b.Query(read, sql, args...)
		return s.db.Platform().Do(ctx, &b)
	}, app.ID)
	if err != nil {
		return Party{}, err
	}
	p := parties.of(app.ID)
	if p == nil {
		who := "seller"
		if app.ID != "" {
			who = "buyer"
		}
		return Party{}, agentsvc.NewError(agentsvc.CodeNotFound, "no %s is set; invoices are printed without one", who)
	}
	return *p, nil
}

// PutParty sets the buyer of an app's invoices, or the seller of all for the zero App. Final invoices do not change. The audit
// trail has the hashes by h of what changes.
func (s *Service) PutParty(ctx context.Context, actor audit.Actor, app tenancy.App, p Party, h keyring.Hasher) error {
	if err := p.Validate(""); err != nil {
		return err
	}
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	action := "invoice.buyer"
	if app.ID == "" {
		action = "invoice.seller"
	}
	err = s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		previous, err := Read(ctx, tx.Query, app.ID)
		if err != nil {
			return err
		}
		// Names and addresses are not in the trail, which outlives the app.
		detail := map[string]any{}
		tenancy.AddChanges(detail, h, previous.of(app.ID).fields(), p.fields())
		_, err = tx.Exec(ctx, `INSERT INTO invoice_party (tenant, body, updated_at) VALUES ($1, $2, $3)
			ON CONFLICT (tenant) DO UPDATE SET body = excluded.body, updated_at = excluded.updated_at`, string(app.ID), string(body), time.Now().UnixMicro())
		if err != nil {
			return err
		}
		return audit.Insert(ctx, tx, audit.Entry{Actor: actor, Action: action, App: app.Name, AppID: app.ID, Detail: detail})
	})
	if err != nil {
		return fmt.Errorf("put a party of invoices: %w", err)
	}
	return nil
}
