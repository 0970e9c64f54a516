package admin_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/admin"
	"stoa/agentsvc/surface/billingapi"
	"stoa/agentsvc/surface/surfacetest"
)

// TestUnknownQuery checks that every admin route refuses an unknown query parameter, and one that is given twice,
// before it has any effect.
func TestUnknownQuery(t *testing.T) {
	t.Parallel()
	var routes []surface.Route
	h := surfacetest.New(t, surfacetest.Options{}, func(h *surfacetest.Fixture) []surface.Route {
		all := slices.Concat(admin.Routes(admin.Options{Apps: h.Apps, Issuer: h.Issuer, Keys: h.Keys, DB: h.DB, DeadLetters: h.DeadLetters}), billingapi.Routes(billingapi.Options{Apps: h.Apps, Keys: h.Keys, Billing: h.Billing}))
		for _, r := range all {
			if r.Kind == surface.Admin {
				routes = append(routes, r)
			}
		}
		return all
	})
	sendAdmin := func(method, path string) string {
		resp, body := h.Do(t, method, path, surfacetest.Secret, `{"name": "acme", "config": {}}`)
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s %s: %d %s", method, path, resp.StatusCode, body)
		}
		return body
	}
	for _, r := range routes {
		body := sendAdmin(r.Method, r.Pattern+"?dryrun=true")
		if !strings.Contains(body, `\"dryrun\" is not known here`) || len(r.Query) > 0 && !strings.Contains(body, r.Query[0]) {
			t.Errorf("%s %s says %s", r.Method, r.Pattern, body)
		}
	}
	if body := sendAdmin(http.MethodGet, "/admin/apps/acme/usage?group_by=agent&group_by=model"); !strings.Contains(body, "group_by: is given more than once") {
		t.Error(body)
	}
	if resp, _ := h.Do(t, http.MethodGet, "/admin/apps/acme", surfacetest.Secret, nil); resp.StatusCode != http.StatusNotFound {
		t.Error("an app was made")
	}
}
