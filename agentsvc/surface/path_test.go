package surface_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/surface/surfacetest"
)

// TestPathParams checks that a parameter has the decoded text of its segment, in which an encoded slash separates
// nothing, and that an empty segment matches no parameter.
func TestPathParams(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, func(*surfacetest.Fixture) []surface.Route {
		return []surface.Route{{Method: http.MethodGet, Pattern: "/things/{thing}/parts/{part}", Kind: surface.Open, Serve: func(w http.ResponseWriter, r *http.Request) error {
			return response.WriteJSON(w, http.StatusOK, surface.PathParam(r, "thing")+"|"+surface.PathParam(r, "part"))
		}}}
	})
	for path, want := range map[string]string{
		"/things/a/parts/b": "a|b", "/things/a%2Fb/parts/c": "a/b|c", "/things/a%2fb%25/parts/%41%20c": "a/b%|A c", "/things/a%252Fb/parts/c%2F": "a%2Fb|c/",
		"/things/a%2F..%2Fb/parts/c:d": "a/../b|c:d", "/things/a/b/parts/c": "404", "/things/a/parts%2Fb": "404", "/things%2Fa/parts/b": "404", "/things//parts/b": "404",
		"/things/a%2F%00/parts/b": "404",
	} {
		resp, got := h.Do(t, http.MethodGet, path, "", nil)
		if resp.StatusCode != http.StatusOK {
			got = strconv.Itoa(resp.StatusCode)
		}
		if got = strings.Trim(strings.TrimSpace(got), `"`); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
