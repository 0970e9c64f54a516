package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"stoa/agentsvc/surface"
	"stoa/authz"
	"stoa/billing"
	"stoa/tenancy"
)

// invoiceRoutes are the books of apps: credits, invoices and the entries behind them.
func invoiceRoutes(a adminAPI) []surface.Route {
	return []surface.Route{
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/credits", Serve: newMutationHandler(a.addCredit), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/credits", Serve: a.handleListCredits},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}/credits/{credit}", Serve: newMutationHandler(a.revokeCredit), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/ledger", Query: []string{"before", "page_size"}, Serve: a.handleLedger},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/invoices", Serve: a.handleListInvoices},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/invoices/{invoice}", Serve: a.handleGetInvoice},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/invoices/{invoice}:finalize", Serve: newMutationHandler(a.finalizeInvoice), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/invoices/{invoice}:reverse", Serve: newMutationHandler(a.reverseInvoice), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/exports", Serve: a.handleListExports},
		{Method: http.MethodGet, Pattern: "/billing/invoices", Kind: surface.Tenant, Scope: authz.UsageRead, Serve: a.handleListAppInvoices},
		{Method: http.MethodGet, Pattern: "/billing/invoices/{invoice}", Kind: surface.Tenant, Scope: authz.UsageRead, Serve: a.handleGetAppInvoice},
	}
}

// loadBilledApp returns the app of that name, or of that name or id one whose books are kept. One that is not gone is returned as it is
// now, with its plan, by which it is invoiced.
func (a adminAPI) loadBilledApp(ctx context.Context, name string) (tenancy.App, error) {
	app, err := a.apps.LoadApp(ctx, name)
	if !errors.Is(err, tenancy.ErrNotFound) {
		return app, err
	}
	former, ferr := a.billing.FindFormerApp(ctx, name)
	if ferr != nil {
		if errors.Is(ferr, billing.ErrNotFound) {
			return app, err
		}
		return former, ferr
	}
	switch live, err := a.apps.LoadApp(ctx, former.Name); {
	case err == nil && live.ID == former.ID:
		return live, nil
	case err != nil && !errors.Is(err, tenancy.ErrNotFound):
		return live, err
	}
	return former, nil
}

type invoiceList struct {
	Invoices []billing.Invoice `json:"invoices"`
}

func (a adminAPI) handleListInvoices(w http.ResponseWriter, r *http.Request) error {
	app, err := a.loadBilledApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	list, err := a.billing.ListInvoices(r.Context(), app)
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, invoiceList{list})
}

func (a adminAPI) handleListAppInvoices(w http.ResponseWriter, r *http.Request) error {
	list, err := a.billing.ListFinalInvoices(r.Context(), surface.RequestOf(r).App.ID)
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, invoiceList{list})
}

func (a adminAPI) handleGetInvoice(w http.ResponseWriter, r *http.Request) error {
	app, err := a.loadBilledApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	id, mediaType := negotiateInvoice(r)
	inv, err := a.billing.FindInvoice(r.Context(), app, id)
	if err != nil {
		return err
	}
	return writeInvoice(w, inv, mediaType)
}

func (a adminAPI) handleGetAppInvoice(w http.ResponseWriter, r *http.Request) error {
	id, mediaType := negotiateInvoice(r)
	inv, err := a.billing.FindFinalInvoice(r.Context(), surface.RequestOf(r).App.ID, id)
	if err != nil {
		return err
	}
	return writeInvoice(w, inv, mediaType)
}

func (a adminAPI) finalizeInvoice(ctx context.Context, o *mutation) (mutationResult, error) {
	return a.changeInvoice(ctx, o, a.billing.FinalizeInvoice)
}

func (a adminAPI) reverseInvoice(ctx context.Context, o *mutation) (mutationResult, error) {
	return a.changeInvoice(ctx, o, a.billing.ReverseInvoice)
}

func (a adminAPI) changeInvoice(ctx context.Context, o *mutation, do func(ctx context.Context, actor string, app tenancy.App, id string) (billing.Invoice, error)) (mutationResult, error) {
	if err := o.decodeBody(&struct{}{}, true); err != nil {
		return mutationResult{}, err
	}
	app, err := a.loadBilledApp(ctx, o.appName())
	if err != nil {
		return mutationResult{}, err
	}
	inv, err := do(ctx, o.actor, app, surface.PathParam(o.r, "invoice"))
	return mutationResult{status: http.StatusOK, body: inv, appID: app.ID}, err
}

// invoiceMediaTypes are the media types in which an invoice is written, by what stands behind its id in the path.
var invoiceMediaTypes = map[string]string{".json": "application/json", ".csv": "text/csv", ".html": "text/html"}

// negotiateInvoice returns the id of an invoice and the media type that is asked for: by the path, else by the Accept header.
func negotiateInvoice(r *http.Request) (id, mediaType string) {
	id = surface.PathParam(r, "invoice")
	for suffix, mediaType := range invoiceMediaTypes {
		if before, ok := strings.CutSuffix(id, suffix); ok {
			return before, mediaType
		}
	}
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		accepted, _, _ = strings.Cut(accepted, ";")
		for _, mediaType := range invoiceMediaTypes {
			if strings.EqualFold(strings.TrimSpace(accepted), mediaType) {
				return id, mediaType
			}
		}
	}
	return id, invoiceMediaTypes[".json"]
}

func writeInvoice(w http.ResponseWriter, inv billing.Invoice, mediaType string) error {
	w.Header().Add("Vary", "Accept")
	var b bytes.Buffer
	switch mediaType {
	case invoiceMediaTypes[".csv"]:
		if err := inv.WriteCSV(&b); err != nil {
			return err
		}
		w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", inv.App+"-"+inv.ID+".csv"))
	case invoiceMediaTypes[".html"]:
		if err := inv.WriteHTML(&b); err != nil {
			return err
		}
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	default:
		return surface.WriteJSON(w, http.StatusOK, inv)
	}
	w.Header().Set("Content-Type", mediaType+"; charset=utf-8")
	_, err := w.Write(b.Bytes())
	return err
}
