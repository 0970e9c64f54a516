package openapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/admin"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/billingapi"
	"stoa/agentsvc/surface/documents"
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
	const config = "llms: {m: {provider: scripted, script: [{then: [{fail: {status: 400}}]}]}}\nagents: {a: {llm: m}}\nstorage: {checkpoint: {enabled: true, strategy: event}}\ndocument_stores: {manual: {source: {type: upload}}}\n"
	observe := func(o surface.Observation) { h.observed <- o }
	h.Fixture = surfacetest.New(t, surfacetest.Options{Default: config, Surface: surface.Options{Observe: observe}}, func(f *surfacetest.Fixture) []surface.Route {
		h.routes = openapi.WithDocument("v1.2.3", slices.Concat(ext.Routes(ext.Options{Metrics: http.NotFoundHandler()}), v1.Routes(v1.Options{}), a2a.Routes(a2a.Options{}),
			openai.Routes(openai.Options{}), mcp.Routes(mcp.Options{}), tenantapi.Routes(f.Apps, f.Billing.Usage), documents.Routes(), webhook.Routes(webhook.Options{DB: f.DB}),
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
	select {
	case o := <-h.observed:
		h.served = o.Route
	case <-time.After(time.Minute):
		t.Fatalf("%s %s: %d was not answered by the handler: %s", method, path, resp.StatusCode, text)
	}
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
	values = append(values, "/apps/{app}", "/apps/acme", "{agent}", "a", "{store}", "manual")
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
				// With {tenant} or a slash at the end the path has the structure of another pattern of the same route.
				if path[i] != '/' || i == 0 || i == len(path)-1 || strings.Contains(pattern, "{tenant}") {
					continue
				}
				for _, encoded := range []string{"%2F", "%2f"} {
					wrong := path[:i] + encoded + path[i+1:]
					resp, body := h.send(t, r.Method, wrong, h.credential(r), nil)
					if h.served == r.Pattern || resp.StatusCode >= 500 || !strings.Contains(body, `"error"`) {
						t.Errorf("%s %s is served as %s: %d %s", r.Method, wrong, h.served, resp.StatusCode, body)
					}
				}
			}
			// Each parameter in turn has a slash.
			for _, m := range parameters.FindAllString(pattern, -1) {
				path := fillPath(pattern, m, "x%2Fy")
				resp, body := h.send(t, r.Method, path, h.credential(r), nil)
				isRefused := resp.StatusCode < 500 && strings.Contains(body, `"error"`) && !strings.Contains(body, "%2F")
				if h.served != r.Pattern && h.served != "unknown" || !isRefused {
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

// creations has for each route that creates something a body that it accepts. A token has no address: it is stored nowhere.
var creations = []struct{ pattern, body string }{
	{"/admin/apps", `{"name": "globex", "config": "llms: {m: {provider: scripted}}\nagents: {a: {llm: m}}"}`},
	{"/admin/apps/{app}/keys", `{"name": "k"}`},
	{"/admin/apps/{app}/roles", `{"name": "desk", "scopes": ["tasks:read"]}`},
	{"/admin/prices", `{"version": "v1", "currency": "EUR", "effective_from": "2026-11-01T00:00:00Z", "items": [{"kind": "cost", "meter": "input_tokens", "per": 1000, "amount": 1}]}`},
	{"/admin/plans", `{"name": "pro", "currency": "EUR"}`},
	{"/admin/budgets", `{"name": "all", "unit": "calls", "amount": 5, "window": "day"}`},
	{"/admin/apps/{app}/budgets", `{"name": "cap", "unit": "calls", "amount": 5, "window": "day"}`},
	{"/admin/apps/{app}/credits", `{"amount": 5, "currency": "EUR"}`},
	{"/tasks/{task}/checkpoints/{checkpoint}:restore", ""},
}

// sendMessage sends a message to the agent and returns the id of its task, which has failed.
func (h *everyRoute) sendMessage(t *testing.T) string {
	t.Helper()
	resp, body := h.send(t, http.MethodPost, "/v1/agents/a/message:send", h.token, `{"message": {"messageId": "m", "role": "user", "parts": [{"text": "hello"}]}, "configuration": {"blocking": true}}`)
	var sent struct{ Task struct{ ID string } }
	if err := json.Unmarshal([]byte(body), &sent); err != nil || sent.Task.ID == "" {
		t.Fatal(resp.StatusCode, body)
	}
	return sent.Task.ID
}

// readCheckpoint returns the id of a checkpoint of a task.
func (h *everyRoute) readCheckpoint(t *testing.T, task string) string {
	t.Helper()
	_, body := h.send(t, http.MethodGet, "/tasks/"+task+"/checkpoints", h.token, nil)
	var list struct{ Checkpoints []struct{ ID int64 } }
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Checkpoints) == 0 {
		t.Fatal(err, body)
	}
	return strconv.FormatInt(list.Checkpoints[0].ID, 10)
}

// TestLocations checks that everything that is created has an address in Location, at which a GET answers with it, and
// that a repetition under the same Idempotency-Key has the same.
func TestLocations(t *testing.T) {
	t.Parallel()
	h := newEveryRoute(t)
	task := h.sendMessage(t)
	checkpoint := h.readCheckpoint(t, task)
	_, doc := buildDocument(t)
	for path, at := range doc["paths"].(map[string]any) {
		post, _ := at.(map[string]any)["post"].(map[string]any)
		responses, _ := post["responses"].(map[string]any)
		isTested := slices.ContainsFunc(creations, func(c struct{ pattern, body string }) bool { return c.pattern == path })
		if responses["201"] != nil && !isTested && path != "/admin/apps/{app}/tokens" && path != "/admin/apps:import" { // a token is stored nowhere; cmd/stoa imports a file
			t.Errorf("POST %s answers 201 and is not tested", path)
		}
	}
	for _, c := range creations {
		credential := h.token
		if strings.HasPrefix(c.pattern, "/admin") {
			credential = surfacetest.Secret
		}
		path := fillPath(c.pattern, "{task}", task, "{checkpoint}", checkpoint)
		resp, body := h.send(t, http.MethodPost, path, credential, c.body, "Idempotency-Key", c.pattern)
		location := resp.Header.Get("Location")
		if resp.StatusCode != http.StatusCreated || !strings.HasPrefix(location, "/") {
			t.Errorf("POST %s: %d, Location %q: %s", path, resp.StatusCode, location, body)
			continue
		}
		if again, body := h.send(t, http.MethodPost, path, credential, c.body, "Idempotency-Key", c.pattern); again.StatusCode != http.StatusCreated || again.Header.Get("Location") != location {
			t.Errorf("POST %s again: %d, Location %q: %s", path, again.StatusCode, again.Header.Get("Location"), body)
		}
		var made, read map[string]any
		got, text := h.send(t, http.MethodGet, location, credential, nil)
		if json.Unmarshal([]byte(body), &made) != nil || json.Unmarshal([]byte(text), &read) != nil || got.StatusCode != http.StatusOK {
			t.Errorf("GET %s: %d %s", location, got.StatusCode, text)
		}
		for _, id := range []string{"id", "name", "version", "task_id"} {
			if made[id] != read[id] {
				t.Errorf("GET %s shows %v, and %v was created", location, read[id], made[id])
			}
		}
	}
}

// lists has the member with the list of each route that answers with one; a webhook, a card or a policy is no list.
var lists = map[string]string{
	"/v1/document-stores": "documentStores", "/v1/document-stores/{store}/documents": "documents",
	"/agents": "agents", "/v1/agents": "agents", "/v1/agents/{agent}/tasks": "tasks", "/tasks": "tasks", "/memories": "memories", "/credentials": "credentials",
	"/config/revisions": "revisions", "/secrets": "secrets", "/triggers": "triggers", "/triggers/{agent}/starts": "starts", "/openai/v1/models": "data", "/a2a/{agent}/tasks": "tasks", "/a2a/{agent}/v0.3/v1/tasks": "tasks",
	"/tasks/{task}/checkpoints": "checkpoints", "/tasks/{task}/log": "entries", "/tasks/{task}/notifications": "notifications",
	"/admin/apps": "apps", "/admin/apps/{app}/revisions": "revisions", "/admin/apps/{app}/secrets": "secrets", "/admin/apps/{app}/keys": "keys", "/admin/apps/{app}/roles": "roles",
	"/admin/apps/{app}/tools": "tools", "/admin/queue": "apps", "/admin/traffic": "apps", "/admin/processes": "processes", "/admin/queue/dead": "runs", "/admin/audit": "entries", "/admin/prices": "prices", "/admin/plans": "plans",
	"/admin/budgets": "budgets", "/admin/apps/{app}/budgets": "budgets", "/admin/usage": "rows", "/admin/apps/{app}/usage": "rows", "/billing/usage": "rows", "/billing/budgets": "budgets",
	"/admin/apps/{app}/credits": "credits", "/admin/apps/{app}/ledger": "entries", "/admin/invoices": "invoices", "/admin/apps/{app}/invoices": "invoices", "/admin/exports": "exports",
	"/billing/invoices": "invoices",
}

// TestEmptyLists checks that each list of an app in which nothing has happened is there and is a list, and that no list
// of an answer is null.
func TestEmptyLists(t *testing.T) {
	t.Parallel()
	h := newEveryRoute(t)
	check := func(pattern, path string, r surface.Route) {
		resp, body := h.send(t, http.MethodGet, path, h.credential(r), nil)
		var got map[string]any
		if resp.StatusCode != http.StatusOK || json.Unmarshal([]byte(body), &got) != nil {
			return // nothing that could be a list
		}
		member := lists[pattern]
		if _, isList := got[member].([]any); member != "" && !isList {
			t.Errorf("GET %s: %s is no list in %s", path, member, body)
		}
		for name, value := range got {
			if _, isList := value.([]any); isList && member == "" && !singleResources[pattern] {
				t.Errorf("GET %s has the list %s and is not tested", path, name)
			}
		}
	}
	for _, r := range h.routes {
		if r.Method == http.MethodGet && !strings.Contains(r.Pattern, "{task}") {
			check(r.Pattern, fillPath(r.Pattern), r)
		}
	}
	task := h.sendMessage(t)
	for _, r := range h.routes {
		if r.Method == http.MethodGet && strings.HasPrefix(r.Pattern, "/tasks/{task}/") {
			check(r.Pattern, fillPath(r.Pattern, "{task}", task), r)
		}
	}
}

// singleResources are the routes that answer with one resource which contains lists.
var singleResources = map[string]bool{
	"/agents/{agent}": true, "/agents/{agent}/.well-known/agent-card.json": true, "/.well-known/agent-card.json": true, "/.well-known/jwks.json": true, "/.well-known/card-keys.json": true,
	"/a2a/{agent}/.well-known/agent-card.json": true, "/a2a/{agent}/extendedAgentCard": true, "/a2a/{agent}/v0.3/v1/card": true, "/admin/apps/{app}": true, "/api/openapi.json": true, "/caller": true,
	"/api/schema": true, "/admin/schema": true, "/v1/agents/{agent}/.well-known/agent-card.json": true,
}

// TestUnknownQuery checks that every route refuses a name in the query that it does not know, by that name and with those
// that it knows, except the protocols of others: their clients may send some that this server does not know.
func TestUnknownQuery(t *testing.T) {
	t.Parallel()
	h := newEveryRoute(t)
	foreign := regexp.MustCompile(`^/(openai|mcp|webhooks|metrics)\b|^/a2a/\{agent\}/(message:|tasks|extendedAgentCard)`)
	for _, r := range h.routes {
		if r.AnyQuery || r.Signed {
			if !foreign.MatchString(r.Pattern) {
				t.Errorf("%s %s takes any query", r.Method, r.Pattern)
			}
			continue
		}
		path := fillPath(r.Pattern, "/admin/apps/{app}", "/admin/apps/nosuch") + "?nosuch=1"
		resp, body := h.send(t, r.Method, path, h.credential(r), nil)
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "nosuch") || errorShape(t, []byte(body)) != formOf(t, r) {
			t.Errorf("%s %s: %d %s", r.Method, path, resp.StatusCode, body)
		}
		for _, name := range r.Query {
			if !strings.Contains(body, name) {
				t.Errorf("%s %s does not list %s: %s", r.Method, path, name, body)
			}
		}
	}
}

// TestPages checks that all lists with pages have them under the same names.
func TestPages(t *testing.T) {
	t.Parallel()
	h := newEveryRoute(t)
	task := h.sendMessage(t)
	for _, r := range h.routes {
		if !slices.ContainsFunc(r.Query, func(name string) bool { return regexp.MustCompile("page|cursor|limit|offset|before").MatchString(name) }) || r.EncodeError != nil {
			continue
		}
		if !slices.Contains(r.Query, "page_size") || !slices.Contains(r.Query, "page_token") {
			t.Errorf("%s takes %s", r.Pattern, r.Query)
		}
		next := `"next_page_token":""`
		if strings.HasPrefix(r.Pattern, "/v1/") {
			next = `"nextPageToken":""`
		}
		path := fillPath(r.Pattern, "{task}", task)
		if _, body := h.send(t, r.Method, path+"?page_size=1", h.credential(r), nil); !strings.Contains(body, `"next_page_token":"`) && !strings.Contains(body, next) {
			t.Errorf("%s has no token of the next page: %s", path, body)
		}
		for _, wrong := range []string{"page_size=0", "page_size=x", "page_size=100000", "page_token=nosuch"} {
			if resp, body := h.send(t, r.Method, path+"?"+wrong, h.credential(r), nil); resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s?%s: %d %s", path, wrong, resp.StatusCode, body)
			}
		}
	}
}
