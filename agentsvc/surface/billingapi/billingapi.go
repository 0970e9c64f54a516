// Package billingapi implements the billing endpoints (docs/billing.md): those of the platform's operator below /admin,
// for prices, plans, budgets, usage, credits, invoices, the ledger and exports, and those below /billing in which an app
// reads its own usage, budgets and invoices.
//
// There is one handler type for each resource; see package admin for how the endpoints that change something work.
// Request and response types are in the file of their resource. Times in responses are RFC 3339 in UTC with
// milliseconds, null for none. An amount of money is an integer in nano-units (10⁻⁹) of its currency, and has a member
// with the suffix _decimal next to it, a text in whole units. Requests may use either.
package billingapi

import (
	"cmp"
	"net/http"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/mutation"
	"stoa/authz"
	"stoa/billing"
	"stoa/tenancy"
)

// Options are the services behind the endpoints. All but Billing are required.
type Options struct {
	Apps *tenancy.Service
	Keys *authz.APIKeys // finds the app of an API key that a budget is for
	// Billing is nil if the platform does not bill; then there are no endpoints.
	Billing *billing.Service
	// MaxUsageRows bounds the rows of a page of the usage of all apps, unless one app has more; 0 = 10,000.
	MaxUsageRows int
}

// Routes returns the endpoints. A route without a Kind is of kind Admin, so that a forgotten Kind cannot open an
// endpoint.
func Routes(o Options) []surface.Route {
	if o.Billing == nil {
		return nil
	}
	prices, plans := priceHandler{o.Billing}, planHandler{o.Billing}
	budgets, usage, exports := budgetHandler{o.Apps, o.Keys, o.Billing}, usageHandler{o.Apps, o.Billing, cmp.Or(o.MaxUsageRows, defaultUsageRows)}, exportHandler{o.Billing}
	billed := billedApps{o.Apps, o.Billing}
	credits, invoices, ledgers, parties := creditHandler{billed}, invoiceHandler{billed}, ledgerHandler{billed}, partyHandler{o.Apps, o.Billing}
	routes := []surface.Route{
		{Method: http.MethodPost, Pattern: "/admin/prices", Serve: mutation.NewHandler(prices.addPrice), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/prices", Serve: prices.handleListPrices},
		{Method: http.MethodGet, Pattern: "/admin/prices/{version}", Serve: prices.handleGetPrice},
		{Method: http.MethodDelete, Pattern: "/admin/prices/{version}", Serve: mutation.NewHandler(prices.deletePrice), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/plans", Serve: mutation.NewHandler(plans.addPlan), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/plans", Serve: plans.handleListPlans},
		{Method: http.MethodGet, Pattern: "/admin/plans/{plan}", Serve: plans.handleGetPlan},
		{Method: http.MethodPut, Pattern: "/admin/plans/{plan}", Serve: mutation.NewHandler(plans.updatePlan), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/budgets", Serve: mutation.NewHandler(budgets.addBudget), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/budgets", Serve: budgets.handleListBudgets},
		{Method: http.MethodGet, Pattern: "/admin/budgets/{budget}", Serve: budgets.handleGetBudget},
		{Method: http.MethodPut, Pattern: "/admin/budgets/{budget}", Serve: mutation.NewHandler(budgets.updateBudget), Idempotent: true},
		{Method: http.MethodDelete, Pattern: "/admin/budgets/{budget}", Serve: mutation.NewHandler(budgets.deleteBudget), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/budgets", Serve: mutation.NewHandler(budgets.addBudget), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/budgets", Serve: budgets.handleListBudgets},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/budgets/{budget}", Serve: budgets.handleGetBudget},
		{Method: http.MethodPut, Pattern: "/admin/apps/{app}/budgets/{budget}", Serve: mutation.NewHandler(budgets.updateBudget), Idempotent: true},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}/budgets/{budget}", Serve: mutation.NewHandler(budgets.deleteBudget), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/usage", Query: append([]string{"page_size", "page_token"}, usageParams...), Serve: usage.handleAllUsage},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/usage", Query: usageParams, Serve: usage.handleUsage},
		{Method: http.MethodGet, Pattern: "/billing/usage", Query: usageParams, Kind: surface.Tenant, Scope: authz.UsageRead, Serve: usage.handleAppUsage},
		{Method: http.MethodGet, Pattern: "/billing/budgets", Kind: surface.Tenant, Scope: authz.UsageRead, Serve: budgets.handleListAppBudgets},
		{Method: http.MethodGet, Pattern: "/billing/budgets/{budget}", Kind: surface.Tenant, Scope: authz.UsageRead, Serve: budgets.handleGetAppBudget},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/credits", Serve: mutation.NewHandler(credits.addCredit), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/credits", Serve: credits.handleListCredits},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/credits/{credit}", Serve: credits.handleGetCredit},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}/credits/{credit}", Serve: mutation.NewHandler(credits.revokeCredit), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/ledger", Query: []string{"page_size", "page_token"}, Serve: ledgers.handleLedger},
		{Method: http.MethodGet, Pattern: "/admin/seller", Serve: parties.handleGetParty},
		{Method: http.MethodPut, Pattern: "/admin/seller", Serve: mutation.NewHandler(parties.putParty), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/buyer", Serve: parties.handleGetParty},
		{Method: http.MethodPut, Pattern: "/admin/apps/{app}/buyer", Serve: mutation.NewHandler(parties.putParty), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/invoices", Query: []string{"status", "month", "page_size", "page_token"}, Serve: invoices.handleListAllInvoices},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/invoices", Serve: invoices.handleListInvoices},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/invoices/{invoice}", Serve: invoices.handleGetInvoice},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/invoices/{invoice}:finalize", Serve: mutation.NewHandler(invoices.finalizeInvoice), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/invoices/{invoice}:reverse", Serve: mutation.NewHandler(invoices.reverseInvoice), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/invoices/{invoice}:reissue", Serve: mutation.NewHandler(invoices.reissueInvoice), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/exports", Serve: exports.handleListExports},
		{Method: http.MethodGet, Pattern: "/billing/invoices", Kind: surface.Tenant, Scope: authz.UsageRead, Serve: invoices.handleListAppInvoices},
		{Method: http.MethodGet, Pattern: "/billing/invoices/{invoice}", Kind: surface.Tenant, Scope: authz.UsageRead, Serve: invoices.handleGetAppInvoice},
	}
	for i := range routes {
		if routes[i].Kind == "" {
			routes[i].Kind = surface.Admin
		}
	}
	return routes
}
