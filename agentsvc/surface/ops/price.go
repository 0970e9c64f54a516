package ops

import (
	"context"
	"net/http"
	"time"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
	"stoa/billing"
)

// priceBody is a version of the price book, in requests and responses. Amounts of items are in nano-units.
type priceBody struct {
	Version  string `json:"version"`
	Currency string `json:"currency"`
	// Effective is when the version comes into force; it ends when the next version of its currency does.
	Effective string              `json:"effective_from"`
	Items     []billing.PriceItem `json:"items"`
	CreatedAt *string             `json:"created_at,omitempty"`
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
	p, err := a.billing.AddPriceVersion(ctx, o.actor, billing.PriceVersion{Version: b.Version, Currency: b.Currency, Effective: from, Items: b.Items})
	return mutationResult{status: http.StatusCreated, body: newPriceBody(p)}, err
}

// handleListPrices answers with all versions of the price book.
func (a adminAPI) handleListPrices(w http.ResponseWriter, r *http.Request) error {
	found, err := a.billing.ListPriceVersions(r.Context())
	if err != nil {
		return err
	}
	out := make([]priceBody, len(found))
	for i, p := range found {
		out[i] = newPriceBody(p)
	}
	return response.WriteJSON(w, http.StatusOK, map[string]any{"prices": out})
}

// handleGetPrice answers with one version.
func (a adminAPI) handleGetPrice(w http.ResponseWriter, r *http.Request) error {
	p, err := a.billing.FindPriceVersion(r.Context(), surface.PathParam(r, "version"))
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, newPriceBody(p))
}

// deletePrice deletes a version that is not in force; one that is, or soon will be, is a precondition error.
func (a adminAPI) deletePrice(ctx context.Context, o *mutation) (mutationResult, error) {
	return mutationResult{status: http.StatusNoContent}, a.billing.RemovePriceVersion(ctx, o.actor, surface.PathParam(o.r, "version"))
}

// newPriceBody returns a version as responses show it.
func newPriceBody(p billing.PriceVersion) priceBody {
	return priceBody{p.Version, p.Currency, encode.FormatTime(p.Effective), p.Items, formatTime(p.CreatedAt)}
}
