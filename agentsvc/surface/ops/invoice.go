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
func invoiceRoutes(a admin) []surface.Route {
	return []surface.Route{
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/credits", Serve: act(a.addCredit), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/credits", Serve: a.credits},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}/credits/{credit}", Serve: act(a.revokeCredit), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/ledger", Query: []string{"before", "page_size"}, Serve: a.ledger},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/invoices", Serve: a.invoices},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/invoices/{invoice}", Serve: a.invoice},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/invoices/{invoice}:finalize", Serve: act(a.finalize), Once: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/invoices/{invoice}:reverse", Serve: act(a.reverse), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/exports", Serve: a.exports},
		{Method: http.MethodGet, Pattern: "/billing/invoices", Kind: surface.Tenant, Scope: authz.UsageRead, Serve: a.ownInvoices},
		{Method: http.MethodGet, Pattern: "/billing/invoices/{invoice}", Kind: surface.Tenant, Scope: authz.UsageRead, Serve: a.ownInvoice},
	}
}

// payer returns the app of that name, or of that name or id one whose books are kept. One that is not gone is returned as it is
// now, with its plan, by which it is invoiced.
func (a admin) payer(ctx context.Context, name string) (tenancy.App, error) {
	app, err := a.apps.Get(ctx, name)
	if !errors.Is(err, tenancy.ErrNotFound) {
		return app, err
	}
	former, ferr := a.billing.Former(ctx, name)
	if ferr != nil {
		if errors.Is(ferr, billing.ErrNotFound) {
			return app, err
		}
		return former, ferr
	}
	switch live, err := a.apps.Get(ctx, former.Name); {
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

func (a admin) invoices(w http.ResponseWriter, r *http.Request) error {
	app, err := a.payer(r.Context(), surface.Param(r, "app"))
	if err != nil {
		return err
	}
	list, err := a.billing.Invoices(r.Context(), app)
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, invoiceList{list})
}

func (a admin) ownInvoices(w http.ResponseWriter, r *http.Request) error {
	list, err := a.billing.FinalInvoices(r.Context(), surface.VisitOf(r).App.ID)
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, invoiceList{list})
}

func (a admin) invoice(w http.ResponseWriter, r *http.Request) error {
	app, err := a.payer(r.Context(), surface.Param(r, "app"))
	if err != nil {
		return err
	}
	id, form := formOf(r)
	inv, err := a.billing.Invoice(r.Context(), app, id)
	if err != nil {
		return err
	}
	return writeInvoice(w, inv, form)
}

func (a admin) ownInvoice(w http.ResponseWriter, r *http.Request) error {
	id, form := formOf(r)
	inv, err := a.billing.FinalInvoice(r.Context(), surface.VisitOf(r).App.ID, id)
	if err != nil {
		return err
	}
	return writeInvoice(w, inv, form)
}

func (a admin) finalize(ctx context.Context, o *order) (answer, error) {
	return a.settle(ctx, o, a.billing.Finalize)
}

func (a admin) reverse(ctx context.Context, o *order) (answer, error) {
	return a.settle(ctx, o, a.billing.Reverse)
}

func (a admin) settle(ctx context.Context, o *order, do func(ctx context.Context, actor string, app tenancy.App, id string) (billing.Invoice, error)) (answer, error) {
	if err := o.decode(&struct{}{}, true); err != nil {
		return answer{}, err
	}
	app, err := a.payer(ctx, o.app())
	if err != nil {
		return answer{}, err
	}
	inv, err := do(ctx, o.actor, app, surface.Param(o.r, "invoice"))
	return answer{status: http.StatusOK, body: inv, app: app.ID}, err
}

// forms are the media types in which an invoice is written, by what stands behind its id in the path.
var forms = map[string]string{".json": "application/json", ".csv": "text/csv", ".html": "text/html"}

// formOf returns the id of an invoice and the media type that is asked for: by the path, else by the Accept header.
func formOf(r *http.Request) (id, form string) {
	id = surface.Param(r, "invoice")
	for suffix, form := range forms {
		if before, ok := strings.CutSuffix(id, suffix); ok {
			return before, form
		}
	}
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		accepted, _, _ = strings.Cut(accepted, ";")
		for _, form := range forms {
			if strings.EqualFold(strings.TrimSpace(accepted), form) {
				return id, form
			}
		}
	}
	return id, forms[".json"]
}

func writeInvoice(w http.ResponseWriter, inv billing.Invoice, form string) error {
	w.Header().Add("Vary", "Accept")
	var b bytes.Buffer
	switch form {
	case forms[".csv"]:
		if err := inv.CSV(&b); err != nil {
			return err
		}
		w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", inv.App+"-"+inv.ID+".csv"))
	case forms[".html"]:
		if err := inv.HTML(&b); err != nil {
			return err
		}
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	default:
		return surface.WriteJSON(w, http.StatusOK, inv)
	}
	w.Header().Set("Content-Type", form+"; charset=utf-8")
	_, err := w.Write(b.Bytes())
	return err
}
