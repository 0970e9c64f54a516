package ops

import (
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/authz"
)

// billingRoutes returns the endpoints for prices, plans, budgets and usage: those of the platform below /admin, and
// those in which an app reads its own.
func billingRoutes(a adminAPI) []surface.Route {
	return []surface.Route{
		{Method: http.MethodPost, Pattern: "/admin/prices", Serve: newMutationHandler(a.addPrice), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/prices", Serve: a.handleListPrices},
		{Method: http.MethodGet, Pattern: "/admin/prices/{version}", Serve: a.handleGetPrice},
		{Method: http.MethodDelete, Pattern: "/admin/prices/{version}", Serve: newMutationHandler(a.deletePrice), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/plans", Serve: newMutationHandler(a.addPlan), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/plans", Serve: a.handleListPlans},
		{Method: http.MethodGet, Pattern: "/admin/plans/{plan}", Serve: a.handleGetPlan},
		{Method: http.MethodPut, Pattern: "/admin/plans/{plan}", Serve: newMutationHandler(a.updatePlan), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/budgets", Serve: newMutationHandler(a.addBudget), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/budgets", Serve: a.handleListBudgets},
		{Method: http.MethodPut, Pattern: "/admin/budgets/{budget}", Serve: newMutationHandler(a.updateBudget), Idempotent: true},
		{Method: http.MethodDelete, Pattern: "/admin/budgets/{budget}", Serve: newMutationHandler(a.deleteBudget), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/budgets", Serve: newMutationHandler(a.addBudget), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/budgets", Serve: a.handleListBudgets},
		{Method: http.MethodPut, Pattern: "/admin/apps/{app}/budgets/{budget}", Serve: newMutationHandler(a.updateBudget), Idempotent: true},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}/budgets/{budget}", Serve: newMutationHandler(a.deleteBudget), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/usage", Query: usageParams, Serve: a.handleUsage},
		{Method: http.MethodGet, Pattern: "/billing/usage", Query: usageParams, Kind: surface.Tenant, Scope: authz.UsageRead, Serve: a.handleAppUsage},
		{Method: http.MethodGet, Pattern: "/billing/budgets", Kind: surface.Tenant, Scope: authz.UsageRead, Serve: a.handleListAppBudgets},
	}
}

// parseTime parses a time in RFC 3339 or a day, which means its start in UTC. An empty text is defaultTime. The
// error names field.
func parseTime(field, text string, defaultTime time.Time) (time.Time, error) {
	if text == "" {
		return defaultTime, nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, agentsvc.NewInvalidError(field, "must be a time such as 2026-11-01T00:00:00Z, or a day such as 2026-11-01")
}
