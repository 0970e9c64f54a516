package billingapi_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/billing/invoice"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/tenancy/audit"
)

// TestInvoicesByID checks that an app that exists is invoiced by its plan, also if the path has its ID instead of
// its name.
func TestInvoicesByID(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	ctx := t.Context()
	sendAdmin := func(want int, into any, method, path string, body any) {
		t.Helper()
		resp, text := h.Do(t, method, path, surfacetest.Secret, body)
		if resp.StatusCode != want {
			t.Fatalf("%s %s: %d, want %d: %s", method, path, resp.StatusCode, want, text)
		}
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	// The first price book has another currency than the plan, so an invoice without the plan would be in USD.
	for _, currency := range []string{"USD", "EUR"} {
		_, err := h.Billing.Prices.AddVersion(ctx, audit.Actor{Name: "admin"}, price.Version{
			Version: currency, Currency: currency, Effective: time.UnixMicro(0), Items: []price.Item{{Kind: price.Charge, Meter: "model_calls", Per: 1, Amount: 10}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := h.Billing.Prices.AddPlan(ctx, audit.Actor{Name: "admin"}, price.Plan{
		Name: "berlin", Currency: "EUR", Timezone: "Europe/Berlin", Included: map[string]int64{"model_calls": 1}, Overage: map[string]price.Overage{"model_calls": {Per: 1, Amount: 7}},
	})
	if err != nil {
		t.Fatal(err)
	}
	h.CreateApp(t, "acme", "llms: {m: {provider: scripted}}\nagents: {clerk: {llm: m}}")
	sendAdmin(200, &struct{}{}, http.MethodPatch, "/admin/apps/acme", map[string]any{"plan": "berlin"})
	app, err := h.Apps.LoadApp(ctx, "acme")
	if err != nil {
		t.Fatal(err)
	}
	f := usage.RunFacts{Task: "t", Turn: 1, Epoch: 1, Agent: "clerk"}
	for range 3 {
		f.Events = append(f.Events, agentsvc.Event{Usage: &agentsvc.Usage{
			Call: agentsvc.NewID(), StartedAt: time.Date(2026, 1, 15, 0, 0, 0, 0, time.UTC), Provider: "scripted", Model: "scripted", InputTokens: 1,
		}})
	}
	if err := h.Billing.Usage.NewMeter(app.ID, app.Plan).WriteUsage(ctx, f); err != nil {
		t.Fatal(err)
	}
	sendAdmin(201, &struct{}{}, http.MethodPost, "/admin/apps/acme/credits", map[string]any{"amount": 5}) // creates the app's ledger

	byID := "/admin/apps/" + string(app.ID) + "/invoices/2026-01"
	var want, got invoice.Invoice
	sendAdmin(200, &want, http.MethodGet, "/admin/apps/acme/invoices/2026-01", nil)
	sendAdmin(200, &got, http.MethodGet, byID, nil)
	if diff := cmp.Diff(want, got); diff != "" || want.Plan != "berlin" {
		t.Errorf("the draft by the app's id (-by name +by id):\n%s", diff)
	}
	sendAdmin(200, &got, http.MethodPost, byID+":finalize", nil)
	want.Status, want.Number, want.FinalizedAt = invoice.Final, 1, got.FinalizedAt
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the invoice by the app's id (-draft by name +final):\n%s", diff)
	}
}
