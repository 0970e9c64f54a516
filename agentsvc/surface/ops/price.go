package ops

import (
	"context"
	"net/http"
	"time"

	"stoa/agentsvc/surface"
	"stoa/billing/amount"
	"stoa/billing/price"
)

// priceBody is a version of the price book, in requests and responses. Amounts of items are in nano-units.
type priceBody struct {
	Version  string `json:"version"`
	Currency string `json:"currency"`
	// Effective is when the version comes into force; it ends when the next version of its currency does.
	Effective string          `json:"effective_from"`
	Items     []priceItemBody `json:"items"`
	CreatedAt *string         `json:"created_at,omitempty"`
}

// priceItemBody is a price: Amount for Per units of a meter. Provider and Model are patterns; "" matches all.
type priceItemBody struct {
	Kind     string `json:"kind"`
	Meter    string `json:"meter"`
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`
	Per      int64  `json:"per"`
	Amount   int64  `json:"amount"`
}

// addPrice creates a version of the price book, which applies from effective_from on. A version cannot be changed
// afterwards, since usage was priced by it.
func (a adminAPI) addPrice(ctx context.Context, o *mutation) (mutationResult, error) {
	var b priceBody
	if err := o.decodeBody(&b, false); err != nil {
		return mutationResult{}, err
	}
	// A missing time stays zero, which package billing refuses.
	from, err := parseTime("effective_from", b.Effective, time.Time{})
	if err != nil {
		return mutationResult{}, err
	}
	p := price.Version{Version: b.Version, Currency: b.Currency, Effective: from}
	for _, it := range b.Items {
		p.Items = append(p.Items, price.Item{
			Kind: it.Kind, Meter: it.Meter, Provider: it.Provider, Model: it.Model, Per: it.Per, Amount: amount.Money(it.Amount),
		})
	}
	p, err = a.billing.Prices.AddVersion(ctx, o.actor, p)
	return mutationResult{status: http.StatusCreated, body: newPriceBody(p)}, err
}

// handleListPrices answers with all versions of the price book.
func (a adminAPI) handleListPrices(w http.ResponseWriter, r *http.Request) error {
	found, err := a.billing.Prices.ListVersions(r.Context())
	if err != nil {
		return err
	}
	out := make([]priceBody, len(found))
	for i, p := range found {
		out[i] = newPriceBody(p)
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]any{"prices": out})
}

// handleGetPrice answers with one version.
func (a adminAPI) handleGetPrice(w http.ResponseWriter, r *http.Request) error {
	p, err := a.billing.Prices.FindVersion(r.Context(), surface.PathParam(r, "version"))
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, newPriceBody(p))
}

// deletePrice deletes a version that is not in force; one that is, or soon will be, is a precondition error.
func (a adminAPI) deletePrice(ctx context.Context, o *mutation) (mutationResult, error) {
	return mutationResult{status: http.StatusNoContent}, a.billing.Prices.RemoveVersion(ctx, o.actor, surface.PathParam(o.r, "version"))
}

// newPriceBody returns a version as responses show it.
func newPriceBody(p price.Version) priceBody {
	b := priceBody{Version: p.Version, Currency: p.Currency, Effective: surface.FormatTime(p.Effective), CreatedAt: formatTime(p.CreatedAt)}
	for _, it := range p.Items {
		b.Items = append(b.Items, priceItemBody{it.Kind, it.Meter, it.Provider, it.Model, it.Per, int64(it.Amount)})
	}
	return b
}
