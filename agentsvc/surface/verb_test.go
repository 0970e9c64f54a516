package surface_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
)

// TestVerbMethods checks that a path which ends in a custom verb has only the methods of that verb, also where a route of
// another method has the same path without the verb. What is no verb of exactly that path is data.
func TestVerbMethods(t *testing.T) {
	t.Parallel()
	// echo answers with the parameter id of the pattern.
	echo := func(w http.ResponseWriter, r *http.Request) error {
		return response.WriteJSON(w, http.StatusOK, surface.PathParam(r, "id"))
	}
	h := surfacetest.New(t, surfacetest.Options{Default: config}, func(*surfacetest.Fixture) []surface.Route {
		return []surface.Route{
			{Method: http.MethodGet, Pattern: "/admin/things/{id}", Kind: surface.Admin, Serve: echo},
			{Method: http.MethodPut, Pattern: "/admin/things/{id}", Kind: surface.Admin, Idempotent: true, Serve: echo},
			{Method: http.MethodPost, Pattern: "/admin/things/{thing}:stop", Kind: surface.Admin, Serve: echo},
			{Method: http.MethodGet, Pattern: "/jobs/{id}", Aliases: []string{"/old/{id}"}, Kind: surface.Tenant, Serve: echo},
			{Method: http.MethodPost, Pattern: "/jobs/{id}:cancel", Aliases: []string{"/old/{id}:cancel"}, Kind: surface.Tenant, Serve: echo},
			{Method: http.MethodGet, Pattern: "/jobs/{id}:follow", Kind: surface.Tenant, Serve: echo},
			{Method: http.MethodGet, Pattern: "/secret/{id}", Kind: surface.Tenant, Scope: authz.ConfigRead, Serve: echo},
			{Method: http.MethodPost, Pattern: "/secret/{id}:cancel", Kind: surface.Tenant, Serve: echo},
			{Method: http.MethodGet, Pattern: "/files/{id}", Kind: surface.Tenant, Serve: echo},
		}
	})
	h.CreateApp(t, "acme", config)
	h.CreateApp(t, "globex", config)
	ana, ben := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"}), h.MintToken(t, "globex", authz.TokenSpec{Subject: "ben"})
	for _, tt := range []struct {
		name, method, path, token string
		want                      int
		// allow is the header Allow, body a part of the response.
		allow, body string
	}{
		{name: "a verb of POST", method: "GET", path: "/admin/things/a:stop", token: surfacetest.Secret, want: 405, allow: "POST", body: "the method GET is not allowed here; there are POST"},
		{name: "HEAD", method: "HEAD", path: "/admin/things/a:stop", token: surfacetest.Secret, want: 405, allow: "POST"},
		{name: "a method that changes", method: "PUT", path: "/admin/things/a:stop", token: surfacetest.Secret, want: 405, allow: "POST"},
		{name: "a method of no route", method: "DELETE", path: "/admin/things/a:stop", token: surfacetest.Secret, want: 405, allow: "POST"},
		{name: "the verb", method: "POST", path: "/admin/things/a:stop", token: surfacetest.Secret, want: 200},
		{name: "no operator", method: "GET", path: "/admin/things/a:stop", token: ana, want: 403},
		{name: "no credential of the operator", method: "GET", path: "/admin/things/a:stop", want: 401},
		{name: "a verb of no id", method: "GET", path: "/admin/things/:stop", token: surfacetest.Secret, want: 200, body: `":stop"`},

		{name: "tenant", method: "GET", path: "/jobs/x:cancel", token: ana, want: 405, allow: "POST"},
		{name: "alias", method: "GET", path: "/old/x:cancel", token: ana, want: 405, allow: "POST"},
		{name: "below its app", method: "GET", path: "/apps/acme/jobs/x:cancel", token: ana, want: 405, allow: "POST"},
		{name: "encoded colon", method: "GET", path: "/jobs/x%3Acancel", token: ana, want: 405, allow: "POST"},
		{name: "encoded slash", method: "GET", path: "/jobs/x%2Fy:cancel", token: ana, want: 405, allow: "POST"},
		{name: "with a query", method: "GET", path: "/jobs/x:cancel?nosuch=1", token: ana, want: 405, allow: "POST"},
		{name: "a verb of GET", method: "POST", path: "/jobs/x:follow", token: ana, want: 405, allow: "GET, HEAD"},
		{name: "the verb of GET", method: "GET", path: "/jobs/x:follow", token: ana, want: 200, body: `"x"`},
		{name: "no verb", method: "POST", path: "/jobs/x:nosuch", token: ana, want: 404, body: "there is no :nosuch here; there are :cancel"},
		{name: "an id with a colon", method: "GET", path: "/jobs/x:nosuch", token: ana, want: 200, body: `"x:nosuch"`},
		{name: "a verb of another path", method: "GET", path: "/files/x:cancel", token: ana, want: 200, body: `"x:cancel"`},

		{name: "no credential", method: "GET", path: "/apps/acme/jobs/x:cancel", want: 401},
		{name: "no credential, no app", method: "GET", path: "/apps/nosuch/jobs/x:cancel", want: 401},
		{name: "another app's caller", method: "GET", path: "/apps/acme/jobs/x:cancel", token: ben, want: 404, body: "no such app"},
		{name: "another app's caller, no app", method: "GET", path: "/apps/nosuch/jobs/x:cancel", token: ben, want: 404, body: "no such app"},
		{name: "no scope", method: "GET", path: "/secret/x:cancel", token: ana, want: 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			resp, body := h.Do(t, tt.method, tt.path, tt.token, nil)
			if resp.StatusCode != tt.want || !strings.Contains(body, tt.body) {
				t.Errorf("%d %s, want %d with %q", resp.StatusCode, body, tt.want, tt.body)
			}
			if diff := cmp.Diff(tt.allow, strings.Join(resp.Header.Values("Allow"), ", ")); diff != "" {
				t.Errorf("Allow: %s", diff)
			}
		})
	}
}
