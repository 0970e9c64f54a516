package openapi_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/openapi"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
)

// appOperations are carried out for each app after them.
var appOperations = []string{"POST /admin/apps/{app}/budgets", "PATCH /admin/apps/{app}", "POST /admin/apps/{app}/invoices/{invoice}:finalize"}

// probedServer is a server of all routes, its document, and the ids that make requests to every operation reach its
// handler.
type probedServer struct {
	*surfacetest.Fixture
	*document
	routes map[string]surface.Route // by "METHOD pattern"
	ids    map[string]string        // by path parameter
	token  string                   // of the app of tenant routes
	names  []string                 // of all query parameters of all operations
}

// probedOperations are the operations that create what the others read, in this order.
var probedOperations = []string{
	"POST /admin/apps", "POST /admin/prices", "POST /admin/plans", "POST /admin/budgets", "POST /admin/apps/{app}/credits",
	"POST /admin/apps/{app}/keys", "POST /admin/apps/{app}/roles", "PUT /admin/apps/{app}/secrets/{name}", "PUT /admin/seller",
	"PUT /admin/apps/{app}/buyer", "POST /v1/agents/{agent}/message:send", "POST /openai/v1/responses",
	"PUT /v1/document-stores/{store}/documents/{document}",
}

// The bodies of valid requests, by operation or else by the schema of the body. A schema without a row takes any object.
var probeBodies = map[string]string{
	"AppDraft":       `{"name": "victim", "config": "llms: {m: {provider: scripted}}\nagents: {assistant: {llm: m}}\n"}`,
	"AppSettings":    `{"config": "llms: {m: {provider: scripted}}\nagents: {assistant: {llm: m}}\n"}`,
	"AppPatch":       `{"plan": "team", "display_name": "Victim"}`,
	"PriceOrder":     `{"version": "one", "currency": "USD", "effective_from": "2099-01-01", "items": [{"kind": "charge", "meter": "runs", "per": 1, "amount": 1}]}`,
	"PlanOrder":      `{"name": "team", "currency": "USD", "base_fee": 1000000000}`,
	"BudgetOrder":    `{"name": "cap", "unit": "calls", "amount": 100000, "window": "day"}`,
	"BudgetChange":   `{"amount": 200000}`,
	"CreditOrder":    `{"amount": 1, "currency": "USD"}`,
	"KeyOrder":       `{"name": "probe"}`,
	"RoleOrder":      `{"name": "desk", "scopes": ["tasks:read"]}`,
	"RoleTerms":      `{"scopes": ["tasks:read"]}`,
	"SecretValue":    `{"value": "v"}`,
	"TokenOrder":     `{"sub": "x"}`,
	"Subject":        `{"sub": "x"}`,
	"InvoiceForce":   `{"force": true, "allow_unpriced": true}`,
	"InvoiceParty":   `{"name": "Agents Ltd"}`,
	"V1Send":         `{"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}, "configuration": {"blocking": true}}`,
	"A2ASend":        `{"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}`,
	"A2ASendREST03":  `{"message": {"messageId": "m1", "role": "ROLE_USER", "content": [{"text": "hello"}]}}`,
	"DocumentSearch": `{"query": "handbook"}`,
	"A2ACall":        `{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}}`,

	"CompletionRequest":       `{"model": "assistant", "messages": [{"role": "user", "content": "hello"}]}`,
	"ResponseRequest":         `{"model": "assistant", "input": "hello"}`,
	"POST /agents/{agent}":    `{"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": {"message_id": "m1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}}}`,
	"POST /mcp/{agent}":       `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "assistant", "arguments": {"message": "hello"}}}`,
	"PUT /admin/plans/{plan}": `{"currency": "USD"}`,
	"POST /admin/apps/{app}/tools/{mcp_server}/{tool}:accept": `{"hash": "x"}`,
}

// resumingBodies are the bodies of the JSON-RPC calls that read the header Last-Event-ID.
var resumingBodies = map[string]string{
	"POST /agents/{agent}": `{"jsonrpc": "2.0", "id": 1, "method": "tasks/subscribe", "params": {"id": "TASK"}}`,
	"A2ACall":              `{"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": "TASK"}}`,
}

// newProbedServer creates what probedOperations and appOperations create and collects their ids.
func newProbedServer(t *testing.T) *probedServer {
	t.Helper()
	s := &probedServer{routes: map[string]surface.Route{}, ids: map[string]string{
		"app": "victim", "agent": "assistant", "webhook": "assistant", "role": "desk", "plan": "team", "budget": "cap", "version": "one", "name": "KEY", "revision": "1",
		"checkpoint": "1", "store": "manual", "document": "handbook.txt", "invoice": time.Now().UTC().Format("2006-01"),
	}}
	// The default app needs no credential: its webhook accepts deliveries without a signature.
	webhook := "\n    trigger: {type: webhook, methods: [GET, POST, PUT, PATCH, DELETE], webhook_input: {template: \"Read {{.text}}\"}}\n"
	s.Fixture = surfacetest.New(t, surfacetest.Options{Default: "llms: {m: {provider: scripted}}\nagents:\n  assistant:\n    llm: m" + webhook}, newRoutes)
	for _, r := range s.Server.Routes() {
		s.routes[r.Method+" "+r.Pattern] = r
	}
	_, body := s.Do(t, http.MethodGet, openapi.Path, "", nil)
	var doc map[string]any
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	s.document = newDocument(t, doc)
	s.CreateApp(t, "acme", surfacetest.Script+"\ndocument_stores: {manual: {source: {type: upload}}}\n")
	s.token = s.MintToken(t, "acme", authz.TokenSpec{Subject: "ana", Roles: []string{"admin"}})
	for _, key := range probedOperations {
		s.create(t, key)
	}
	for _, app := range []string{"acme", "victim"} {
		for _, key := range appOperations {
			s.ids["app"] = app
			s.create(t, key)
		}
	}
	for _, op := range s.operations {
		s.names = append(s.names, op.parametersIn("query")...)
	}
	s.names = slices.AppendSeq(s.names, maps.Keys(queryAliases))
	slices.Sort(s.names)
	s.names = slices.Compact(s.names)
	return s
}

// create sends a valid request to the operation of a key and keeps the id of what it creates.
func (s *probedServer) create(t *testing.T, key string) {
	t.Helper()
	status, body := s.send(t, s.operationOf(t, key), probe{})
	if status/100 != 2 {
		t.Fatalf("%s: %d %s", key, status, body)
	}
	var created struct {
		ID   string
		Task struct{ ID string }
	}
	_ = json.Unmarshal([]byte(body), &created)
	switch {
	case created.Task.ID != "":
		s.ids["task"] = created.Task.ID
	case strings.HasSuffix(key, "/responses"):
		s.ids["response"] = created.ID
	case strings.HasSuffix(key, "/credits"):
		s.ids["credit"] = created.ID
	case strings.HasSuffix(key, "/keys"):
		s.ids["key"] = created.ID
	}
}

// operationOf returns the operation of a key "METHOD pattern".
func (s *probedServer) operationOf(t *testing.T, key string) *operation {
	t.Helper()
	i := slices.IndexFunc(s.operations, func(op *operation) bool { return op.key() == key })
	if i < 0 {
		t.Fatalf("%s is not documented", key)
	}
	return s.operations[i]
}

func (o *operation) key() string { return o.method + " " + o.pattern }

// parametersIn returns the names of the parameters of a place, sorted.
func (o *operation) parametersIn(place string) (names []string) {
	for _, p := range o.Parameters {
		if p.In == place {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// probe is what a request has in addition to a valid one.
type probe struct {
	query         string
	header, value string
	body          *string // instead of the valid body
	without       string  // a required parameter that is left out
	headers       []string
	credential    string   // instead of the one that may do everything
	scopes        []string // the documented scopes, where they are not those of the operation
}

// send sends a request to an operation. The answer must be documented, and not that there is no such path or method.
func (s *probedServer) send(t *testing.T, op *operation, p probe) (status int, body string) {
	t.Helper()
	route := s.routes[op.key()]
	path := pathVariable.ReplaceAllStringFunc(op.pattern, func(v string) string { return cmp.Or(s.ids[v[1:len(v)-1]], "nosuch") })
	query, headers := requiredParameters(op, p.without)
	if query = append(query, strings.Fields(p.query)...); len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	credential := s.token
	switch {
	case route.Kind == surface.Admin:
		credential = surfacetest.Secret
	// The studio belongs to the default app, which needs no credential here.
	case route.Kind == surface.Open, route.Signed, op.pattern == "/api/config":
		credential = ""
	}
	// A change that is made without a body must not be made.
	if slices.Contains(op.parametersIn("header"), "If-Match") && p.body != nil && !op.RequestBody.Required {
		headers = append(headers, "If-Match", `"nosuch"`)
	}
	if p.credential != "" {
		credential = p.credential
	}
	headers = append(headers, p.headers...)
	sent := s.validBody(op)
	if p.header == "Last-Event-ID" {
		name := op.RequestBody.Content.schemaName("application/json")
		sent = strings.ReplaceAll(cmp.Or(resumingBodies[op.key()], resumingBodies[name], sent), "TASK", s.ids["task"])
	}
	if p.body != nil {
		sent = *p.body
	}
	if p.header != "" {
		headers = append(headers, p.header, p.value)
	}
	if sent != "" {
		headers = append(headers, "Content-Type", "application/json")
	}
	resp, body := s.Do(t, op.method, path, credential, sent, headers...)
	if resp.StatusCode == http.StatusMethodNotAllowed || strings.Contains(body, "there is nothing at this path") {
		t.Errorf("%s answers %d %s", op.key(), resp.StatusCode, body)
	}
	if err := s.checkAnswer(op, resp.StatusCode, resp.Header, body); err != nil {
		t.Errorf("%+v: %v", p, err)
	}
	return resp.StatusCode, body
}

// requiredValues are the values of required parameters in valid requests.
var requiredValues = map[string]string{"agent-name": "assistant", "action": "tasks:read", "X-Passphrase": "bm90IGEgcmVhbCBwYXNzcGhyYXNl", "subject": "x"}

// requiredParameters returns the pairs of the query, and the names and values of the headers, that the document requires,
// except the parameter without.
func requiredParameters(op *operation, without string) (query, headers []string) {
	for _, p := range op.Parameters {
		switch {
		case !p.Required || p.Name == without:
		case p.In == "query":
			query = append(query, p.Name+"="+requiredValues[p.Name])
		case p.In == "header":
			headers = append(headers, p.Name, requiredValues[p.Name])
		}
	}
	return query, headers
}

// validBody returns the body of a valid request, "" if the operation has none.
func (s *probedServer) validBody(op *operation) string {
	name := op.RequestBody.Content.schemaName("application/json")
	if _, isFile := op.RequestBody.Content["application/octet-stream"]; isFile {
		return "A handbook."
	}
	if name == "" || op.method == http.MethodGet {
		return ""
	}
	return cmp.Or(probeBodies[op.key()], probeBodies[name], "{}")
}

// isRefusal reports whether an answer is an error, also one of JSON-RPC or of a tool of MCP.
func isRefusal(status int, body string) bool {
	return status >= http.StatusBadRequest || strings.HasPrefix(body, `{"jsonrpc"`) && (strings.Contains(body, `"error":{"code"`) || strings.Contains(body, `"isError":true`))
}

// TestRoutesDocumented checks that every pattern of every route is documented: as a path, in the description of the path
// that it is another form of, or below /apps/{app} by the second server of the document.
func TestRoutesDocumented(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	paths := doc["paths"].(map[string]any)
	for _, r := range newRoutes(nil) {
		item, _ := paths[r.Pattern].(map[string]any)
		op, _ := item[strings.ToLower(r.Method)].(map[string]any)
		text, _ := op["description"].(string)
		for _, alias := range r.Aliases {
			if op == nil || !strings.Contains(text, alias) {
				t.Errorf("%s %s is answered, and not documented", r.Method, alias)
			}
		}
	}
}

// TestAcceptedAsDocumented sends to every operation, valid but for one detail, what shows whether the server reads a
// query parameter, a header or a body, and compares that with the document.
func TestAcceptedAsDocumented(t *testing.T) {
	t.Parallel()
	s := newProbedServer(t)
	// What deletes comes last.
	operations := slices.SortedStableFunc(slices.Values(s.operations), func(x, y *operation) int {
		deletes := func(op *operation) int { return strings.Count(op.method, http.MethodDelete) }
		return cmp.Or(deletes(x)-deletes(y), strings.Compare(x.key(), y.key()))
	})
	for _, op := range operations {
		route := s.routes[op.key()]
		if route.AnyQuery || route.Signed {
			s.checkIgnoredQuery(t, op)
		} else {
			s.checkStrictQuery(t, op)
		}
		s.checkHeaders(t, op, route)
		s.checkBody(t, op)
	}
}

// queryAliases are the names of query parameters that are accepted and not documented, because their operations have
// the parameter under the other name: a member of A2A in snake_case as in camelCase, and the version in the query as in
// the header.
var queryAliases = map[string]string{
	"context_id": "contextId", "page_size": "pageSize", "page_token": "pageToken", "history_length": "historyLength", "include_artifacts": "includeArtifacts",
	"status_timestamp_after": "statusTimestampAfter", "last_updated_after": "lastUpdatedAfter", "last_updated_time": "lastUpdatedTime", "A2A-Version": "A2A-Version",
}

// isAlias reports whether a name in the query is another one of a documented parameter.
func (o *operation) isAlias(name string) bool {
	main, ok := queryAliases[name]
	return ok && (name != main && slices.Contains(o.parametersIn("query"), main) || slices.Contains(o.parametersIn("header"), main))
}

var knownNames = regexp.MustCompile(`is not known here; there are ([\w, -]+)`)

// checkStrictQuery compares the parameters that the refusal of another one lists with the documented ones.
func (s *probedServer) checkStrictQuery(t *testing.T, op *operation) {
	t.Helper()
	status, body := s.send(t, op, probe{query: "nosuch=1"})
	var accepted []string
	if m := knownNames.FindStringSubmatch(body); m != nil {
		for _, name := range strings.Split(m[1], ", ") {
			if !op.isAlias(name) {
				accepted = append(accepted, name)
			}
		}
	} else if status != http.StatusBadRequest || !strings.Contains(body, "takes no query") {
		t.Errorf("%s?nosuch=1: %d %s", op.key(), status, body)
	}
	slices.Sort(accepted)
	if diff := gocmp.Diff(op.parametersIn("query"), accepted); diff != "" {
		t.Errorf("%s (-documented +accepted):\n%s", op.key(), diff)
	}
}

// checkIgnoredQuery sends a value that no parameter may have: with each documented name the request must fail, with all
// others it must not.
func (s *probedServer) checkIgnoredQuery(t *testing.T, op *operation) {
	t.Helper()
	wrong := strings.Repeat("x", 300)
	if op.method == http.MethodDelete {
		return // it would delete
	}
	documented, others := op.parametersIn("query"), []string{"nosuch=" + wrong}
	for _, name := range s.names {
		if !slices.Contains(documented, name) && !op.isAlias(name) {
			others = append(others, name+"="+wrong)
		}
	}
	for name := range queryAliases {
		if op.isAlias(name) {
			documented = append(documented, name)
		}
	}
	base, _ := s.send(t, op, probe{})
	if status, body := s.send(t, op, probe{query: strings.Join(others, "&")}); status != base {
		t.Errorf("%s reads a query parameter that is not documented: %d %s", op.key(), status, body)
	}
	for _, name := range documented {
		if status, body := s.send(t, op, probe{query: name + "=" + wrong}); !isRefusal(status, body) {
			t.Errorf("%s does not read the documented query parameter %s: %d %.300s", op.key(), name, status, body)
		}
	}
}

// checkHeaders sends headers with values that are refused, or that change the answer, where the header is read.
func (s *probedServer) checkHeaders(t *testing.T, op *operation, route surface.Route) {
	t.Helper()
	documented := op.parametersIn("header")
	for _, h := range []struct{ name, value string }{
		{"Idempotency-Key", strings.Repeat("k", 300)}, {"Last-Event-ID", "none"}, {"A2A-Version", "9.9"}, {"MCP-Protocol-Version", "1999-01-01"},
		{"If-Match", `"nosuch"`}, {"If-None-Match", "*"},
	} {
		// Signed deliveries read an id from any of several headers, of any value.
		if route.Signed || h.name == "If-Match" && op.method == http.MethodGet || h.name == "If-None-Match" && op.method != http.MethodGet {
			continue
		}
		// Where such a header is ignored, the request would take effect.
		if changes := route.Idempotent && h.name != "Idempotency-Key" && h.name != "If-Match"; changes && !slices.Contains(documented, h.name) {
			continue
		}
		status, body := s.send(t, op, probe{header: h.name, value: h.value})
		read := isRefusal(status, body) && (strings.Contains(body, h.name) || strings.Contains(body, h.value))
		switch h.name {
		case "If-Match":
			read = status == http.StatusPreconditionFailed
		case "If-None-Match":
			read = status == http.StatusNotModified
		}
		if want := slices.Contains(documented, h.name); read != want {
			t.Errorf("%s: the header %s is documented %t, read %t: %d %.300s", op.key(), h.name, want, read, status, body)
		}
	}
}

// checkBody sends a body that is no JSON and none at all: the first is refused where a body is documented, the second
// where the body is required.
func (s *probedServer) checkBody(t *testing.T, op *operation) {
	t.Helper()
	documented := len(op.RequestBody.Content) > 0
	if _, isJSON := op.RequestBody.Content["application/json"]; documented && !isJSON {
		return // a file, which may have any content
	}
	if op.method == http.MethodGet || op.method == http.MethodDelete && !documented {
		return
	}
	for _, sent := range []struct {
		body    string
		refused bool
	}{{"{", documented}, {"", documented && op.RequestBody.Required}} {
		status, body := s.send(t, op, probe{body: &sent.body})
		refused := status == http.StatusBadRequest || status == http.StatusOK && isRefusal(status, body)
		if refused = refused && !strings.Contains(body, "the task has ended"); refused != sent.refused {
			t.Errorf("%s: a body is documented %t and required %t; %q is answered %d %.300s", op.key(), documented, op.RequestBody.Required, sent.body, status, body)
		}
	}
}

// unansweredReads are the operations with GET that do not answer 200 here.
var unansweredReads = map[string]bool{
	"GET /v1/agents/{agent}/stream": true, // a WebSocket
	// The task has no receivers, and the app no push notifications.
	"GET /a2a/{agent}/tasks/{task}/pushNotificationConfigs": true, "GET /a2a/{agent}/tasks/{task}/pushNotificationConfigs/{config}": true,
	"GET /a2a/{agent}/v0.3/v1/tasks/{task}/pushNotificationConfigs": true, "GET /a2a/{agent}/v0.3/v1/tasks/{task}/pushNotificationConfigs/{config}": true,
	// The app is not suspended; cmd/stoa exports one.
	"GET /admin/apps/{app}/export": true,
	// The task has ended, which both versions refuse.
	"GET /a2a/{agent}/tasks/{task}:subscribe": true, "GET /a2a/{agent}/v0.3/v1/tasks/{task}:subscribe": true,
}

// TestReadsAsDocumented reads from every operation with GET: the answer must be the documented one, in every media type.
func TestReadsAsDocumented(t *testing.T) {
	t.Parallel()
	s := newProbedServer(t)
	for _, op := range s.operations {
		if op.method != http.MethodGet || unansweredReads[op.key()] {
			continue
		}
		for mediaType := range op.Responses["200"].Content {
			p := probe{header: "Accept", value: mediaType}
			if status, body := s.send(t, op, p); status != http.StatusOK {
				t.Errorf("%s: %d %.300s", op.key(), status, body)
			}
		}
	}
}

// TestLargeHeaders sends headers that are too large to every operation: each answers 431 in the form of its protocol.
func TestLargeHeaders(t *testing.T) {
	t.Parallel()
	s := newProbedServer(t)
	for _, op := range s.operations {
		if status, body := s.send(t, op, probe{header: "X-Large", value: strings.Repeat("a", 40<<10)}); status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: %d %.300s", op.key(), status, body)
		}
	}
}
