package billingapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/billing"
	"stoa/billing/invoice"
	"stoa/tenancy"
	"stoa/tenancy/audit"
)

// invoiceHandler serves invoices. It is read-only and used by value.
type invoiceHandler struct {
	billedApps
}

// billedApps finds the apps that were billed, also deleted ones.
type billedApps struct {
	apps    *tenancy.Service
	billing *billing.Service
}

// loadBilledApp returns the app of that name, or a former app of that name or ID that has a ledger: invoices
// outlive their app. An app that still exists is returned in its current form, because the plan is needed for its
// drafts.
func (a billedApps) loadBilledApp(ctx context.Context, name string) (tenancy.App, error) {
	app, err := a.apps.LoadApp(ctx, name)
	if !errors.Is(err, agentsvc.CodeNotFound) {
		return app, err
	}
	former, ferr := a.billing.Ledgers.FindFormerApp(ctx, name)
	if ferr != nil {
		if errors.Is(ferr, agentsvc.CodeNotFound) {
			return app, err
		}
		return former, ferr
	}
	// The name may be the ID of an app that still exists. Another app may have a former app's name by now, so the
	// IDs must agree.
	switch live, err := a.apps.LoadApp(ctx, former.Name); {
	case err == nil && live.ID == former.ID:
		return live, nil
	case err != nil && !errors.Is(err, agentsvc.CodeNotFound):
		return live, err
	}
	return former, nil
}

type invoiceList struct {
	Invoices []invoice.Invoice `json:"invoices"`
}

// handleListInvoices answers an operator with all invoices of an app, drafts included, without their lines.
func (h invoiceHandler) handleListInvoices(w http.ResponseWriter, r *http.Request) error {
	app, err := h.loadBilledApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	list, err := h.billing.Invoices.ListInvoices(r.Context(), app)
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, invoiceList{list})
}

// handleListAppInvoices answers an app with its final invoices.
func (h invoiceHandler) handleListAppInvoices(w http.ResponseWriter, r *http.Request) error {
	list, err := h.billing.Invoices.ListFinalInvoices(r.Context(), surface.RequestOf(r).App.ID)
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, invoiceList{list})
}

// handleGetInvoice answers an operator with one invoice, in JSON, CSV or HTML.
func (h invoiceHandler) handleGetInvoice(w http.ResponseWriter, r *http.Request) error {
	app, err := h.loadBilledApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	id, mediaType := negotiateInvoice(r)
	inv, err := h.billing.Invoices.FindInvoice(r.Context(), app, id)
	if err != nil {
		return err
	}
	return writeInvoice(w, inv, mediaType)
}

// handleGetAppInvoice answers an app with one of its final invoices. A draft is not found.
func (h invoiceHandler) handleGetAppInvoice(w http.ResponseWriter, r *http.Request) error {
	id, mediaType := negotiateInvoice(r)
	inv, err := h.billing.Invoices.FindFinalInvoice(r.Context(), surface.RequestOf(r).App.ID, id)
	if err != nil {
		return err
	}
	return writeInvoice(w, inv, mediaType)
}

// finalizeInvoice makes a draft final.
func (h invoiceHandler) finalizeInvoice(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	return h.changeInvoice(ctx, o, h.billing.Invoices.FinalizeInvoice)
}

// reverseInvoice reverses a final invoice and answers with the credit note.
func (h invoiceHandler) reverseInvoice(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	return h.changeInvoice(ctx, o, h.billing.Invoices.ReverseInvoice)
}

// changeInvoice calls do for the invoice of the path. A body, if there is one, must be an empty object.
func (h invoiceHandler) changeInvoice(ctx context.Context, o *mutation.Request, do func(ctx context.Context, actor audit.Actor, app tenancy.App, id string) (invoice.Invoice, error)) (mutation.Result, error) {
	if err := o.DecodeBody(&struct{}{}, true); err != nil {
		return mutation.Result{}, err
	}
	app, err := h.loadBilledApp(ctx, o.AppName())
	if err != nil {
		return mutation.Result{}, err
	}
	inv, err := do(ctx, o.Actor, app, surface.PathParam(o.HTTP, "invoice"))
	return mutation.Result{Status: http.StatusOK, Body: inv, AppID: app.ID}, err
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
		return response.WriteJSON(w, http.StatusOK, inv)
	}
	w.Header().Set("Content-Type", mediaType+"; charset=utf-8")
	_, err := w.Write(b.Bytes())
	return err
}
