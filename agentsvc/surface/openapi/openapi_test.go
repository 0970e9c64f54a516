package openapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/admin"
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
	"stoa/billing"
	"stoa/tenancy/audit"
)

// studioText is an operator's file that accepts every JSON object.
type studioText struct{}

func (studioText) ReadConfig() ([]byte, string, error) { return []byte("agents: {}\n"), "tag", nil }

func (studioText) SaveConfig(_ context.Context, _ audit.Actor, text []byte, ifMatch []string) (string, string, error) {
	if !json.Valid(text) {
		return "", "", agentsvc.NewInvalidError("config", "is no JSON")
	}
	if ifMatch != nil && !slices.Contains(ifMatch, "tag") {
		return "", "", agentsvc.NewError(agentsvc.CodePrecondition, "the file has changed")
	}
	return "tag", "saved", nil
}

func (f studioText) CheckConfig(text []byte, ifMatch []string) error {
	_, _, err := f.SaveConfig(context.Background(), audit.Actor{}, text, ifMatch)
	return err
}

// newRoutes returns the routes of all surfaces, with the services of h; nil = routes that are not called.
func newRoutes(h *surfacetest.Fixture) []surface.Route {
	if h == nil {
		h = &surfacetest.Fixture{Billing: &billing.Service{}}
	}
	return openapi.WithDocument("v1.2.3", slices.Concat(
		ext.Routes(ext.Options{Studio: ext.Studio{File: studioText{}}, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		})}),
		v1.Routes(v1.Options{}), a2a.Routes(a2a.Options{}), openai.Routes(openai.Options{}), mcp.Routes(mcp.Options{}),
		admin.Routes(admin.Options{Apps: h.Apps, Issuer: h.Issuer, Keys: h.Keys, DB: h.DB, DeadLetters: h.DeadLetters}),
		billingapi.Routes(billingapi.Options{Apps: h.Apps, Keys: h.Keys, Billing: h.Billing}), tenantapi.Routes(h.Apps, h.Billing.Usage), documents.Routes(), webhook.Routes(webhook.Options{DB: h.DB})))
}

// buildDocument returns the document of all routes, encoded and decoded.
func buildDocument(t *testing.T) (raw []byte, doc map[string]any) {
	t.Helper()
	raw, err := openapi.BuildDocument("v1.2.3", newRoutes(nil))
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
	for _, r := range newRoutes(nil) {
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
	for name, header := range doc["components"].(map[string]any)["headers"].(map[string]any) {
		if header.(map[string]any)["description"] == "" {
			t.Errorf("the header %s has no description", name)
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
var strictSchemas = regexp.MustCompile("^(Price|Plan|Overage|Retention|Budget|Usage|Credit|Ledger|Invoice|Export|ErrorDetails|ConfigProblem|App$|AppSummary|AppCheck|Token|ReplayedToken|Key|NewKey|ConfigRevision|Task.*Event|Tool|V1Event|V1Task|V1SendAnswer|AgentCall|Card|Completion$|CompletionChunk|OpenAIResponse|ResponseEvent|A2ACard|A2ATask(List)?(REST)?(03)?$|A2AMessage|A2AArtifact|A2AEvent|A2APushStored03|A2AAddress03|MCP)")

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

// TestAnswers compares the answers of all dialogues with the document: their status, media type, headers and body. It
// validates the bodies of requests that succeeded, too.
func TestAnswers(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	for name, schema := range doc["components"].(map[string]any)["schemas"].(map[string]any) {
		if strictSchemas.MatchString(name) {
			forbidAdditional(schema)
		}
	}
	d := newDocument(t, doc)
	files, err := filepath.Glob("../*/testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
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
				if err := d.checkDialogue(requestText, string(f.Data)); err != nil {
					t.Errorf("%s, %s: %v", file, f.Name, err)
				}
			}
		}
	}
	for _, name := range []string{
		"PriceOrder", "Price", "PriceList", "PlanOrder", "Plan", "PlanList", "BudgetOrder", "BudgetChange", "Budget", "BudgetList", "Usage", "CreditOrder", "Credit", "CreditList",
		"Ledger", "Invoice", "InvoiceList", "ExportList", "V1Send", "AppDraft", "AppSettings", "AppPatch", "RoleOrder", "TokenOrder",
		"ApiError", "Card", "CardList", "AgentCall", "AgentCallAnswer", "A2ACall", "A2ACallAnswer", "MCPCall", "MCPCallAnswer", "Task", "TaskList", "V1SendAnswer", "V1Task", "V1TaskList", "V1Card", "Completion", "ModelList", "App", "AppCheck", "AppList", "TokenAnswer", "TaskEvent", "V1Event", "SavedConfig", "ConfigRevisionList", "RoleList", "Queue", "TriggerList", "WebhookAnswer",
	} {
		if d.checked[name] == 0 {
			t.Errorf("no dialogue has an answer of the shape %s", name)
		}
	}
	for _, calls := range d.calls {
		for _, c := range calls {
			if c.Result != "" && !slices.ContainsFunc(c.Methods, func(method string) bool { return d.checked[method] > 0 }) {
				t.Errorf("no dialogue has a result of %q", c.Methods)
			}
		}
	}
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

// TestWebhookPathsAvoidRoutes checks that no webhook can have the path of a route: the configuration knows all of them.
func TestWebhookPathsAvoidRoutes(t *testing.T) {
	t.Parallel()
	patterns := map[string]bool{}
	for _, r := range newRoutes(nil) {
		for _, p := range append([]string{r.Pattern}, r.Aliases...) {
			if first := strings.Split(p, "/")[1]; first != "admin" && first != "metrics" && first != "webhooks" {
				patterns[p] = true
			}
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(patterns)), slices.Sorted(slices.Values(config.RoutePatterns))); diff != "" {
		t.Errorf("agentsvc/config/webhookpath.go (-routes +config):\n%s", diff)
	}
}

// untypedBodies are the operations whose JSON has no schema of its own: configurations and schemas have one elsewhere, the
// bodies of webhooks are the app's.
var untypedBodies = []string{
	"/api/config", "/api/openapi.json", "/api/schema", "/admin/schema", "/config", "/webhooks/{webhook}",
}

// TestBodiesHaveSchemas checks that a client can be generated for every operation from the document alone: its JSON, in
// requests and in answers, is not just any object.
func TestBodiesHaveSchemas(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	for path, item := range doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			op, ok := op.(map[string]any)
			if !ok || slices.Contains(untypedBodies, path) {
				continue
			}
			bodies := map[string]any{"the request": op["requestBody"]}
			for status, answer := range op["responses"].(map[string]any) {
				bodies[status] = answer
			}
			for which, body := range bodies {
				body, _ := body.(map[string]any)
				content, _ := body["content"].(map[string]any)
				for mediaType, c := range content {
					if schema := c.(map[string]any)["schema"].(map[string]any); len(schema) == 0 || schema["$ref"] == "#/components/schemas/JsonObject" {
						t.Errorf("%s %s: %s of %s is just any object", strings.ToUpper(method), path, mediaType, which)
					}
				}
			}
		}
	}
}
