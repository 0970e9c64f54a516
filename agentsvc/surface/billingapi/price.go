package billingapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/billing"
	"stoa/billing/amount"
	"stoa/billing/price"
)

// priceHandler serves the price book. It is read-only and used by value.
type priceHandler struct {
	billing *billing.Service
}

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
	Amount   *int64 `json:"amount"`
	Decimal  string `json:"amount_decimal,omitempty"`
}

// addPrice creates a version of the price book, which applies from effective_from on. A version cannot be changed
// afterwards, since usage was priced by it.
func (h priceHandler) addPrice(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var b priceBody
	if err := o.DecodeBody(&b, false); err != nil {
		return mutation.Result{}, err
	}
	// A missing time stays zero, which package price refuses.
	from, err := decode.ParseTime("effective_from", b.Effective, time.Time{})
	if err != nil {
		return mutation.Result{}, err
	}
	p := price.Version{Version: b.Version, Currency: b.Currency, Effective: from}
	for i, it := range b.Items {
		n, err := mergeAmount(fmt.Sprintf("items[%d].amount", i), it.Amount, it.Decimal)
		if err != nil {
			return mutation.Result{}, err
		}
		p.Items = append(p.Items, price.Item{
			Kind: it.Kind, Meter: it.Meter, Provider: it.Provider, Model: it.Model, Per: it.Per, Amount: amount.Money(n),
		})
	}
	p, err = h.billing.Prices.AddVersion(ctx, o.Actor, p)
	return mutation.Result{Status: http.StatusCreated, Body: newPriceBody(p), CreatedID: p.Version}, err
}

// handleListPrices answers with all versions of the price book.
func (h priceHandler) handleListPrices(w http.ResponseWriter, r *http.Request) error {
	found, err := h.billing.Prices.ListVersions(r.Context())
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
func (h priceHandler) handleGetPrice(w http.ResponseWriter, r *http.Request) error {
	p, err := h.billing.Prices.FindVersion(r.Context(), surface.PathParam(r, "version"))
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, newPriceBody(p))
}

// deletePrice deletes a version that is not in force; one that is, or soon will be, is a precondition error.
func (h priceHandler) deletePrice(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	return mutation.Result{Status: http.StatusNoContent}, h.billing.Prices.RemoveVersion(ctx, o.Actor, surface.PathParam(o.HTTP, "version"))
}

// newPriceBody returns a version as responses show it.
func newPriceBody(p price.Version) priceBody {
	b := priceBody{Version: p.Version, Currency: p.Currency, Effective: encode.FormatTime(p.Effective), Items: []priceItemBody{}, CreatedAt: encode.FormatOptionalTime(p.CreatedAt)}
	for _, it := range p.Items {
		n := int64(it.Amount)
		b.Items = append(b.Items, priceItemBody{it.Kind, it.Meter, it.Provider, it.Model, it.Per, &n, it.Amount.Decimal(p.Currency)})
	}
	return b
}
