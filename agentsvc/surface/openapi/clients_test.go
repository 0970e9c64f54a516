package openapi_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"stoa/agentsvc"
	configdocument "stoa/agentsvc/config/document"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/ext"
	"stoa/ratelimit"
)

// forEachOperation calls f with every Operation Object of the document.
func forEachOperation(doc map[string]any, f func(key string, op map[string]any)) {
	for path, item := range doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			f(strings.ToUpper(method)+" "+path, op.(map[string]any))
		}
	}
}

// contentOf returns the schema of a media type of a Request Body or Response Object, nil if that has none.
func contentOf(body any, mediaType string) map[string]any {
	b, _ := body.(map[string]any)
	content, _ := b["content"].(map[string]any)
	one, _ := content[mediaType].(map[string]any)
	schema, _ := one["schema"].(map[string]any)
	return schema
}

// TestStreamsHaveSchemas checks that the type of every stream is that of its events, so that clients have types for them.
func TestStreamsHaveSchemas(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	streams := 0
	forEachOperation(doc, func(key string, op map[string]any) {
		for status, answer := range op["responses"].(map[string]any) {
			schema := contentOf(answer, "text/event-stream")
			if schema == nil {
				continue
			}
			if streams++; schema["$ref"] == nil {
				t.Errorf("%s: the stream of %s is %v, and not of the schema of its events", key, status, schema)
			}
		}
	})
	if streams == 0 {
		t.Error("no operation has a stream")
	}
}

// TestFilesAreBinary checks that files are described as bytes, and those of forms under the name that the server reads.
func TestFilesAreBinary(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	binary := map[string]any{"type": "string", "format": "binary"}
	form := map[string]any{"type": "object", "properties": map[string]any{"file": binary}, "required": []any{"file"}}
	found := map[string]int{}
	forEachOperation(doc, func(key string, op map[string]any) {
		bodies := slices.Collect(maps.Values(op["responses"].(map[string]any)))
		for _, body := range append(bodies, op["requestBody"]) {
			for mediaType, want := range map[string]map[string]any{"application/octet-stream": binary, "application/x-ndjson": binary, "multipart/form-data": form} {
				got := contentOf(body, mediaType)
				if got == nil {
					continue
				}
				if found[mediaType]++; !cmp.Equal(want, got) {
					t.Errorf("%s: %s is %v", key, mediaType, got)
				}
			}
		}
	})
	if len(found) != 3 {
		t.Errorf("the document has files of the media types %v", found)
	}
}

// globals are names of JavaScript, TypeScript and the web platform that a schema of the same name would shadow in a generated
// client.
var globals = []string{
	"Array", "Blob", "Boolean", "Date", "Document", "Error", "Event", "File", "FormData", "Function", "Headers", "Map", "Message", "Number", "Object", "Promise", "Proxy",
	"Record", "Request", "Response", "Set", "String", "Symbol", "URL",
}

// TestSchemasAvoidGlobals checks that no schema has the name of a global. Message is none of a browser, and Document is a type
// alone.
func TestSchemasAvoidGlobals(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for _, name := range globals {
		if _, ok := schemas[name]; ok && name != "Message" && name != "Document" {
			t.Errorf("the schema %s has the name of a global", name)
		}
	}
}

// TestServersOnce checks that the addresses are at the top of the document alone: generators make a type of every list of
// servers. Variables have no description, which the validator of orval refuses.
func TestServersOnce(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	var urls []any
	for _, s := range doc["servers"].([]any) {
		server := s.(map[string]any)
		urls = append(urls, server["url"])
		variables, _ := server["variables"].(map[string]any)
		for name, v := range variables {
			if v.(map[string]any)["description"] != nil || v.(map[string]any)["default"] == nil {
				t.Errorf("the variable %s of servers is %v", name, v)
			}
		}
	}
	if diff := cmp.Diff([]any{"/", "/apps/{app}"}, urls); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	forEachOperation(doc, func(key string, op map[string]any) {
		if op["servers"] != nil {
			t.Errorf("%s has servers of its own: %v", key, op["servers"])
		}
	})
}

var lowerCamelCase = regexp.MustCompile(`^[a-z][A-Za-z0-9]{2,29}$`)

// TestOperationIDs checks that the ids, by which generated clients name their functions, are short, unique and in
// lowerCamelCase.
func TestOperationIDs(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	seen := map[string]string{}
	forEachOperation(doc, func(key string, op map[string]any) {
		id := op["operationId"].(string)
		if !lowerCamelCase.MatchString(id) {
			t.Errorf("%s has the id %q", key, id)
		}
		// Languages without case in file names make one file of two ids that differ in it alone.
		if other := seen[strings.ToLower(id)]; other != "" {
			t.Errorf("%s and %s have the id %s", key, other, id)
		}
		seen[strings.ToLower(id)] = key
	})
	for id, key := range map[string]string{
		"createapp": "POST /admin/apps", "createtoken": "POST /admin/apps/{app}/tokens", "sendmessage": "POST /v1/agents/{agent}/message:send",
		"streammessage": "POST /v1/agents/{agent}/message:stream", "listtasks": "GET /tasks", "approvetask": "POST /tasks/{task}/approve",
		"putdocument": "PUT /v1/document-stores/{store}/documents/{document}",
	} {
		if seen[id] != key {
			t.Errorf("the id %s is that of %q, want %q", id, seen[id], key)
		}
	}
}

// compileStrictly returns a schema of the document that allows no members but the listed ones.
func compileStrictly(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	_, doc := buildDocument(t)
	forbidAdditional(doc["components"].(map[string]any)["schemas"])
	schema := compileSchemas(t, doc)[name]
	if schema == nil {
		t.Fatalf("there is no schema %s", name)
	}
	return schema
}

// TestErrorDetails checks that the schema of errors has every member that an error of each kind has.
func TestErrorDetails(t *testing.T) {
	t.Parallel()
	schema := compileStrictly(t, "ApiError")
	now := time.Now()
	problem := configdocument.Problem{Path: "llms.m", Line: 1, Column: 2, Message: "is not known", Suggestion: "n"}
	for name, err := range map[string]error{
		"field":  agentsvc.NewInvalidError("name", "is missing"),
		"config": &configdocument.Error{Problems: []configdocument.Problem{problem}},
		"limit":  &agentsvc.Error{Code: agentsvc.CodeExhausted, Detail: &ratelimit.State{Rule: ratelimit.Rule{Agent: "a", Scope: "user", Unit: "count", Window: "minute", Limit: 1}, Reset: now}},
		"budget": (&agentsvc.ExhaustedBudget{Budget: "b", Scope: "app", ResetsAt: now}).NewError(),
		"total":  (&agentsvc.ExhaustedBudget{Budget: "b", Scope: "app"}).NewError(),
		"quota":  agentsvc.StorageUse{StoredBytes: 2, MaxBytes: 1}.NewError("delete some", time.Minute),
	} {
		raw, encodeErr := json.Marshal(map[string]any{"error": apierror.NewRecord("r", err)})
		if encodeErr != nil {
			t.Fatal(encodeErr)
		}
		v, decodeErr := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
		if decodeErr != nil {
			t.Fatal(decodeErr)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %s: %v", name, raw, err)
		}
	}
}

// TestEventTypes checks that the schema of the extension API's events has every type that its streams can send, and no other.
func TestEventTypes(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	var documented []string
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for _, branch := range schemas["TaskEvent"].(map[string]any)["oneOf"].([]any) {
		ref, _ := branch.(map[string]any)["$ref"].(string)
		schema, _ := schemas[strings.TrimPrefix(ref, "#/components/schemas/")].(map[string]any)
		properties, _ := schema["properties"].(map[string]any)
		if kind, ok := properties["type"].(map[string]any); ok {
			documented = append(documented, kind["const"].(string))
		}
	}
	slices.Sort(documented)
	if diff := cmp.Diff(slices.Sorted(slices.Values(ext.EventTypes)), documented); diff != "" {
		t.Errorf("the types of events (-sent +documented):\n%s", diff)
	}
}

// TestOwnDescriptions checks that a parameter which means something else in one operation has a description of its own there.
func TestOwnDescriptions(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	describe := func(key, name string) (text string) {
		forEachOperation(doc, func(k string, op map[string]any) {
			params, _ := op["parameters"].([]any)
			for _, p := range params {
				if p := p.(map[string]any); k == key && p["name"] == name {
					text = p["description"].(string)
				}
			}
		})
		return text
	}
	explained := describe("GET /admin/apps/{app}/authz/explain", "action")
	for _, key := range []string{"GET /admin/audit", "GET /admin/audit/export"} {
		if got := describe(key, "action"); got == explained || !strings.Contains(got, "app.update") {
			t.Errorf("%s: action is described as %q", key, got)
		}
		if got := describe(key, "app"); !strings.Contains(got, "id") {
			t.Errorf("%s: app, which is a name or an id, is described as %q", key, got)
		}
	}
}

// TestWholeAnswers checks that what every answer of an operation has is required in its schema, so that clients need not ask for it.
func TestWholeAnswers(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for name, members := range map[string][]string{
		"App": {"id", "etag", "config"}, "AppSummary": {"id", "etag"}, "Token": {"access_token"}, "NewKey": {"key"}, "ConfigRevision": {"config"},
	} {
		schema, ok := schemas[name].(map[string]any)
		if !ok {
			t.Errorf("there is no schema %s", name)
			continue
		}
		for _, member := range members {
			if !slices.Contains(schema["required"].([]any), any(member)) {
				t.Errorf("%s of %s is not required", member, name)
			}
		}
	}
}

// TestRequiredParameters sends to every operation only what the document requires, and then leaves out each required
// parameter: the first must not be refused because of a
// parameter that is not required, the second must be.
func TestRequiredParameters(t *testing.T) {
	t.Parallel()
	s := newProbedServer(t)
	for _, op := range s.operations {
		route := s.routes[op.key()]
		if op.method == http.MethodDelete || route.Signed {
			continue // what deletes would delete, and senders of webhooks sign
		}
		status, body := s.send(t, op, probe{})
		for _, p := range op.Parameters {
			switch {
			case p.In == "path":
			case !p.Required && isRefusedFor(status, body, p.Name):
				t.Errorf("%s needs %s: %d %.300s", op.key(), p.Name, status, body)
			case p.Required:
				if status, body := s.send(t, op, probe{without: p.Name}); !isRefusedFor(status, body, p.Name) {
					t.Errorf("%s does not need %s: %d %.300s", op.key(), p.Name, status, body)
				}
			}
		}
	}
}

// isRefusedFor reports whether a request was refused because of a parameter.
func isRefusedFor(status int, body, parameter string) bool {
	return status == http.StatusBadRequest && (strings.Contains(body, `"field":"`+parameter+`"`) || strings.Contains(body, "the header "+parameter))
}

// TestTagsAreListed checks that every tag is at the top of the document with a description.
func TestTagsAreListed(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	listed, used := map[any]bool{}, map[any]bool{}
	tags, _ := doc["tags"].([]any)
	for _, tag := range tags {
		if tag := tag.(map[string]any); tag["description"] != "" {
			listed[tag["name"]] = true
		}
	}
	forEachOperation(doc, func(_ string, op map[string]any) {
		for _, tag := range op["tags"].([]any) {
			used[tag] = true
		}
	})
	if diff := cmp.Diff(used, listed); diff != "" {
		t.Errorf("tags (-used +listed):\n%s", diff)
	}
}

// TestScopesAreDescribed checks that the description of an operation has the scope that its route needs.
func TestScopesAreDescribed(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	scoped := 0
	for _, r := range newRoutes(nil) {
		op := doc["paths"].(map[string]any)[r.Pattern].(map[string]any)[strings.ToLower(r.Method)].(map[string]any)
		text, _ := op["description"].(string)
		if r.Scope == "" {
			continue
		}
		if scoped++; !strings.Contains(text, "Needs the scope "+string(r.Scope)+".") {
			t.Errorf("%s %s: %q does not name the scope %s", r.Method, r.Pattern, text, r.Scope)
		}
	}
	if scoped == 0 {
		t.Error("no route needs a scope")
	}
}

// TestParameterBounds sends the values that the schemas of query parameters allow and values beyond them: the server must
// refuse the second alone.
func TestParameterBounds(t *testing.T) {
	t.Parallel()
	s := newProbedServer(t)
	checked := map[string]int{}
	for _, op := range s.operations {
		// Protocols with errors of their own name the parameter in another way, or ignore what they do not know.
		if route := s.routes[op.key()]; op.method != http.MethodGet || route.AnyQuery || route.EncodeError != nil {
			continue
		}
		for _, p := range op.Parameters {
			allowed, beyond := p.Schema.examples()
			if p.In != "query" || len(beyond) == 0 {
				continue
			}
			checked[p.Name]++
			for i, value := range slices.Concat(allowed, beyond) {
				status, body := s.send(t, op, probe{query: p.Name + "=" + value})
				if want := i >= len(allowed); isRefusedFor(status, body, p.Name) != want {
					t.Errorf("%s?%s=%s: want it refused: %t; %d %.300s", op.key(), p.Name, value, want, status, body)
				}
			}
		}
	}
	for _, name := range []string{"page_size", "status", "state", "since"} {
		if checked[name] == 0 {
			t.Errorf("no operation has bounds of %s: %v", name, checked)
		}
	}
}

// examples returns values that a schema allows, and values that it does not.
func (s parameterSchema) examples() (allowed, beyond []string) {
	switch {
	case len(s.Enum) > 0:
		return s.Enum, []string{"nosuch"}
	case s.Format == "date-time":
		return []string{"2026-11-01T00:00:00Z"}, []string{"nosuch", "1"}
	case s.Maximum > 0:
		return []string{strconv.Itoa(s.Minimum), strconv.Itoa(s.Maximum)}, []string{strconv.Itoa(s.Minimum - 1), strconv.Itoa(s.Maximum + 1)}
	}
	return nil, nil
}
