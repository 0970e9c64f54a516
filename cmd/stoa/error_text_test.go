package main

import (
	"path/filepath"
	"testing"
	"time"
)

// TestWordsOfErrors checks that errors of the admin API describe what is wrong and where, and nothing of the
// implementation.
func TestWordsOfErrors(t *testing.T) {
	t.Parallel()
	h := openTestServer(t, "sqlite://"+filepath.Join(t.TempDir(), "stoa.db"))
	h.createApp(t, "acme", paidApp)
	h.createPrices(t)
	budgets := "/admin/apps/acme/budgets"
	h.requireStatus(t, 201, nil, "POST", budgets, testSecret, map[string]any{"name": "b", "unit": "calls", "amount": 1, "window": "month", "hard": true})
	h.checkRequests(t, []requestCase{
		{"a verb that is none", "POST", "/admin/apps/acme:suspnd", testSecret, nil, 404, `"there is no :suspnd here; there are :suspend, :resume"`},
		{"a verb of something else", "POST", "/admin/queue/dead/x:accept", testSecret, nil, 404, `"there is no :accept here; there are :requeue"`},
		{"a method that is none", "POST", "/admin/apps/acme", testSecret, nil, 405, "the method POST"},
		{"a plan that is none", "PUT", "/admin/plans/nope", testSecret, map[string]any{"weight": 3}, 404, `"message":"there is no plan nope"`},
		{"a field of a list", "POST", "/admin/prices", testSecret, map[string]any{"version": "x", "items": []any{map[string]any{"amount": 1.5}}}, 400, `"field":"items[0].amount"`},
		{"a misspelt field", "PATCH", "/admin/apps/acme", testSecret, map[string]any{"limits": map[string]any{"rates": []any{}}}, 400,
			`limits.rates: is not a known field (did you mean \"rate\"?)","details":{"field":"limits.rates"`},
		{"a window that is none", "POST", budgets, testSecret, map[string]any{"name": "c", "unit": "calls", "amount": 1, "window": "fortnight"}, 400, "one of minute, hour, day"},
		{"a window that stays", "PUT", budgets + "/b", testSecret, map[string]any{"window": "day"}, 400, `"field":"window"`},
		{"a price book", "GET", "/admin/prices/one", testSecret, nil, 200, `"version":"one"`},
		{"a price book that is none", "GET", "/admin/prices/v9", testSecret, nil, 404, `"message":"there is no such price book"`},
		{"groups twice", "GET", "/admin/apps/acme/usage?group_by=agent&group_by=model", testSecret, nil, 400, `"field":"group_by"`},
	})
	var used struct{ To time.Time }
	h.requireStatus(t, 200, &used, "GET", "/admin/apps/acme/usage", testSecret, nil)
	if used.To.After(time.Now().Add(time.Millisecond)) {
		t.Errorf("usage up to %v, which is yet to come", used.To)
	}
}
