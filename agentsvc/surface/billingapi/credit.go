package billingapi

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/billing/amount"
	"stoa/billing/invoice"
	"stoa/billing/ledger"
)

// creditHandler serves credits. It is read-only and used by value.
type creditHandler struct {
	billedApps
}

// ledgerHandler serves ledgers. It is read-only and used by value.
type ledgerHandler struct {
	billedApps
}

// Amounts are in nano-units of the currency.
type (
	// creditRequest grants a credit; Amount is a pointer to distinguish 0 from a missing value.
	creditRequest struct {
		Amount        *int64 `json:"amount"`
		AmountDecimal string `json:"amount_decimal"`
		Currency      string `json:"currency"`
		ExpiresAt     string `json:"expires_at"`
		Note          string `json:"note"`
	}
	// creditBody is a credit in responses.
	creditBody struct {
		ID            string `json:"id"`
		Amount        int64  `json:"amount"`
		AmountDecimal string `json:"amount_decimal"`
		Currency      string `json:"currency"`
		// Remaining is what is left by the ledger: final invoices are deducted. Pending is the part of it that
		// drafts will use.
		Remaining        int64   `json:"remaining"`
		Pending          int64   `json:"pending"`
		RemainingDecimal string  `json:"remaining_decimal"`
		PendingDecimal   string  `json:"pending_decimal"`
		Status           string  `json:"status"`
		ExpiresAt        *string `json:"expires_at"`
		Note             string  `json:"note"`
		CreatedAt        *string `json:"created_at"`
		CreatedBy        string  `json:"created_by"`
	}
	// ledgerEntryBody is one entry of the ledger. The postings of an entry add up to 0.
	ledgerEntryBody struct {
		ID              int64             `json:"id"`
		Kind            string            `json:"kind"`
		Invoice         string            `json:"invoice,omitempty"`
		Credit          string            `json:"credit,omitempty"`
		Currency        string            `json:"currency"`
		At              string            `json:"at"`
		Postings        map[string]int64  `json:"postings"` // amount by account
		PostingsDecimal map[string]string `json:"postings_decimal"`
	}
	// ledgerBody is a page of the ledger, the newest entry first, with the balances over all entries.
	ledgerBody struct {
		Balances        map[string]map[ledger.Account]amount.Money `json:"balances"` // by currency, then by account
		BalancesDecimal map[string]map[ledger.Account]string       `json:"balances_decimal"`
		Entries         []ledgerEntryBody                          `json:"entries"`
		// NextPageToken is the id of the last entry of the page, "" = this is the last page.
		NextPageToken string `json:"next_page_token"`
	}
)

// addCredit grants a credit to an app. The Idempotency-Key is also stored with the credit for good: recorded
// responses expire, and money must not be granted twice.
func (h creditHandler) addCredit(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var b creditRequest
	if err := o.DecodeBody(&b, false); err != nil {
		return mutation.Result{}, err
	}
	n, err := mergeAmount("amount", b.Amount, b.AmountDecimal)
	if err != nil {
		return mutation.Result{}, err
	}
	expires, err := decode.ParseTime("expires_at", b.ExpiresAt, time.Time{})
	if err != nil {
		return mutation.Result{}, err
	}
	app, err := h.apps.LoadApp(ctx, o.AppName())
	if err != nil {
		return mutation.Result{}, err
	}
	// package surface stores the response to a key for 24 hours only (tenancy.idempotencyTTL).
	key, err := idempotency.Key(o.HTTP)
	if err != nil {
		return mutation.Result{}, err
	}
	c, err := h.billing.Invoices.AddCredit(ctx, o.Actor, app, invoice.Credit{Amount: amount.Money(n), Currency: b.Currency, Expires: expires, Note: b.Note, Key: key})
	return mutation.Result{Status: http.StatusCreated, Body: newCreditBody(c), AppID: app.ID, CreatedID: c.ID}, err
}

// handleListCredits answers with the credits of an app in the order in which invoices use them.
func (h creditHandler) handleListCredits(w http.ResponseWriter, r *http.Request) error {
	app, err := h.loadBilledApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	list, err := h.billing.Invoices.ListCredits(r.Context(), app)
	if err != nil {
		return err
	}
	out := make([]creditBody, len(list))
	for i, c := range list {
		out[i] = newCreditBody(c)
	}
	return response.WriteJSON(w, http.StatusOK, map[string]any{"credits": out})
}

// handleGetCredit answers with a credit of an app.
func (h creditHandler) handleGetCredit(w http.ResponseWriter, r *http.Request) error {
	app, err := h.loadBilledApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	list, err := h.billing.Invoices.ListCredits(r.Context(), app)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(c invoice.Credit) bool { return c.ID == surface.PathParam(r, "credit") })
	if i < 0 {
		return agentsvc.NewError(agentsvc.CodeNotFound, "no such credit")
	}
	return response.WriteJSON(w, http.StatusOK, newCreditBody(list[i]))
}

// revokeCredit closes a credit with what is left of it.
func (h creditHandler) revokeCredit(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	app, err := h.loadBilledApp(ctx, o.AppName())
	if err != nil {
		return mutation.Result{}, err
	}
	return mutation.Result{Status: http.StatusNoContent}, h.billing.Invoices.RevokeCredit(ctx, o.Actor, app, surface.PathParam(o.HTTP, "credit"))
}

// handleLedger answers with the balances of an app's accounts and a page of the ledger entries, the newest first.
func (h ledgerHandler) handleLedger(w http.ResponseWriter, r *http.Request) error {
	size, err := decode.ParsePageSize(r, 50, 1000)
	if err != nil {
		return err
	}
	var before int64
	if token := r.URL.Query().Get("page_token"); token != "" {
		if before, err = strconv.ParseInt(token, 10, 64); err != nil || before < 1 {
			return agentsvc.NewInvalidError("page_token", "is not a token of this list")
		}
	}
	app, err := h.loadBilledApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	balances, err := h.billing.Ledgers.ListAccountBalances(r.Context(), app.ID)
	if err != nil {
		return err
	}
	entries, err := h.billing.Ledgers.ListEntries(r.Context(), app.ID, before, size)
	if err != nil {
		return err
	}
	out := ledgerBody{Balances: balances, BalancesDecimal: map[string]map[ledger.Account]string{}, Entries: make([]ledgerEntryBody, len(entries))}
	for currency, accounts := range balances {
		out.BalancesDecimal[currency] = map[ledger.Account]string{}
		for account, balance := range accounts {
			out.BalancesDecimal[currency][account] = balance.Decimal(currency)
		}
	}
	for i, e := range entries {
		out.Entries[i] = ledgerEntryBody{e.ID, string(e.Kind), e.Invoice, e.Credit, e.Currency, encode.FormatTime(e.At), map[string]int64{}, map[string]string{}}
		for _, p := range e.Postings {
			out.Entries[i].Postings[string(p.Account)] = int64(p.Amount)
			out.Entries[i].PostingsDecimal[string(p.Account)] = p.Amount.Decimal(e.Currency)
		}
	}
	// Entry 1 is the oldest that can exist, so a page that ends with it is the last one.
	if n := len(entries); n == size && entries[n-1].ID > 1 {
		out.NextPageToken = strconv.FormatInt(entries[n-1].ID, 10)
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

func newCreditBody(c invoice.Credit) creditBody {
	return creditBody{
		c.ID, int64(c.Amount), c.Amount.Decimal(c.Currency), c.Currency, int64(c.Remaining), int64(c.Pending), c.Remaining.Decimal(c.Currency), c.Pending.Decimal(c.Currency), string(c.Status),
		encode.FormatOptionalTime(c.Expires), c.Note, encode.FormatOptionalTime(c.CreatedAt), c.CreatedBy,
	}
}
