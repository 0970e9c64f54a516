package ops

import (
	"net/http"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/authz"
)

// billingRoutes are the prices, plans and budgets of the platform, and what an app sees of its own.
func billingRoutes(a admin) []surface.Route {
	return []surface.Route{
		{Method: http.MethodPost, Pattern: "/admin/prices", Serve: act(a.addPrice), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/prices", Serve: a.prices},
		{Method: http.MethodGet, Pattern: "/admin/prices/{version}", Serve: a.price},
		{Method: http.MethodDelete, Pattern: "/admin/prices/{version}", Serve: act(a.deletePrice), Once: true},
		{Method: http.MethodPost, Pattern: "/admin/plans", Serve: act(a.addPlan), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/plans", Serve: a.plans},
		{Method: http.MethodGet, Pattern: "/admin/plans/{plan}", Serve: a.plan},
		{Method: http.MethodPut, Pattern: "/admin/plans/{plan}", Serve: act(a.putPlan), Once: true},
		{Method: http.MethodPost, Pattern: "/admin/budgets", Serve: act(a.addBudget), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/budgets", Serve: a.budgets},
		{Method: http.MethodPut, Pattern: "/admin/budgets/{budget}", Serve: act(a.putBudget), Once: true},
		{Method: http.MethodDelete, Pattern: "/admin/budgets/{budget}", Serve: act(a.deleteBudget), Once: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/budgets", Serve: act(a.addBudget), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/budgets", Serve: a.budgets},
		{Method: http.MethodPut, Pattern: "/admin/apps/{app}/budgets/{budget}", Serve: act(a.putBudget), Once: true},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}/budgets/{budget}", Serve: act(a.deleteBudget), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/usage", Query: usageNames, Serve: a.usage},
		{Method: http.MethodGet, Pattern: "/billing/usage", Query: usageNames, Kind: surface.Tenant, Scope: authz.UsageRead, Serve: a.ownUsage},
		{Method: http.MethodGet, Pattern: "/billing/budgets", Kind: surface.Tenant, Scope: authz.UsageRead, Serve: a.ownBudgets},
	}
}

// parseTime reads a time, or a day in UTC, usual where it is missing.
func parseTime(field, text string, usual time.Time) (time.Time, error) {
	if text == "" {
		return usual, nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, agentsvc.Invalid(field, "must be a time such as 2026-11-01T00:00:00Z, or a day such as 2026-11-01")
}
