package main

import (
	"net/http"
	"testing"
)

// beyondRoutes are what the surfaces for clients of other protocols than A2A answer: how a stranger would try a route, and what a
// caller must have for it.
func beyondRoutes() {
	row := func(key string, n need, walks ...trespass) { routeNeeds[key], routeWalks[key] = n, walks }

	chat := func(agent string) func(x minted) any {
		return func(x minted) any {
			return map[string]any{"model": x.on(agent), "messages": []any{map[string]any{"role": "user", "content": "hello"}}}
		}
	}
	row("POST /openai/v1/chat/completions",
		need{path: "/apps/acme/openai/v1/chat/completions", body: chat("assistant")(nobody), any: orOfAssistant()},
		trespass{path: "/openai/v1/chat/completions", body: chat("{agent}")}, trespass{path: "/apps/{app}/openai/v1/chat/completions", body: chat("assistant")})
	row("GET /openai/v1/models", need{path: "/apps/acme/openai/v1/models", who: looking}, trespass{path: "/apps/{app}/openai/v1/models"})
	row("GET /openai/v1/models/{agent}", need{path: "/apps/acme/openai/v1/models/assistant", who: looking},
		trespass{path: "/openai/v1/models/{agent}"}, trespass{path: "/apps/{app}/openai/v1/models/{agent}"})

	row("GET /api/openapi.json", need{path: "/api/openapi.json", who: everyone}, trespass{path: "/api/openapi.json"})
	row("POST /mcp/{agent}", need{who: byMethod}) // walkMCP and knockMCP
}

func init() { beyondRoutes() }

// mcpTool are calls of an agent's tool that name somebody else's ids.
func mcpTool(args func(x minted) map[string]any) func(x minted) any {
	return func(x minted) any { return map[string]any{"name": "assistant", "arguments": args(x)} }
}

// mcpMethods are the methods of an agent's MCP server, with what a stranger would say and what a caller needs.
var mcpMethods = []struct {
	method string
	any    []string
	params []func(x minted) any
}{
	{"initialize", orOfAssistant(), []func(minted) any{func(minted) any { return map[string]any{"protocolVersion": "2025-11-25"} }}},
	{"ping", orOfAssistant(), []func(minted) any{emptyBody}},
	{"tools/list", orOfAssistant(), []func(minted) any{emptyBody}},
	{"tools/call", orOfAssistant(), []func(minted) any{
		mcpTool(func(minted) map[string]any { return map[string]any{"message": "hello"} }),
		mcpTool(func(x minted) map[string]any { return map[string]any{"message": "mine now", "task_id": x.task} }),
		mcpTool(func(x minted) map[string]any { return map[string]any{"message": "mine now", "task_id": x.held} }),
		mcpTool(func(x minted) map[string]any { return map[string]any{"message": "recall", "context_id": x.context} }),
	}},
	{"notifications/initialized", orOfAssistant(), []func(minted) any{emptyBody}},
	{"notifications/cancelled", orOfAssistant("tasks:cancel"), []func(minted) any{func(minted) any { return map[string]any{"requestId": 1} }}},
}

// walkMCP tries the ids with every method of an agent's MCP server, and to cancel a call of its owner's session.
func (h *testHouse) walkMCP(t *testing.T, token string, x minted) {
	t.Helper()
	for _, m := range mcpMethods {
		for _, params := range m.params {
			for _, path := range []string{"/mcp/assistant", "/mcp/{agent}", "/apps/{app}/mcp/assistant"} {
				h.compare(t, token, http.MethodPost, trespass{path: path, body: func(x minted) any { return rpc(m.method, params(x)) }}, x)
				h.compare(t, token, http.MethodPost, trespass{path: path, header: "MCP-Session-Id", value: "{message}", body: func(x minted) any { return rpc(m.method, params(x)) }}, x)
			}
		}
	}
}

// knockMCP has every caller use every method.
func (h *testHouse) knockMCP(t *testing.T, callers []matrixCaller) {
	t.Helper()
	for _, m := range mcpMethods {
		for _, c := range callers {
			h.knock(t, m.method, http.MethodPost, "/apps/acme/mcp/assistant", rpc(m.method, m.params[0](nobody)), need{any: m.any}, c)
		}
	}
}
