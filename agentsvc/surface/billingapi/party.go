package billingapi

import (
	"context"
	"net/http"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/billing"
	"stoa/billing/party"
	"stoa/tenancy"
	"stoa/tenancy/keyring"
)

// partyHandler serves the seller and the buyers of invoices. It is read-only and used by value.
type partyHandler struct {
	apps    *tenancy.Service
	billing *billing.Service
}

// loadPartyApp returns the app whose invoices the route is about, or the zero App for the route of the seller.
func (h partyHandler) loadPartyApp(ctx context.Context, name string) (tenancy.App, error) {
	if name == "" {
		return tenancy.App{}, nil
	}
	return h.apps.LoadApp(ctx, name)
}

// handleGetParty answers with the seller, or with the buyer of an app's invoices.
func (h partyHandler) handleGetParty(w http.ResponseWriter, r *http.Request) error {
	app, err := h.loadPartyApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	p, err := h.billing.Parties.FindParty(r.Context(), app)
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, p)
}

// putParty sets the seller, or the buyer of an app's invoices, as a whole.
func (h partyHandler) putParty(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var p party.Party
	if err := o.DecodeBody(&p, false); err != nil {
		return mutation.Result{}, err
	}
	app, err := h.loadPartyApp(ctx, o.AppName())
	if err != nil {
		return mutation.Result{}, err
	}
	hasher, err := h.newHasher(ctx, app)
	if err != nil {
		return mutation.Result{}, err
	}
	return mutation.Result{Status: http.StatusOK, Body: p, AppID: app.ID}, h.billing.Parties.PutParty(ctx, o.Actor, app, p, hasher)
}

// newHasher returns the hasher of values in the chain of an app, or in the operator's for the zero App.
func (h partyHandler) newHasher(ctx context.Context, app tenancy.App) (keyring.Hasher, error) {
	if app.ID == "" {
		return h.apps.Trail.Hasher()
	}
	s, err := h.apps.LoadSnapshot(ctx, app.ID, 0)
	if err != nil {
		return keyring.Hasher{}, err
	}
	return s.Hasher, nil
}
