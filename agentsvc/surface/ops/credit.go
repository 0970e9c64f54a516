package ops

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/billing/amount"
	"stoa/billing/invoice"
	"stoa/billing/ledger"
)

// Amounts are in nano-units of the currency.
type (
	// creditRequest grants a credit; Amount is a pointer to distinguish 0 from a missing value.
	creditRequest struct {
		Amount    *int64 `json:"amount"`
		Currency  string `json:"currency"`
		ExpiresAt string `json:"expires_at"`
		Note      string `json:"note"`
	}
	// creditBody is a credit in responses.
	creditBody struct {
		ID       string `json:"id"`
		Amount   int64  `json:"amount"`
		Currency string `json:"currency"`
		// Remaining is what is left by the ledger: final invoices are deducted. Pending is the part of it that
		// drafts will use.
		Remaining int64   `json:"remaining"`
		Pending   int64   `json:"pending"`
		Status    string  `json:"status"`
		ExpiresAt *string `json:"expires_at"`
		Note      string  `json:"note"`
		CreatedAt *string `json:"created_at"`
		CreatedBy string  `json:"created_by"`
	}
	// ledgerEntryBody is one entry of the ledger. The postings of an entry add up to 0.
	ledgerEntryBody struct {
		ID       int64            `json:"id"`
		Kind     string           `json:"kind"`
		Invoice  string           `json:"invoice,omitempty"`
		Credit   string           `json:"credit,omitempty"`
		Currency string           `json:"currency"`
		At       string           `json:"at"`
		Postings map[string]int64 `json:"postings"` // amount by account
	}
	// ledgerBody is a page of the ledger, the newest entry first, with the balances over all entries.
	ledgerBody struct {
		Balances map[string]map[ledger.Account]amount.Money `json:"balances"` // by currency, then by account
		Entries  []ledgerEntryBody                          `json:"entries"`
		// Before is the query parameter before of the next page, 0 = this is the last one.
		Before int64 `json:"next_before,omitempty"`
	}
)

// addCredit grants a credit to an app. The Idempotency-Key is also stored with the credit for good: recorded
// responses expire, and money must not be granted twice.
func (a adminAPI) addCredit(ctx context.Context, o *mutation) (mutationResult, error) {
	var b creditRequest
	if err := o.decodeBody(&b, false); err != nil {
		return mutationResult{}, err
	}
	if b.Amount == nil {
		return mutationResult{}, agentsvc.NewInvalidError("amount", "is missing: how many nano-units of the currency")
	}
	expires, err := parseTime("expires_at", b.ExpiresAt, time.Time{})
	if err != nil {
		return mutationResult{}, err
	}
	app, err := a.apps.LoadApp(ctx, o.appName())
	if err != nil {
		return mutationResult{}, err
	}
	// package surface stores the response to a key for 24 hours only (tenancy.idempotencyTTL).
	key, err := surface.IdempotencyKey(o.r)
	if err != nil {
		return mutationResult{}, err
	}
	c, err := a.billing.Invoices.AddCredit(ctx, o.actor, app, invoice.Credit{Amount: amount.Money(*b.Amount), Currency: b.Currency, Expires: expires, Note: b.Note, Key: key})
	return mutationResult{status: http.StatusCreated, body: newCreditBody(c), appID: app.ID}, err
}

// handleListCredits answers with the credits of an app in the order in which invoices use them.
func (a adminAPI) handleListCredits(w http.ResponseWriter, r *http.Request) error {
	app, err := a.loadBilledApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	list, err := a.billing.Invoices.ListCredits(r.Context(), app)
	if err != nil {
		return err
	}
	out := make([]creditBody, len(list))
	for i, c := range list {
		out[i] = newCreditBody(c)
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]any{"credits": out})
}

// revokeCredit closes a credit with what is left of it.
func (a adminAPI) revokeCredit(ctx context.Context, o *mutation) (mutationResult, error) {
	app, err := a.loadBilledApp(ctx, o.appName())
	if err != nil {
		return mutationResult{}, err
	}
	return mutationResult{status: http.StatusNoContent}, a.billing.Invoices.RevokeCredit(ctx, o.actor, app, surface.PathParam(o.r, "credit"))
}

// handleLedger answers with the balances of an app's accounts and a page of the ledger entries, the newest first.
func (a adminAPI) handleLedger(w http.ResponseWriter, r *http.Request) error {
	size, err := surface.ParsePageSize(r, 50, 1000)
	if err != nil {
		return err
	}
	var before int64
	if text := r.URL.Query().Get("before"); text != "" {
		if before, err = strconv.ParseInt(text, 10, 64); err != nil || before < 1 {
			return agentsvc.NewInvalidError("before", "must be the id of an entry")
		}
	}
	app, err := a.loadBilledApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	balances, err := a.billing.Ledgers.ListAccountBalances(r.Context(), app.ID)
	if err != nil {
		return err
	}
	entries, err := a.billing.Ledgers.ListEntries(r.Context(), app.ID, before, size)
	if err != nil {
		return err
	}
	out := ledgerBody{Balances: balances, Entries: make([]ledgerEntryBody, len(entries))}
	for i, e := range entries {
		out.Entries[i] = ledgerEntryBody{e.ID, string(e.Kind), e.Invoice, e.Credit, e.Currency, surface.FormatTime(e.At), map[string]int64{}}
		for _, p := range e.Postings {
			out.Entries[i].Postings[string(p.Account)] = int64(p.Amount)
		}
	}
	// Entry 1 is the oldest that can exist, so a page that ends with it is the last one.
	if n := len(entries); n == size && entries[n-1].ID > 1 {
		out.Before = entries[n-1].ID
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}

func newCreditBody(c invoice.Credit) creditBody {
	return creditBody{
		c.ID, int64(c.Amount), c.Currency, int64(c.Remaining), int64(c.Pending), string(c.Status), formatTime(c.Expires), c.Note, formatTime(c.CreatedAt), c.CreatedBy,
	}
}
