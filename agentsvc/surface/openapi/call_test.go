package openapi_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/surface/a2a"
)

// rpcProbe returns the text of a JSON-RPC request; notifications of MCP have no id.
func rpcProbe(endpoint, method, params string) *string {
	id := `"id": 1, `
	if endpoint == "MCPCall" && strings.HasPrefix(method, "notifications/") {
		id = ""
	}
	body := `{"jsonrpc": "2.0", ` + id + `"method": "` + method + `", "params": ` + params + `}`
	return &body
}

// TestCallsAreAnswered calls every documented method of every JSON-RPC endpoint, and the methods of all other endpoints: an
// endpoint has those alone that are documented for it.
func TestCallsAreAnswered(t *testing.T) {
	t.Parallel()
	s := newProbedServer(t)
	all := a2a.MethodNames()
	for _, calls := range s.calls {
		for _, c := range calls {
			all = append(all, c.Methods...)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	endpoints := 0
	for _, op := range s.operations {
		name := op.RequestBody.Content.schemaName("application/json")
		calls, ok := s.calls[name]
		if !ok {
			continue
		}
		endpoints++
		var documented, answered []string
		for _, c := range calls {
			documented = append(documented, c.Methods...)
		}
		slices.Sort(documented)
		for _, method := range all {
			revision := probe{body: rpcProbe(name, method, `{"tenant": 1}`)}
			if method == "server/discover" { // of the newest revision of MCP alone
				revision.header, revision.value = "MCP-Protocol-Version", "2026-07-28"
			}
			_, body := s.send(t, op, revision)
			// -32003: push notifications, which the extension API does not have.
			if !strings.Contains(body, "-32601") && !(name == "AgentCall" && strings.Contains(body, "-32003")) {
				answered = append(answered, method)
			}
		}
		if diff := cmp.Diff(documented, answered); diff != "" {
			t.Errorf("%s (-documented +answered):\n%s", op.key(), diff)
		}
	}
	if endpoints != 5 {
		t.Errorf("%d endpoints of JSON-RPC", endpoints)
	}
}

// TestParamsAreKnown checks that every documented member of params is one that the method knows, where it refuses others.
func TestParamsAreKnown(t *testing.T) {
	t.Parallel()
	s := newProbedServer(t)
	_, doc := buildDocument(t)
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	checked := map[string]int{}
	for _, op := range s.operations {
		name := op.RequestBody.Content.schemaName("application/json")
		for _, c := range s.calls[name] {
			properties, _ := schemas[c.Params].(map[string]any)["properties"].(map[string]any)
			isKnown := func(member string) bool {
				_, body := s.send(t, op, probe{body: rpcProbe(name, c.Methods[0], `{"`+member+`": null}`)})
				return !strings.Contains(body, member+": is not a known field")
			}
			if isKnown("nosuch") {
				continue // A2A 1.0 and MCP ignore what they do not know
			}
			checked[op.key()]++
			for _, member := range slices.Sorted(maps.Keys(properties)) {
				if !isKnown(member) {
					t.Errorf("%s: %s does not know the documented param %s", op.key(), c.Methods[0], member)
				}
			}
		}
	}
	// Version 0.3 has eleven methods at each endpoint of A2A.
	want := map[string]int{"POST /agents/{agent}": 6, "POST /": 11, "POST /stream": 11, "POST /a2a/{agent}": 11}
	if diff := cmp.Diff(want, checked); diff != "" {
		t.Errorf("methods that refuse unknown params (-want +got):\n%s", diff)
	}
}

// TestCallsAreDiscriminated checks that a request of each method has one schema, which its method decides.
func TestCallsAreDiscriminated(t *testing.T) {
	t.Parallel()
	_, doc := buildDocument(t)
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for name, calls := range readCalls(t) {
		var schema struct {
			OneOf         []map[string]string
			Discriminator struct {
				PropertyName string
				Mapping      map[string]string
			}
		}
		raw, err := json.Marshal(schemas[name])
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &schema); err != nil {
			t.Fatal(err)
		}
		if schema.Discriminator.PropertyName != "method" || len(schema.OneOf) != len(calls) {
			t.Errorf("%s: %+v", name, schema)
		}
		for _, c := range calls {
			for _, method := range c.Methods {
				request, _ := schemas[strings.TrimPrefix(schema.Discriminator.Mapping[method], "#/components/schemas/")].(map[string]any)
				names, _ := request["properties"].(map[string]any)["method"].(map[string]any)["enum"].([]any)
				if !slices.Contains(names, any(method)) {
					t.Errorf("%s: the schema of %s is %v", name, method, request)
				}
			}
		}
	}
}
