package main

import (
	"maps"
	"net/http"
	"testing"
)

// addProtocolRows adds rows for the routes of the OpenAI and MCP surfaces to the isolation and access tables, which
// TestIsolation and TestMatrix read. The server gets its routes from newProtocolRoutes (server/surfaces.go).
func addProtocolRows() {
	row := func(key string, n accessRule, probes ...isolationProbe) {
		routeAccess[key], routeProbes[key] = n, probes
	}

	chat := func(agent string) func(x appIDs) any {
		return func(x appIDs) any {
			return map[string]any{"model": x.replaceIDs(agent), "messages": []any{map[string]any{"role": "user", "content": "hello"}}}
		}
	}
	chatDecision := func(x appIDs) any {
		result := map[string]any{"role": "tool", "tool_call_id": x.replaceIDs("mcpr_{held}_{call}"), "content": `{"approve": true}`}
		return map[string]any{"model": "assistant", "messages": []any{result}}
	}
	row("POST /openai/v1/chat/completions",
		accessRule{path: "/apps/acme/openai/v1/chat/completions", body: chat("assistant")(unknownIDs), anyOf: assistantScopes()},
		isolationProbe{path: "/openai/v1/chat/completions", body: chat("{agent}")}, isolationProbe{path: "/openai/v1/chat/completions", body: chatDecision},
		isolationProbe{path: "/apps/{app}/openai/v1/chat/completions", body: chat("assistant")})
	const responses = "/openai/v1/responses"
	responding := func(input any, previous string) func(x appIDs) any {
		return func(x appIDs) any {
			return map[string]any{"model": "assistant", "input": input, "previous_response_id": x.replaceIDs(previous)}
		}
	}
	deciding := func(x appIDs) any {
		approval := x.replaceIDs("mcpr_{held}_{call}")
		return map[string]any{"model": "assistant", "input": []any{map[string]any{"type": "mcp_approval_response", "approval_request_id": approval, "approve": true}}}
	}
	row("POST "+responses, accessRule{path: "/apps/acme" + responses, body: responding("hello", "")(unknownIDs), anyOf: assistantScopes()},
		isolationProbe{path: responses, body: responding("mine now", "resp_{task}_1")}, isolationProbe{path: responses, body: responding("mine now", "resp_{held}_1")},
		isolationProbe{path: responses, body: responding("mine now", "resp_{wanting}_1")}, isolationProbe{path: responses, body: deciding},
		isolationProbe{path: responses, body: func(x appIDs) any { return map[string]any{"model": x.agent, "input": "hello"} }},
		isolationProbe{path: "/apps/{app}" + responses, body: responding("hello", "")})
	row("GET "+responses+"/{response}", accessRule{path: "/apps/acme" + responses + "/nosuch", anyOf: anyAgentScopes("tasks:read")},
		isolationProbe{path: responses + "/resp_{task}_1"}, isolationProbe{path: responses + "/resp_{held}_1"}, isolationProbe{path: "/apps/{app}" + responses + "/resp_{task}_1"})
	row("POST "+responses+"/{response}/cancel", accessRule{path: "/apps/acme" + responses + "/nosuch/cancel", anyOf: anyAgentScopes("tasks:cancel")},
		isolationProbe{path: responses + "/resp_{task}_1/cancel"}, isolationProbe{path: responses + "/resp_{held}_1/cancel"},
		isolationProbe{path: "/apps/{app}" + responses + "/resp_{task}_1/cancel"})
	row("GET /openai/v1/models", accessRule{path: "/apps/acme/openai/v1/models", access: discoveryOnly}, isolationProbe{path: "/apps/{app}/openai/v1/models"})
	row("GET /openai/v1/models/{agent}", accessRule{path: "/apps/acme/openai/v1/models/assistant", access: discoveryOnly},
		isolationProbe{path: "/openai/v1/models/{agent}"}, isolationProbe{path: "/apps/{app}/openai/v1/models/{agent}"})

	row("GET /api/openapi.json", accessRule{path: "/api/openapi.json", access: anyCaller}, isolationProbe{path: "/api/openapi.json"})
	row("POST /mcp/{agent}", accessRule{access: byMethod}) // see probeMCP and checkMCPAccess
}

func init() { addProtocolRows() }

// newToolCallParams returns a function for params of a tool call with foreign ids.
func newToolCallParams(args func(x appIDs) map[string]any) func(x appIDs) any {
	return func(x appIDs) any { return map[string]any{"name": "assistant", "arguments": args(x)} }
}

// statelessCall is a call of MCP's newest revision, which also describes itself in headers.
type statelessCall map[string]any

const mcpLatestVersion = "2026-07-28"

func (c statelessCall) headers(h http.Header) {
	h.Set("MCP-Protocol-Version", mcpLatestVersion)
	h.Set("Mcp-Method", c["method"].(string))
	if name, ok := c["params"].(map[string]any)["name"].(string); ok {
		h.Set("Mcp-Name", name)
	}
}

// newMCPCall returns a call of a method, stateless if alone is set, else in a session.
func newMCPCall(method string, alone bool, params any) any {
	call := newRPCCall(method, params)
	if !alone {
		return call
	}
	written := maps.Clone(params.(map[string]any))
	if written == nil {
		written = map[string]any{}
	}
	written["_meta"] = map[string]any{"io.modelcontextprotocol/protocolVersion": mcpLatestVersion, "io.modelcontextprotocol/clientCapabilities": map[string]any{}}
	call["params"] = written
	return statelessCall(call)
}

// mcpMethods are the methods of an agent's MCP server, with foreign params and the scopes that a caller needs.
var mcpMethods = []struct {
	method string
	alone  bool
	any    []string
	params []func(x appIDs) any
}{
	{"server/discover", true, assistantScopes(), []func(appIDs) any{emptyBody}},
	{"tools/call", true, assistantScopes(), []func(appIDs) any{
		newToolCallParams(func(x appIDs) map[string]any { return map[string]any{"message": "mine now", "task_id": x.task} }),
		newToolCallParams(func(x appIDs) map[string]any { return map[string]any{"message": "recall", "context_id": x.context} }),
	}},
	{"initialize", false, assistantScopes(), []func(appIDs) any{func(appIDs) any { return map[string]any{"protocolVersion": "2025-11-25"} }}},
	{"ping", false, assistantScopes(), []func(appIDs) any{emptyBody}},
	{"tools/list", false, assistantScopes(), []func(appIDs) any{emptyBody}},
	{"tools/call", false, assistantScopes(), []func(appIDs) any{
		newToolCallParams(func(appIDs) map[string]any { return map[string]any{"message": "hello"} }),
		newToolCallParams(func(x appIDs) map[string]any { return map[string]any{"message": "mine now", "task_id": x.task} }),
		newToolCallParams(func(x appIDs) map[string]any { return map[string]any{"message": "mine now", "task_id": x.approvalTask} }),
		newToolCallParams(func(x appIDs) map[string]any { return map[string]any{"message": "recall", "context_id": x.context} }),
	}},
	{"notifications/initialized", false, assistantScopes(), []func(appIDs) any{emptyBody}},
	{"notifications/cancelled", false, assistantScopes("tasks:cancel"), []func(appIDs) any{func(appIDs) any { return map[string]any{"requestId": 1} }}},
}

// probeMCP tries foreign ids with every method of an agent's MCP server, and tries to cancel a call of another user's
// session.
func (ts *testServer) probeMCP(t *testing.T, token string, x appIDs) {
	t.Helper()
	for _, m := range mcpMethods {
		for _, params := range m.params {
			for _, path := range []string{"/mcp/assistant", "/mcp/{agent}", "/apps/{app}/mcp/assistant"} {
				ts.requireIsolated(t, token, http.MethodPost, isolationProbe{path: path, body: func(x appIDs) any { return newMCPCall(m.method, m.alone, params(x)) }}, x)
				ts.requireIsolated(t, token, http.MethodPost, isolationProbe{path: path, header: "MCP-Session-Id", value: "{message}", body: func(x appIDs) any { return newMCPCall(m.method, m.alone, params(x)) }}, x)
			}
		}
	}
}

// checkMCPAccess lets every caller use every method.
func (ts *testServer) checkMCPAccess(t *testing.T, callers []matrixCaller) {
	t.Helper()
	for _, m := range mcpMethods {
		for _, c := range callers {
			ts.checkAccess(t, m.method, http.MethodPost, "/apps/acme/mcp/assistant", newMCPCall(m.method, m.alone, m.params[0](unknownIDs)), accessRule{anyOf: m.any}, c)
		}
	}
}
