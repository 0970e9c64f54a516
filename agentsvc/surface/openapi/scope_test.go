package openapi_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/surface"
	"stoa/authz"
)

// scopedCaller is a caller whose token has one scope alone.
type scopedCaller struct{ scope, token string }

// newScopedCallers returns a caller for each scope.
func (s *probedServer) newScopedCallers(t *testing.T) (callers []scopedCaller) {
	t.Helper()
	for _, role := range authz.BuiltInRoles() {
		if role.Name != authz.RoleAdmin {
			continue
		}
		for _, scope := range role.Scopes {
			token := s.MintToken(t, "acme", authz.TokenSpec{Subject: "ana", Roles: []string{role.Name}, Scope: string(scope)})
			callers = append(callers, scopedCaller{string(scope), token})
		}
	}
	return callers
}

// security returns the scopes of which a caller of an app needs one, by the document, and whether the operation is one of
// the operator; no scopes = any caller.
func (o *operation) security() (scopes []string, isAdmin bool) {
	for _, alternative := range o.Security {
		if _, isAdmin = alternative["admin"]; isAdmin {
			return nil, true
		}
		scopes = append(scopes, alternative["bearer"]...)
	}
	return scopes, false
}

// checkScopes sends a request as each caller: those with one of the scopes are let in, all others are refused.
func (s *probedServer) checkScopes(t *testing.T, callers []scopedCaller, op *operation, what string, p probe) {
	t.Helper()
	scopes, isAdmin := op.security()
	if p.scopes != nil {
		scopes = p.scopes
	}
	var want, got []string
	for _, c := range callers {
		if !isAdmin && (len(scopes) == 0 || slices.Contains(scopes, c.scope)) {
			want = append(want, c.scope)
		}
		p.credential = c.token
		if status, _ := s.send(t, op, p); status != http.StatusForbidden && status != http.StatusUnauthorized {
			got = append(got, c.scope)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s %s: scopes (-documented +sufficient):\n%s", op.key(), what, diff)
	}
}

// TestScopesAsDocumented uses every operation, and every method of JSON-RPC, with tokens of one scope each: those that the
// document's security names are let in, and all others are answered 403.
func TestScopesAsDocumented(t *testing.T) {
	t.Parallel()
	s := newProbedServer(t)
	callers := s.newScopedCallers(t)
	_, doc := buildDocument(t)
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	checked := 0
	for _, op := range s.operations {
		// The studio answers callers of the default app alone.
		if route := s.routes[op.key()]; route.Kind == surface.Open || route.Signed || op.pattern == "/api/config" {
			continue
		}
		name := op.RequestBody.Content.schemaName("application/json")
		if s.calls[name] == nil {
			p := probe{}
			if slices.Contains(op.parametersIn("query"), "dry_run") {
				p.query = "dry_run=true"
			}
			s.checkScopes(t, callers, op, "", p)
			checked++
			continue
		}
		s.checkMethodScopes(t, callers, op, schemas)
	}
	if checked < 100 {
		t.Errorf("%d operations", checked)
	}
}

// checkMethodScopes calls every method of a JSON-RPC endpoint. The security of the operation has the scopes of all of them,
// the description of a request those of its method.
func (s *probedServer) checkMethodScopes(t *testing.T, callers []scopedCaller, op *operation, schemas map[string]any) {
	t.Helper()
	name := op.RequestBody.Content.schemaName("application/json")
	all, _ := op.security()
	var ofMethods []string
	for _, c := range s.calls[name] {
		scopes := requestScopes(t, schemas, name, c.Methods[0])
		ofMethods = append(ofMethods, scopes...)
		params := `{"id": "nosuch", "name": "assistant", "requestId": "nosuch", "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}`
		p := probe{body: rpcProbe(name, c.Methods[0], params), scopes: scopes}
		if c.Methods[0] == "server/discover" { // of the newest revision of MCP alone
			p.headers = []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "server/discover", "Mcp-Name", "assistant"}
		}
		s.checkScopes(t, callers, op, c.Methods[0], p)
	}
	slices.Sort(ofMethods)
	if diff := cmp.Diff(slices.Compact(ofMethods), slices.Sorted(slices.Values(all))); diff != "" {
		t.Errorf("%s: scopes (-methods +security):\n%s", op.key(), diff)
	}
}

var neededScopes = regexp.MustCompile(`Needs the scope ([a-z:]+(?: or [a-z:]+)*)`)

// requestScopes returns the scopes that the description of a method's request names.
func requestScopes(t *testing.T, schemas map[string]any, endpoint, method string) []string {
	t.Helper()
	mapping := schemas[endpoint].(map[string]any)["discriminator"].(map[string]any)["mapping"].(map[string]any)
	request, _ := schemas[strings.TrimPrefix(mapping[method].(string), "#/components/schemas/")].(map[string]any)
	text, _ := request["description"].(string)
	m := neededScopes.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("the request of %s is described as %q, without its scope", method, text)
	}
	return strings.Split(m[1], " or ")
}
