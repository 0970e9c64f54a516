package openapi_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/admin"
	"stoa/agentsvc/surface/billingapi"
	"stoa/agentsvc/surface/ext"
	"stoa/agentsvc/surface/mcp"
	"stoa/agentsvc/surface/openai"
	"stoa/agentsvc/surface/openapi"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/agentsvc/surface/tenantapi"
	v1 "stoa/agentsvc/surface/v1"
	"stoa/agentsvc/surface/webhook"
	"stoa/billing"
)

// NewRoutes returns the routes of all surfaces.
func newRoutes() []surface.Route {
	return openapi.WithDocument("v1.2.3", slices.Concat(ext.Routes(ext.Options{Metrics: http.NotFoundHandler()}), v1.Routes(v1.Options{}), a2a.Routes(a2a.Options{}), openai.Routes(openai.Options{}),
		mcp.Routes(mcp.Options{}), admin.Routes(admin.Options{}), billingapi.Routes(billingapi.Options{Billing: &billing.Service{}}), tenantapi.Routes(nil), webhook.Routes(webhook.Options{})))
}

// buildDocument returns the document of all routes, encoded and decoded.
func buildDocument(t *testing.T) (raw []byte, doc map[string]any) {
	t.Helper()
	raw, err := openapi.BuildDocument("v1.2.3", newRoutes())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	return raw, doc
}

// TestValid validates the document against the schema of OpenAPI 3.1, and its schemas against JSON Schema 2020-12.
func TestValid(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("testdata/oas-3.1.json")
	if err != nil {
		t.Fatal(err)
	}
	meta, err := jsonschema.UnmarshalJSON(bytes.NewReader(src))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("oas.json", meta); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("oas.json")
	if err != nil {
		t.Fatal(err)
	}
	_, doc := buildDocument(t)
	if err := schema.Validate(doc); err != nil {
		t.Error(err)
	}
	compileSchemas(t, doc)
	delete(doc, "info")
	if schema.Validate(doc) == nil {
		t.Error("a document without info is valid")
	}
}

// TestDocumentComplete checks that every route has an operation and every operation a route, that IDs are unique,
// and that every parameter has a description.
func TestDocumentComplete(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	answered, described := map[string]bool{}, readDescribedOperations(t)
	for _, r := range newRoutes() {
		key := r.Method + " " + r.Pattern
		if answered[key] = true; !slices.Contains(described, key) {
			t.Errorf("%s is answered, and is not described in descriptions.json", key)
		}
	}
	for _, key := range described {
		if !answered[key] {
			t.Errorf("%s is described, and no route answers it", key)
		}
	}
	ids := map[any]bool{}
	for path, at := range doc["paths"].(map[string]any) {
		for method, op := range at.(map[string]any) {
			op := op.(map[string]any)
			if !answered[strings.ToUpper(method)+" "+path] || ids[op["operationId"]] || op["summary"] == "" {
				t.Errorf("%s %s: %v", method, path, op)
			}
			ids[op["operationId"]] = true
			params, _ := op["parameters"].([]any)
			for _, p := range params {
				if p := p.(map[string]any); p["description"] == "" {
					t.Errorf("%s %s: the parameter %s has no description", method, path, p["name"])
				}
			}
		}
	}
	if len(ids) != len(answered) {
		t.Errorf("%d operations of %d routes", len(ids), len(answered))
	}
}

// TestServed requests the document without a credential. A route without a description must be in it, too.
func TestServed(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, func(*surfacetest.Fixture) []surface.Route {
		return openapi.WithDocument("v9", []surface.Route{{Method: http.MethodGet, Pattern: "/stray"}})
	})
	resp, body := h.Do(t, http.MethodGet, openapi.Path, "", nil)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" || !strings.Contains(body, `"version":"v9"`) || !strings.Contains(body, `"/stray"`) {
		t.Errorf("%d %.200s", resp.StatusCode, body)
	}
}

// compileSchemas compiles the schemas of the document.
func compileSchemas(t *testing.T, doc map[string]any) map[string]*jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	if err := c.AddResource("https://stoa.test/openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	shapes := map[string]*jsonschema.Schema{}
	for name := range doc["components"].(map[string]any)["schemas"].(map[string]any) {
		s, err := c.Compile("https://stoa.test/openapi.json#/components/schemas/" + name)
		if err != nil {
			t.Fatal(err)
		}
		shapes[name] = s
	}
	return shapes
}

// strictSchemas matches the schemas that list every member; other objects may have more.
var strictSchemas = regexp.MustCompile("^(Price|Plan|Overage|Retention|Budget|Usage|Credit|Ledger|Invoice|Export)")

// forbidAdditional sets additionalProperties to false in every object schema with properties.
func forbidAdditional(v any) {
	switch v := v.(type) {
	case map[string]any:
		if v["properties"] != nil {
			v["additionalProperties"] = false
		}
		for _, one := range v {
			forbidAdditional(one)
		}
	case []any:
		for _, one := range v {
			forbidAdditional(one)
		}
	}
}

// TestAnswers validates the answers of all dialogues, and the bodies of requests that succeeded, against the
// schemas of the document.
func TestAnswers(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	for name, schema := range doc["components"].(map[string]any)["schemas"].(map[string]any) {
		if strictSchemas.MatchString(name) {
			forbidAdditional(schema)
		}
	}
	shapes, ops := compileSchemas(t, doc), listOperations(doc)
	checkedCount := map[string]int{}
	for _, protocol := range []string{"ext", "v1", "admin", "billingapi", "tenantapi", "openai", "mcp", "a2a", "webhook"} {
		files, err := filepath.Glob("../" + protocol + "/testdata/*.txtar")
		if err != nil || len(files) == 0 {
			t.Fatal(protocol, err)
		}
		for _, file := range files {
			script, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			requestText := ""
			for _, f := range script.Files {
				if strings.HasSuffix(f.Name, ".request") {
					requestText = string(f.Data)
				} else if strings.HasSuffix(f.Name, ".answer") {
					for name, text := range map[string]string{responseSchema(ops, requestText, string(f.Data)): string(f.Data), requestSchema(ops, requestText, string(f.Data)): requestText} {
						if name == "" {
							continue
						}
						checkedCount[name]++
						if err := shapes[name].Validate(parseBody(t, text)); err != nil {
							t.Errorf("%s, the text around %s is no %s: %v", file, f.Name, name, err)
						}
					}
				}
			}
		}
	}
	for _, name := range []string{
		"PriceOrder", "Price", "PriceList", "PlanOrder", "Plan", "PlanList", "BudgetOrder", "BudgetChange", "Budget", "BudgetList", "Usage", "CreditOrder", "Credit", "CreditList",
		"Ledger", "Invoice", "InvoiceList", "ExportList", "V1Send", "AppDraft", "AppSettings", "AppPatch", "RoleOrder", "TokenOrder",
		"Error", "Card", "CardList", "RPC", "Task", "TaskList", "V1SendAnswer", "V1Task", "V1TaskList", "V1Card", "Completion", "ModelList", "App", "AppList", "SavedConfig", "ConfigRevisionList", "Token", "RoleList", "Queue", "TriggerList", "WebhookAnswer",
	} {
		if checkedCount[name] == 0 {
			t.Errorf("no dialogue has an answer of the shape %s", name)
		}
	}
}

var (
	requestLine    = regexp.MustCompile(`^(GET|POST|PUT|PATCH|DELETE) (\S+)`)
	placeholder    = regexp.MustCompile(`\{\{[^}]*\}\}`)
	appPrefix      = regexp.MustCompile(`^/apps/[^/]+(/.+)`)
	pathVariable   = regexp.MustCompile(`\{\w+\}`)
	quotedVariable = regexp.MustCompile(`\\\{\w+\\\}`)
	inexactNumber  = regexp.MustCompile(`: (SECONDS|UNIX)\b`)
)

// describedOperation is an operation with a pattern for its paths.
type describedOperation struct {
	method string
	path   *regexp.Regexp
	op     map[string]any
}

// listOperations returns the operations of the document. Of two that match the same path, the one with more fixed
// text comes first.
func listOperations(doc map[string]any) (all []describedOperation) {
	fixed := func(pattern string) int { return len(pathVariable.ReplaceAllString(pattern, "")) }
	paths := doc["paths"].(map[string]any)
	for _, pattern := range slices.SortedFunc(maps.Keys(paths), func(x, y string) int { return fixed(y) - fixed(x) }) {
		path := regexp.MustCompile("^" + quotedVariable.ReplaceAllString(regexp.QuoteMeta(pattern), `[^/:]+`) + "$")
		for method, op := range paths[pattern].(map[string]any) {
			all = append(all, describedOperation{strings.ToUpper(method), path, op.(map[string]any)})
		}
	}
	return all
}

// findOperation returns the operation of a request, nil if the document has none.
func findOperation(all []describedOperation, requestText string) map[string]any {
	m := requestLine.FindStringSubmatch(requestText)
	if m == nil {
		return nil
	}
	path, _, _ := strings.Cut(placeholder.ReplaceAllString(m[2], "x"), "?")
	path = appPrefix.ReplaceAllString(path, "$1")
	for _, a := range all {
		if a.method == m[1] && a.path.MatchString(path) {
			return a.op
		}
	}
	return nil
}

// requestSchema returns the name of the schema of a request's body, "" if there is none or the request failed.
// JSON-RPC calls are excluded: their errors have status 200 as well.
func requestSchema(all []describedOperation, requestText, answer string) string {
	head, body, _ := strings.Cut(requestText, "\n\n")
	if answer[0] != '2' || strings.TrimSpace(body) == "" || strings.Contains(head, "Content-Type: application/x-www-form-urlencoded") || strings.Contains(head, "Content-Type: application/yaml") {
		return ""
	}
	of, _ := findOperation(all, requestText)["requestBody"].(map[string]any)
	if name := schemaName(of); name != "RPCCall" {
		return name
	}
	return ""
}

// responseSchema returns the name of the schema of an answer, "" if the document has none.
func responseSchema(all []describedOperation, requestText, answer string) string {
	if !strings.Contains(answer, "Content-Type: application/json") {
		return ""
	}
	responses, _ := findOperation(all, requestText)["responses"].(map[string]any)
	of, ok := responses[answer[:3]].(map[string]any)
	if status, _ := strconv.Atoi(answer[:3]); !ok && status >= http.StatusBadRequest {
		of, ok = responses["default"].(map[string]any)
	}
	if !ok {
		return ""
	}
	return schemaName(of)
}

// schemaName returns the name of the schema in a Request Body or Response Object.
func schemaName(of map[string]any) string {
	content, _ := of["content"].(map[string]any)
	body, _ := content["application/json"].(map[string]any)
	schema, _ := body["schema"].(map[string]any)
	ref, _ := schema["$ref"].(string)
	return strings.TrimPrefix(ref, "#/components/schemas/")
}

// parseBody decodes the body of a recorded answer.
func parseBody(t *testing.T, answer string) any {
	t.Helper()
	_, body, _ := strings.Cut(answer, "\n\n")
	body = inexactNumber.ReplaceAllString(body, ": 1")
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return v
}

// readDescribedOperations returns the keys of all described operations, as "METHOD pattern".
func readDescribedOperations(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("descriptions.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Operations map[string]json.RawMessage `json:"operations"`
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	return slices.Collect(maps.Keys(d.Operations))
}
