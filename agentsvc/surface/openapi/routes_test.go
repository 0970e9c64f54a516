package openapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/admin"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/billingapi"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/mcp"
	"stoa/agentsvc/surface/openai"
	"stoa/agentsvc/surface/openapi"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/agentsvc/surface/tenantapi"
	v1 "stoa/agentsvc/surface/v1"
	"stoa/agentsvc/surface/webhook"
	"stoa/authz"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everyRoute is a server with the routes of all surfaces, an app acme in which nothing has happened, and a token for it.
type everyRoute struct {
	*surfacetest.Fixture
	routes []surface.Route
	token  string
	// observed has the observation of the last request, served the pattern of its route.
	observed chan surface.Observation
	served   string
}

func newEveryRoute(t *testing.T) *everyRoute {
	t.Helper()
	h := &everyRoute{observed: make(chan surface.Observation, 1)}
	const config = "llms: {m: {provider: scripted}}\nagents: {a: {llm: m}}\n"
	observe := func(o surface.Observation) { h.observed <- o }
	h.Fixture = surfacetest.New(t, surfacetest.Options{Default: config, Surface: surface.Options{Observe: observe}}, func(f *surfacetest.Fixture) []surface.Route {
		h.routes = openapi.WithDocument("v1.2.3", slices.Concat(ext.Routes(ext.Options{Metrics: http.NotFoundHandler()}), v1.Routes(v1.Options{}), a2a.Routes(a2a.Options{}),
			openai.Routes(openai.Options{}), mcp.Routes(mcp.Options{}), tenantapi.Routes(f.Apps), webhook.Routes(webhook.Options{DB: f.DB}),
			admin.Routes(admin.Options{Apps: f.Apps, Issuer: f.Issuer, Keys: f.Keys, DB: f.DB, DeadLetters: f.DeadLetters}),
			billingapi.Routes(billingapi.Options{Apps: f.Apps, Keys: f.Keys, Billing: f.Billing})))
		return h.routes
	})
	h.CreateApp(t, "acme", config)
	h.token = h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana", Roles: []string{"admin", "developer"}})
	return h
}

// credential returns what a caller of a route shows who may use it.
func (h *everyRoute) credential(r surface.Route) string {
	if r.Kind == surface.Admin {
		return surfacetest.Secret
	}
	return h.token
}

// send sends a request and returns its answer. All requests of a test must be sent by it.
func (h *everyRoute) send(t *testing.T, method, path, credential string, body any, headers ...string) (*http.Response, string) {
	t.Helper()
	resp, text := h.Do(t, method, path, credential, body, headers...)
	h.served = (<-h.observed).Route
	return resp, text
}

// listPatterns returns all patterns of a route.
func listPatterns(r surface.Route) []string {
	patterns := append([]string{r.Pattern}, r.Aliases...)
	if r.Kind == surface.Tenant {
		for _, p := range slices.Clone(patterns) {
			patterns = append(patterns, "/apps/{app}"+p)
		}
	}
	return patterns
}

// parameters matches a parameter of a pattern.
var parameters = regexp.MustCompile(`\{\w+\}`)

// fillPath replaces the parameters of a pattern.
func fillPath(pattern string, values ...string) string {
	values = append(values, "/apps/{app}", "/apps/acme", "{agent}", "a")
	for i := 0; i < len(values); i += 2 {
		pattern = strings.ReplaceAll(pattern, values[i], values[i+1])
	}
	return parameters.ReplaceAllString(pattern, "nosuch")
}

// TestEncodedSlashes checks that an encoded slash is data: it separates nothing, so that it leads to no other route, and
// in a parameter it arrives as a slash.
func TestEncodedSlashes(t *testing.T) {
	t.Parallel()
	h := newEveryRoute(t)
	for _, r := range h.routes {
		for _, pattern := range listPatterns(r) {
			// Each separator in turn is an encoded slash, so that the path has another structure than the pattern.
			path := fillPath(pattern)
			for i := range path {
				// With {of} or a slash at the end the path has the structure of another pattern of the same route.
				if path[i] != '/' || i == 0 || i == len(path)-1 || strings.Contains(pattern, "{of}") {
					continue
				}
				for _, encoded := range []string{"%2F", "%2f"} {
					wrong := path[:i] + encoded + path[i+1:]
					resp, body := h.send(t, r.Method, wrong, h.credential(r), nil)
					if h.served == r.Pattern || resp.StatusCode < 400 || resp.StatusCode >= 500 {
						t.Errorf("%s %s is served as %s: %d %s", r.Method, wrong, h.served, resp.StatusCode, body)
					}
				}
			}
			// Each parameter in turn has a slash.
			for _, m := range parameters.FindAllString(pattern, -1) {
				path := fillPath(pattern, m, "x%2Fy")
				resp, body := h.send(t, r.Method, path, h.credential(r), nil)
				isEncoded := strings.Contains(body, "%2F")
				if h.served != r.Pattern && h.served != "unknown" || resp.StatusCode < 400 || resp.StatusCode >= 500 || isEncoded {
					t.Errorf("%s %s is served as %s: %d %s", r.Method, path, h.served, resp.StatusCode, body)
				}
			}
		}
	}
}

// errorShape returns the names of the members of an error, and of those of its member error. Types distinguish the forms in
// which code is a number.
func errorShape(t *testing.T, body []byte) string {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal(body, &members); err != nil {
		return string(body)
	}
	inner, _ := members["error"].(map[string]any)
	return fmt.Sprintf("%v %v %T", slices.Sorted(maps.Keys(members)), slices.Sorted(maps.Keys(inner)), inner["code"])
}

// formOf returns the errorShape of a route's errors.
func formOf(t *testing.T, r surface.Route) string {
	t.Helper()
	_, body := r.EncodeError.Encode("id", apierror.Classify(apierror.ErrNoPath))
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return errorShape(t, raw)
}

// TestMethods checks that a method that a path does not have is answered with 405, in the form of the path's protocol,
// with exactly the methods in Allow that are not answered so.
func TestMethods(t *testing.T) {
	t.Parallel()
	h := newEveryRoute(t)
	methods := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodTrace, "PROPFIND"}
	for _, r := range h.routes {
		for _, pattern := range listPatterns(r) {
			path := fillPath(pattern, "/admin/apps/{app}", "/admin/apps/nosuch")
			var working, allow []string
			for _, m := range methods {
				resp, body := h.send(t, m, path, h.credential(r), nil)
				if resp.StatusCode != http.StatusMethodNotAllowed {
					working = append(working, m)
					continue
				}
				allow = resp.Header.Values("Allow")
				if m != http.MethodHead && errorShape(t, []byte(body)) != formOf(t, r) {
					t.Errorf("%s %s: the error has the form %s", m, path, body)
				}
			}
			for _, m := range allow {
				if !slices.Contains(working, m) {
					t.Errorf("%s: Allow has %s, which is answered with 405", path, m)
				}
			}
			if !slices.Contains(allow, r.Method) || r.Method == http.MethodGet && !slices.Contains(allow, http.MethodHead) || len(allow) == len(methods) {
				t.Errorf("%s %s: Allow is %s, and %s work", r.Method, path, allow, working)
			}
		}
	}
	if resp, body := h.send(t, "PROPFIND", "/nosuch", "", nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown method at an unknown path: %d %s", resp.StatusCode, body)
	}
}

// TestUnknownPaths checks that a path near those of a protocol is not found in the form of that protocol, and that
// headers that are too large are refused in the same form.
func TestUnknownPaths(t *testing.T) {
	t.Parallel()
	h := newEveryRoute(t)
	forms := map[string]surface.Route{}
	for _, r := range h.routes {
		forms[r.Pattern] = r
	}
	large := strings.Repeat("x", 40<<10)
	for path, form := range map[string]string{
		"/nosuch": "/health", "/admin/nosuch": "/admin/apps", "/admin/apps/acme/nosuch": "/admin/apps", "/agents/a/nosuch": "/agents", "/v1/nosuch": "/v1/agents",
		"/mcp/a/nosuch": "/mcp/{agent}", "/openai/v1/nosuch": "/openai/v1/models", "/openai": "/openai/v1/models", "/openai/v1/models/a/nosuch": "/openai/v1/models",
		"/a2a/a/nosuch": "/a2a/{agent}/tasks", "/a2a/a/tasks/x/nosuch": "/a2a/{agent}/tasks", "/a2a/a/v0.3/v1/nosuch": "/a2a/{agent}/v0.3/v1/tasks", "/a2a/a/v0.3/nosuch": "/a2a/{agent}/v0.3/v1/tasks",
	} {
		paths := []string{path}
		if !strings.HasPrefix(path, "/admin") {
			paths = append(paths, "/apps/acme"+path)
		}
		for _, path := range paths {
			want := formOf(t, forms[form])
			for status, headers := range map[int][]string{http.StatusNotFound: nil, http.StatusRequestHeaderFieldsTooLarge: {"X-Large", large}} {
				resp, body := h.send(t, http.MethodGet, path, h.credential(forms[form]), nil, headers...)
				if resp.StatusCode != status || errorShape(t, []byte(body)) != want || resp.Header.Get("Access-Control-Allow-Origin") == "" {
					t.Errorf("%s: %d, want %d in the form of %s: %s", path, resp.StatusCode, status, form, body)
				}
			}
		}
	}
	for _, r := range h.routes {
		path := fillPath(r.Pattern, "/admin/apps/{app}", "/admin/apps/nosuch")
		resp, body := h.send(t, r.Method, path, h.credential(r), nil, "X-Large", large)
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge || errorShape(t, []byte(body)) != formOf(t, r) {
			t.Errorf("%s %s with large headers: %d %s", r.Method, path, resp.StatusCode, body)
		}
	}
}
