package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"stoa/tenancy/db/dbtest"
)

// TestCurrencies moves an app from dollars to euros: a new price book does not change its currency, a plan does. Its
// hard budget in dollars then refuses calls until there is one in euros, and its usage is reported in both.
func TestCurrencies(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		h.createPrices(t)
		h.createApp(t, "acme", paidApp)
		ana, eve := h.createToken(t, "acme", "ana", nil), h.createToken(t, "acme", "eve", map[string]any{"roles": []string{"viewer"}})
		book := func(version string, from time.Time) map[string]any {
			return map[string]any{"version": version, "currency": "EUR", "effective_from": from.UTC().Format(time.RFC3339), "items": []any{
				map[string]any{"kind": "charge", "meter": "model_calls", "per": 1, "amount": 7},
			}}
		}
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/prices", testSecret, book("euro", time.Now().Add(-time.Hour)))
		h.requireStatus(t, http.StatusPreconditionFailed, nil, "DELETE", "/admin/prices/euro", testSecret, nil)
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/prices", testSecret, book("later", time.Now().Add(time.Hour)))
		h.requireStatus(t, http.StatusNoContent, nil, "DELETE", "/admin/prices/later", testSecret, nil)
		h.requireStatus(t, http.StatusNotFound, nil, "DELETE", "/admin/prices/later", testSecret, nil)

		money := func(name, currency string) map[string]any {
			return map[string]any{"name": name, "unit": "money", "currency": currency, "amount": 1_000_000, "window": "year", "hard": true}
		}
		h.requireStatus(t, http.StatusBadRequest, nil, "POST", "/admin/apps/acme/budgets", testSecret, money("euros", "EUR"))
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps/acme/budgets", testSecret, money("dollars", "USD"))
		send := func() (int, string) { return h.sendText(t, ana, "hi") }
		if status, body := send(); status != http.StatusOK || !strings.Contains(body, "hello there") {
			t.Fatal(status, body)
		}
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/plans", testSecret, map[string]any{"name": "euro", "currency": "EUR"})
		h.requireStatus(t, http.StatusOK, nil, "PATCH", "/admin/apps/acme", testSecret, map[string]any{"plan": "euro"})
		dbtest.WaitUntil(t, "the budget of dollars refuses calls in euros", func() bool {
			_, body := send()
			return strings.Contains(body, "the hard budget dollars is in USD")
		})
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps/acme/budgets", testSecret, money("euros", "EUR"))
		if status, body := send(); status != http.StatusOK || !strings.Contains(body, "hello there") {
			t.Fatal(status, body)
		}
		for path, of := range map[string]struct {
			bearer string
			want   any
		}{
			"/admin/apps/acme/usage": {testSecret, []any{
				map[string]any{"currency": "EUR", "charge": 7., "charge_decimal": "0.000000007", "cost": 0., "cost_decimal": "0.00"},
				map[string]any{"currency": "USD", "charge": 400., "charge_decimal": "0.0000004", "cost": 11., "cost_decimal": "0.000000011"},
			}},
			"/billing/usage": {eve, []any{
				map[string]any{"currency": "EUR", "charge": 7., "charge_decimal": "0.000000007"}, map[string]any{"currency": "USD", "charge": 400., "charge_decimal": "0.0000004"},
			}},
		} {
			got := h.getUsage(t, path, of.bearer).Totals
			if diff := gocmp.Diff(of.want, got["charges"]); diff != "" || got["charge"] != nil || got["currency"] != nil || got["cost"] != nil || got["model_calls"] != 2. {
				t.Errorf("%s: %v (-want +got):\n%s", path, got, diff)
			}
		}
	})
}
