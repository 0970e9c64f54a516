package billingapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/billing"
	"stoa/billing/invoice"
	"stoa/billing/party"
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

// invoicePage is a page of the invoices of all apps.
type invoicePage struct {
	invoiceList
	NextPageToken string `json:"next_page_token"`
}

// handleListAllInvoices answers an operator with a page of the invoices of all apps, without their lines: final ones and
// credit notes by number, the newest first, or with status=draft the drafts by app. A page of drafts has those of as many
// apps as its size.
func (h invoiceHandler) handleListAllInvoices(w http.ResponseWriter, r *http.Request) error {
	size, err := decode.ParsePageSize(r, tenancy.DefaultPageSize, tenancy.MaxPageSize)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	month, token := q.Get("month"), q.Get("page_token")
	if month != "" {
		if _, err := time.Parse("2006-01", month); err != nil {
			return agentsvc.NewInvalidError("month", "must be a month such as 2026-11")
		}
	}
	var page invoicePage
	switch q.Get("status") {
	case "", string(invoice.Final):
		page, err = h.listFinal(r.Context(), month, token, size)
	case string(invoice.Draft):
		page, err = h.listDrafts(r.Context(), month, token, size)
	default:
		return agentsvc.NewInvalidError("status", "must be final, which includes reversed invoices and credit notes, or draft")
	}
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, page)
}

// listFinal returns a page of the final documents of all apps. Its token is the number of the last one.
func (h invoiceHandler) listFinal(ctx context.Context, month, token string, size int) (page invoicePage, err error) {
	var before int64
	if token != "" {
		if before, err = strconv.ParseInt(token, 10, 64); err != nil || before < 1 {
			return page, agentsvc.NewInvalidError("page_token", "is not a token of this list")
		}
	}
	page.Invoices, err = h.billing.Invoices.ListAllInvoices(ctx, invoice.AllQuery{Month: month, Before: before, Size: size + 1})
	if len(page.Invoices) > size {
		page.Invoices = page.Invoices[:size]
		page.NextPageToken = strconv.FormatInt(page.Invoices[size-1].Number, 10)
	}
	return page, err
}

// listDrafts returns the drafts of a page of apps.
func (h invoiceHandler) listDrafts(ctx context.Context, month, token string, size int) (invoicePage, error) {
	apps, err := h.apps.ListApps(ctx, tenancy.AppQuery{Size: size, Token: token})
	page := invoicePage{invoiceList{[]invoice.Invoice{}}, apps.Next}
	for _, app := range apps.Apps {
		drafts, err := h.billing.Invoices.ListDrafts(ctx, app)
		if err != nil {
			return page, err
		}
		for _, draft := range drafts {
			if month == "" || draft.ID == month {
				page.Invoices = append(page.Invoices, draft)
			}
		}
	}
	return page, err
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

// handleGetInvoice answers an operator with one invoice, in JSON, CSV, HTML or plain text.
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

// finalizeInvoice makes a draft final, that of a running month with force only.
func (h invoiceHandler) finalizeInvoice(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var body struct {
		Force         bool `json:"force"`
		AllowUnpriced bool `json:"allow_unpriced"`
	}
	return h.changeInvoice(ctx, o, &body, func(ctx context.Context, actor audit.Actor, app tenancy.App, id string) (invoice.Invoice, error) {
		return h.billing.Invoices.FinalizeInvoice(ctx, actor, app, id, invoice.FinalizeOptions(body))
	})
}

// reissueInvoice invoices the usage of a reversed invoice again, as it was or by the plan that the body names.
func (h invoiceHandler) reissueInvoice(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var body struct {
		Plan  *string      `json:"plan"`
		Buyer *party.Party `json:"buyer"`
	}
	return h.changeInvoice(ctx, o, &body, func(ctx context.Context, actor audit.Actor, app tenancy.App, id string) (invoice.Invoice, error) {
		return h.billing.Invoices.ReissueInvoice(ctx, actor, app, id, invoice.ReissueOptions{Plan: body.Plan, Buyer: body.Buyer})
	})
}

// reverseInvoice reverses a final invoice and answers with the credit note.
func (h invoiceHandler) reverseInvoice(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	return h.changeInvoice(ctx, o, &struct{}{}, h.billing.Invoices.ReverseInvoice)
}

// changeInvoice decodes the body, which may be empty, into body and calls do for the invoice of the path.
func (h invoiceHandler) changeInvoice(ctx context.Context, o *mutation.Request, body any, do func(ctx context.Context, actor audit.Actor, app tenancy.App, id string) (invoice.Invoice, error)) (mutation.Result, error) {
	if err := o.DecodeBody(body, true); err != nil {
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
var invoiceMediaTypes = map[string]string{".json": "application/json", ".csv": "text/csv", ".html": "text/html", ".txt": "text/plain"}

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

// writeInvoice writes an invoice. Forms other than JSON are rendered into memory first, so that a failure is still an
// HTTP error. The Content-Security-Policy keeps text from customers in the HTML from loading or running anything.
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
	case invoiceMediaTypes[".txt"]:
		if err := inv.WriteText(&b); err != nil {
			return err
		}
	default:
		return response.WriteJSON(w, http.StatusOK, inv)
	}
	w.Header().Set("Content-Type", mediaType+"; charset=utf-8")
	_, err := w.Write(b.Bytes())
	return err
}
