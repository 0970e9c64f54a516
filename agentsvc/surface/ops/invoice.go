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
	"stoa/billing/invoice"
	"stoa/tenancy"
)

// invoiceRoutes returns the endpoints for credits, invoices, the ledger and usage exports.
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

// loadBilledApp returns the app of that name, or a former app of that name or ID that has a ledger: invoices
// outlive their app. An app that still exists is returned in its current form, because the plan is needed for its
// drafts.
func (a adminAPI) loadBilledApp(ctx context.Context, name string) (tenancy.App, error) {
	app, err := a.apps.LoadApp(ctx, name)
	if !errors.Is(err, tenancy.ErrNotFound) {
		return app, err
	}
	former, ferr := a.billing.Ledgers.FindFormerApp(ctx, name)
	if ferr != nil {
		if errors.Is(ferr, tenancy.ErrNotFound) {
			return app, err
		}
		return former, ferr
	}
	// The name may be the ID of an app that still exists. Another app may have a former app's name by now, so the
	// IDs must agree.
	switch live, err := a.apps.LoadApp(ctx, former.Name); {
	case err == nil && live.ID == former.ID:
		return live, nil
	case err != nil && !errors.Is(err, tenancy.ErrNotFound):
		return live, err
	}
	return former, nil
}

type invoiceList struct {
	Invoices []invoice.Invoice `json:"invoices"`
}

// handleListInvoices answers an operator with all invoices of an app, drafts included, without their lines.
func (a adminAPI) handleListInvoices(w http.ResponseWriter, r *http.Request) error {
	app, err := a.loadBilledApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	list, err := a.billing.Invoices.ListInvoices(r.Context(), app)
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, invoiceList{list})
}

// handleListAppInvoices answers an app with its final invoices.
func (a adminAPI) handleListAppInvoices(w http.ResponseWriter, r *http.Request) error {
	list, err := a.billing.Invoices.ListFinalInvoices(r.Context(), surface.RequestOf(r).App.ID)
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, invoiceList{list})
}

// handleGetInvoice answers an operator with one invoice, in JSON, CSV or HTML.
func (a adminAPI) handleGetInvoice(w http.ResponseWriter, r *http.Request) error {
	app, err := a.loadBilledApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	id, mediaType := negotiateInvoice(r)
	inv, err := a.billing.Invoices.FindInvoice(r.Context(), app, id)
	if err != nil {
		return err
	}
	return writeInvoice(w, inv, mediaType)
}

// handleGetAppInvoice answers an app with one of its final invoices. A draft is not found.
func (a adminAPI) handleGetAppInvoice(w http.ResponseWriter, r *http.Request) error {
	id, mediaType := negotiateInvoice(r)
	inv, err := a.billing.Invoices.FindFinalInvoice(r.Context(), surface.RequestOf(r).App.ID, id)
	if err != nil {
		return err
	}
	return writeInvoice(w, inv, mediaType)
}

// finalizeInvoice makes a draft final.
func (a adminAPI) finalizeInvoice(ctx context.Context, o *mutation) (mutationResult, error) {
	return a.changeInvoice(ctx, o, a.billing.Invoices.FinalizeInvoice)
}

// reverseInvoice reverses a final invoice and answers with the credit note.
func (a adminAPI) reverseInvoice(ctx context.Context, o *mutation) (mutationResult, error) {
	return a.changeInvoice(ctx, o, a.billing.Invoices.ReverseInvoice)
}

// changeInvoice calls do for the invoice of the path. A body, if there is one, must be an empty object.
func (a adminAPI) changeInvoice(ctx context.Context, o *mutation, do func(ctx context.Context, actor string, app tenancy.App, id string) (invoice.Invoice, error)) (mutationResult, error) {
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

// invoiceMediaTypes maps the suffix of an invoice's path to its media type.
var invoiceMediaTypes = map[string]string{".json": "application/json", ".csv": "text/csv", ".html": "text/html"}

// negotiateInvoice returns the ID and the media type of the requested invoice: the suffix of the path decides, else
// the first known media type in Accept, else JSON. Quality values in Accept are ignored.
func negotiateInvoice(r *http.Request) (id, mediaType string) {
	id = surface.PathParam(r, "invoice")
	// No suffix is the end of another one, so the order of the map does not matter.
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

// writeInvoice writes an invoice. CSV and HTML are rendered into memory first, so that a failure is still an HTTP
// error. The Content-Security-Policy keeps text from customers in the HTML from loading or running anything.
func writeInvoice(w http.ResponseWriter, inv invoice.Invoice, mediaType string) error {
	// Without a suffix in the path the representation depends on Accept.
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
