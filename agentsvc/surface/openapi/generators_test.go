package openapi_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/billing/calendar"
)

// listTypes returns the types of a schema, without null.
func listTypes(schema map[string]any) (types []any) {
	switch declared := schema["type"].(type) {
	case string:
		types = []any{declared}
	case []any:
		types = slices.Clone(declared)
	}
	return slices.DeleteFunc(types, func(t any) bool { return t == "null" })
}

// walkObjects calls f with every object in v and its place.
func walkObjects(v any, place string, f func(place string, object map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		f(place, v)
		for name, one := range v {
			walkObjects(one, place+"/"+name, f)
		}
	case []any:
		for _, one := range v {
			walkObjects(one, place, f)
		}
	}
}

// TestSingleTypes checks that every schema has one type besides null, and that enumerations and constants have one: the
// generators of statically typed languages refuse a list of types, and make a type without methods of an untyped value.
func TestSingleTypes(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	walkObjects(doc, "", func(place string, schema map[string]any) {
		types := listTypes(schema)
		if len(types) > 1 {
			t.Errorf("%s has the types %v", place, types)
		}
		values, isEnum := schema["enum"].([]any)
		if slices.Contains(values, nil) {
			t.Errorf("%s has the value null, which generators make a text", place)
		}
		constant, isConst := schema["const"]
		if _, isProperty := constant.(map[string]any); (isEnum || isConst && !isProperty) && len(types) != 1 {
			t.Errorf("%s is an enumeration without a type", place)
		}
	})
}

// TestParameterNames checks that generated functions can have the parameters of an operation as arguments: no two of them
// differ in case and punctuation alone, and none is called server, as the first argument of the functions of oapi-codegen.
func TestParameterNames(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	for path, item := range doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			seen := map[string]string{}
			parameters, _ := op.(map[string]any)["parameters"].([]any)
			for _, p := range parameters {
				name := p.(map[string]any)["name"].(string)
				plain := strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
				if other, ok := seen[plain]; ok || plain == "server" {
					t.Errorf("%s %s: the parameter %s has the name of another, %q", strings.ToUpper(method), path, name, other)
				}
				seen[plain] = name
			}
		}
	}
}

// TestMemberTypes checks that generated types can be named after their members: of the members of an object whose names
// differ in case and punctuation alone, one at most has an object or an enumeration that is no component.
func TestMemberTypes(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	walkObjects(doc["components"], "", func(place string, schema map[string]any) {
		properties, _ := schema["properties"].(map[string]any)
		seen := map[string]string{}
		for name, member := range properties {
			member, _ := member.(map[string]any)
			if !slices.Contains(listTypes(member), any("object")) && member["enum"] == nil {
				continue
			}
			plain := strings.ReplaceAll(strings.ToLower(name), "_", "")
			if other, ok := seen[plain]; ok {
				t.Errorf("%s: the types of %s and %s have the same name", place, name, other)
			}
			seen[plain] = name
		}
	})
}

// TestIntegerBounds checks that numbers in requests which may not be negative have a minimum, for clients that validate what
// they send.
func TestIntegerBounds(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	walkObjects(doc, "", func(place string, object map[string]any) {
		if schema, ok := object["schema"].(map[string]any); ok && object["in"] != nil && schema["type"] == "integer" && schema["minimum"] == nil {
			t.Errorf("%s: the parameter %v has no minimum", place, object["name"])
		}
		for _, name := range []string{"history_length", "historyLength"} {
			if schema, ok := object[name].(map[string]any); ok && schema["type"] == "integer" && schema["minimum"] == nil {
				t.Errorf("%s: %s has no minimum", place, name)
			}
		}
	})
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for _, name := range []string{"AgentTaskList", "AgentTaskSubscribe", "A2ATaskListParams", "A2ATaskListParams03"} {
		for member, schema := range schemas[name].(map[string]any)["properties"].(map[string]any) {
			// Milliseconds since 1970 may be negative.
			if schema := schema.(map[string]any); schema["type"] == "integer" && schema["minimum"] == nil && member != "lastUpdatedAfter" {
				t.Errorf("%s of %s has no minimum", member, name)
			}
		}
	}
}

// TestShouldRetry checks that the errors of tasks in OpenAI's API have the header that keeps clients from a second attempt,
// and that other answers do not.
func TestShouldRetry(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	responses := doc["components"].(map[string]any)["responses"].(map[string]any)
	for _, status := range []string{"", "422", "429", "503", "504"} {
		has := responses["OpenAIError"+status].(map[string]any)["headers"].(map[string]any)["X-Should-Retry"] != nil
		if want := status == "422" || status == "504"; has != want {
			t.Errorf("OpenAIError%s has X-Should-Retry: %v, want %v", status, has, want)
		}
	}
	ok := doc["paths"].(map[string]any)["/openai/v1/responses"].(map[string]any)["post"].(map[string]any)["responses"].(map[string]any)["200"].(map[string]any)
	if ok["headers"].(map[string]any)["X-Should-Retry"] != nil {
		t.Error("a response without an error has X-Should-Retry")
	}
}

// TestBudgetWindows checks that budgets have every window of the calendar.
func TestBudgetWindows(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	var want []any
	for _, w := range calendar.Windows {
		want = append(want, string(w))
	}
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for _, name := range []string{"Budget", "BudgetOrder", "BudgetChange"} {
		window := schemas[name].(map[string]any)["properties"].(map[string]any)["window"].(map[string]any)
		if diff := cmp.Diff(want, window["enum"]); diff != "" {
			t.Errorf("%s (-calendar +document):\n%s", name, diff)
		}
	}
}

// TestSearchLimit checks that the number of results has its bounds, for clients that validate what they send.
func TestSearchLimit(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	search := compileSchemas(t, doc)["DocumentSearch"]
	for limit, isValid := range map[int]bool{0: false, 1: true, 100: true, 101: false} {
		if err := search.Validate(map[string]any{"query": "x", "limit": limit}); (err == nil) != isValid {
			t.Errorf("the limit %d: %v", limit, err)
		}
	}
}

// TestLicense checks that the document names the license of the repository.
func TestLicense(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	text, err := os.ReadFile("../../../LICENSE")
	if err != nil || !strings.Contains(string(text), "Apache License") {
		t.Fatal(err, "the repository has another license than Apache 2.0")
	}
	want := map[string]any{"name": "Apache License 2.0", "identifier": "Apache-2.0"}
	if diff := cmp.Diff(want, doc["info"].(map[string]any)["license"]); diff != "" {
		t.Error(diff)
	}
}
