package main

import (
	"maps"
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

// lone is a call of MCP's newest revision, which says in headers as well what it is.
type lone map[string]any

const mcpNewest = "2026-07-28"

func (l lone) headers(h http.Header) {
	h.Set("MCP-Protocol-Version", mcpNewest)
	h.Set("Mcp-Method", l["method"].(string))
	if name, ok := l["params"].(map[string]any)["name"].(string); ok {
		h.Set("Mcp-Name", name)
	}
}

// mcpCall is a call of a method, alone or within a session.
func mcpCall(method string, alone bool, params any) any {
	call := rpc(method, params)
	if !alone {
		return call
	}
	said := maps.Clone(params.(map[string]any))
	if said == nil {
		said = map[string]any{}
	}
	said["_meta"] = map[string]any{"io.modelcontextprotocol/protocolVersion": mcpNewest, "io.modelcontextprotocol/clientCapabilities": map[string]any{}}
	call["params"] = said
	return lone(call)
}

// mcpMethods are the methods of an agent's MCP server, with what a stranger would say and what a caller needs.
var mcpMethods = []struct {
	method string
	alone  bool
	any    []string
	params []func(x minted) any
}{
	{"server/discover", true, orOfAssistant(), []func(minted) any{emptyBody}},
	{"tools/call", true, orOfAssistant(), []func(minted) any{
		mcpTool(func(x minted) map[string]any { return map[string]any{"message": "mine now", "task_id": x.task} }),
		mcpTool(func(x minted) map[string]any { return map[string]any{"message": "recall", "context_id": x.context} }),
	}},
	{"initialize", false, orOfAssistant(), []func(minted) any{func(minted) any { return map[string]any{"protocolVersion": "2025-11-25"} }}},
	{"ping", false, orOfAssistant(), []func(minted) any{emptyBody}},
	{"tools/list", false, orOfAssistant(), []func(minted) any{emptyBody}},
	{"tools/call", false, orOfAssistant(), []func(minted) any{
		mcpTool(func(minted) map[string]any { return map[string]any{"message": "hello"} }),
		mcpTool(func(x minted) map[string]any { return map[string]any{"message": "mine now", "task_id": x.task} }),
		mcpTool(func(x minted) map[string]any { return map[string]any{"message": "mine now", "task_id": x.held} }),
		mcpTool(func(x minted) map[string]any { return map[string]any{"message": "recall", "context_id": x.context} }),
	}},
	{"notifications/initialized", false, orOfAssistant(), []func(minted) any{emptyBody}},
	{"notifications/cancelled", false, orOfAssistant("tasks:cancel"), []func(minted) any{func(minted) any { return map[string]any{"requestId": 1} }}},
}

// walkMCP tries the ids with every method of an agent's MCP server, and to cancel a call of its owner's session.
func (h *testHouse) walkMCP(t *testing.T, token string, x minted) {
	t.Helper()
	for _, m := range mcpMethods {
		for _, params := range m.params {
			for _, path := range []string{"/mcp/assistant", "/mcp/{agent}", "/apps/{app}/mcp/assistant"} {
				h.compare(t, token, http.MethodPost, trespass{path: path, body: func(x minted) any { return mcpCall(m.method, m.alone, params(x)) }}, x)
				h.compare(t, token, http.MethodPost, trespass{path: path, header: "MCP-Session-Id", value: "{message}", body: func(x minted) any { return mcpCall(m.method, m.alone, params(x)) }}, x)
			}
		}
	}
}

// knockMCP has every caller use every method.
func (h *testHouse) knockMCP(t *testing.T, callers []matrixCaller) {
	t.Helper()
	for _, m := range mcpMethods {
		for _, c := range callers {
			h.knock(t, m.method, http.MethodPost, "/apps/acme/mcp/assistant", mcpCall(m.method, m.alone, m.params[0](nobody)), need{any: m.any}, c)
		}
	}
}
