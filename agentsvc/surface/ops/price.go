package ops

import (
	"context"
	"net/http"
	"time"

	"stoa/agentsvc/surface"
	"stoa/billing"
)

type priceBody struct {
	Version   string         `json:"version"`
	Currency  string         `json:"currency"`
	Effective string         `json:"effective_from"`
	Items     []billing.Item `json:"items"`
	CreatedAt *string        `json:"created_at,omitempty"`
}

func (a admin) addPrice(ctx context.Context, o *order) (answer, error) {
	var b priceBody
	if err := o.decode(&b, false); err != nil {
		return answer{}, err
	}
	from, err := parseTime("effective_from", b.Effective, time.Time{})
	if err != nil {
		return answer{}, err
	}
	p, err := a.billing.AddPrice(ctx, o.actor, billing.Price{Version: b.Version, Currency: b.Currency, Effective: from, Items: b.Items})
	return answer{status: http.StatusCreated, body: newPriceBody(p)}, err
}

func (a admin) prices(w http.ResponseWriter, r *http.Request) error {
	found, err := a.billing.Prices(r.Context())
	if err != nil {
		return err
	}
	out := make([]priceBody, len(found))
	for i, p := range found {
		out[i] = newPriceBody(p)
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]any{"prices": out})
}

func (a admin) price(w http.ResponseWriter, r *http.Request) error {
	p, err := a.billing.Price(r.Context(), surface.Param(r, "version"))
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, newPriceBody(p))
}

func (a admin) deletePrice(ctx context.Context, o *order) (answer, error) {
	return answer{status: http.StatusNoContent}, a.billing.RemovePrice(ctx, o.actor, surface.Param(o.r, "version"))
}

func newPriceBody(p billing.Price) priceBody {
	return priceBody{p.Version, p.Currency, surface.Timestamp(p.Effective), p.Items, stamp(p.CreatedAt)}
}
