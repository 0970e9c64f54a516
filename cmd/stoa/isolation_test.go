package main

import (
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/store/toolpin"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// appIDs are what a foreign caller might name of an app's users: each field is an id, or a name that only the app
// knows.
type appIDs struct {
	app, agent, task, context, message, cursor string
	approvalTask, callID                       string // a task whose tool call waits for a decision
	user                                       string // a user with a memory
	// A task that waits for a credential, and a tool with a stored one.
	credentialTask, tool string
	key                  string // id of an API key
	invoice              string
	document             string // that one user alone may read
}

// unknownIDs are ids that never existed.
var unknownIDs = appIDs{
	app: "nosuchapp", agent: "nosuchagent", task: "01a00000-0000-7000-8000-000000000000", context: "01a00000-0000-7000-8000-000000000001",
	message: "nosuchmessage", cursor: "bm9zdWNoY3Vyc29ybm9zdWNoY3Vyc29y",
	approvalTask: "01a00000-0000-7000-8000-000000000002", callID: "call_000000000000000000000000", user: "nosuchuser",
	credentialTask: "01a00000-0000-7000-8000-000000000003", tool: "nosuchtool", key: "nosuchkeyaaa",
	invoice: "1999-01", document: "nosuchdocument",
}

// isolationProbe is one way to use a foreign id.
type isolationProbe struct {
	path        string
	body        func(x appIDs) any
	lastEventID string // value of the Last-Event-ID header

	header, value string // a further header, "" = none
}

// replaceIDs returns a path with its placeholders replaced by the ids.
func (d appIDs) replaceIDs(path string) string {
	return strings.NewReplacer("{app}", d.app, "{agent}", d.agent, "{task}", d.task, "{context}", d.context, "{cursor}", d.cursor,
		"{held}", d.approvalTask, "{call}", d.callID, "{user}", d.user, "{tool}", d.tool, "{wanting}", d.credentialTask, "{key}", d.key,
		"{invoice}", d.invoice, "{config}", d.task, "{document}", d.document).Replace(path)
}

// nilBody is the body of routes that read none.
func nilBody(appIDs) any { return nil }

// routeProbes has for each route the ways to try a foreign id. A route without a row fails the test. Rows without an
// id are for routes that take none.
var routeProbes = map[string][]isolationProbe{
	"GET /health":                      {{path: "/health"}},
	"GET /console":                     {{path: "/console"}},
	"GET /console/*":                   {{path: "/console/tasks/{task}"}, {path: "/console/assets/{task}"}},
	"GET /ready":                       {{path: "/ready"}},
	"GET /metrics":                     {{path: "/metrics/{app}"}},
	"GET /.well-known/jwks.json":       {{path: "/.well-known/jwks.json"}},
	"GET /.well-known/card-keys.json":  {{path: "/.well-known/card-keys.json"}},
	"GET /.well-known/agent-card.json": {{path: "/apps/{app}/.well-known/agent-card.json"}},
	"GET /agents":                      {{path: "/apps/{app}/agents"}},
	"GET /agents/{agent}":              {{path: "/agents/{agent}"}, {path: "/apps/{app}/agents/{agent}"}},
	"GET /api/config":                  {{path: "/apps/{app}/api/config"}},
	"POST /api/config":                 {{path: "/apps/{app}/api/config", body: emptyBody}},
	"GET /agents/{agent}/.well-known/agent-card.json":    {{path: "/agents/{agent}/.well-known/agent-card.json"}, {path: "/apps/{app}/agents/{agent}/.well-known/agent-card.json"}},
	"POST /agents/{agent}":                               nil, // see rpcProbes
	"GET /v1/agents":                                     {{path: "/apps/{app}/v1/agents"}},
	"GET /v1/agents/{agent}/.well-known/agent-card.json": {{path: "/v1/agents/{agent}/.well-known/agent-card.json"}, {path: "/apps/{app}/v1/agents/{agent}/.well-known/agent-card.json"}},
	"POST /v1/agents/{agent}/message:send":               newSendProbes("/v1/agents/assistant/message:send", "/v1/agents/{agent}/message:send", "/apps/{app}/v1/agents/assistant/message:send"),
	"POST /v1/agents/{agent}/message:stream":             newSendProbes("/v1/agents/assistant/message:stream", "/v1/agents/assistant/message:stream?format=response", "/v1/agents/{agent}/message:stream", "/apps/{app}/v1/agents/assistant/message:stream"),
	"POST /v1/message:send":                              newSendProbes("/v1/message:send", "/apps/{app}/v1/message:send"),
	"POST /v1/agents/{agent}/tasks/{task}:cancel":        {{path: "/v1/agents/assistant/tasks/{task}:cancel"}, {path: "/v1/agents/{agent}/tasks/{task}:cancel"}, {path: "/apps/{app}/v1/agents/assistant/tasks/{task}:cancel"}},
	"GET /v1/agents/{agent}/tasks/{task}:subscribe":      {{path: "/v1/agents/assistant/tasks/{task}:subscribe"}, {path: "/v1/agents/assistant/tasks/{task}:subscribe?format=response&after=0"}, {path: "/v1/agents/assistant/tasks/{task}:subscribe", lastEventID: "1"}, {path: "/v1/agents/{agent}/tasks/{task}:subscribe"}, {path: "/apps/{app}/v1/agents/assistant/tasks/{task}:subscribe"}},
	"GET /v1/agents/{agent}/tasks":                       {{path: "/v1/agents/assistant/tasks?context_id={context}"}, {path: "/v1/agents/assistant/tasks?page_token={cursor}"}, {path: "/v1/agents/{agent}/tasks"}, {path: "/apps/{app}/v1/agents/assistant/tasks"}},
	"GET /v1/agents/{agent}/tasks/{task}":                {{path: "/v1/agents/assistant/tasks/{task}?include_artifacts=true"}, {path: "/v1/agents/{agent}/tasks/{task}"}, {path: "/apps/{app}/v1/agents/assistant/tasks/{task}"}},
	"GET /v1/agents/{agent}/stream":                      {{path: "/v1/agents/{agent}/stream"}, {path: "/apps/{app}/v1/agents/assistant/stream"}}, // and probeWebSocket
	// The app's own store has the name of its agent; both apps have the store manual.
	"GET /v1/document-stores":                                      {{path: "/apps/{app}/v1/document-stores"}},
	"POST /v1/document-stores/{store}:search":                      {{path: "/v1/document-stores/{agent}:search", body: newSearchBody}, {path: "/v1/document-stores/manual:search", body: newSearchBody}, {path: "/apps/{app}/v1/document-stores/manual:search", body: newSearchBody}},
	"POST /v1/document-stores/{store}:reindex":                     {{path: "/v1/document-stores/{agent}:reindex"}, {path: "/apps/{app}/v1/document-stores/manual:reindex?confirm=true"}},
	"GET /v1/document-stores/{store}/documents":                    {{path: "/v1/document-stores/{agent}/documents"}, {path: "/v1/document-stores/manual/documents?prefix={document}"}, {path: "/apps/{app}/v1/document-stores/manual/documents"}},
	"GET /v1/document-stores/{store}/documents/{document}":         {{path: "/v1/document-stores/manual/documents/{document}"}, {path: "/v1/document-stores/{agent}/documents/{document}"}, {path: "/apps/{app}/v1/document-stores/manual/documents/{document}"}},
	"GET /v1/document-stores/{store}/documents/{document}/content": {{path: "/v1/document-stores/manual/documents/{document}/content"}, {path: "/v1/document-stores/manual/documents/{document}/content", header: "Accept", value: "application/octet-stream"}, {path: "/apps/{app}/v1/document-stores/manual/documents/{document}/content"}},
	"PUT /v1/document-stores/{store}/documents/{document}":         {{path: "/v1/document-stores/manual/documents/{document}", body: emptyBody, header: "If-Match", value: "*"}, {path: "/v1/document-stores/{agent}/documents/{document}", body: emptyBody}, {path: "/apps/{app}/v1/document-stores/manual/documents/{document}", body: emptyBody}},
	"DELETE /v1/document-stores/{store}/documents/{document}":      {{path: "/v1/document-stores/manual/documents/{document}"}, {path: "/v1/document-stores/{agent}/documents/{document}"}, {path: "/apps/{app}/v1/document-stores/manual/documents/{document}"}},
	"GET /api/schema":                                         {{path: "/apps/{app}/api/schema"}},
	"GET /tasks":                                              {{path: "/tasks?context_id={context}"}, {path: "/tasks?agent={agent}"}, {path: "/tasks?page_token={cursor}"}, {path: "/apps/{app}/tasks"}},
	"GET /config":                                             {{path: "/apps/{app}/config"}},
	"GET /tasks/{task}":                                       {{path: "/tasks/{task}"}, {path: "/tasks/{held}?history_length=1"}, {path: "/apps/{app}/tasks/{task}"}},
	"GET /config/revisions":                                   {{path: "/apps/{app}/config/revisions"}},
	"GET /config/revisions/{revision}":                        {{path: "/apps/{app}/config/revisions/1"}},
	"POST /config/revisions/{revision}:restore":               {{path: "/apps/{app}/config/revisions/1:restore"}},
	"GET /secrets":                                            {{path: "/apps/{app}/secrets"}},
	"PUT /secrets/{name}":                                     {{path: "/apps/{app}/secrets/SEALED", body: func(appIDs) any { return map[string]any{"value": "mine now"} }}},
	"DELETE /secrets/{name}":                                  {{path: "/apps/{app}/secrets/SEALED"}},
	"PUT /config":                                             {{path: "/apps/{app}/config", body: func(appIDs) any { return map[string]any{"agents": map[string]any{}} }}},
	"GET /triggers/{agent}/starts":                            {{path: "/apps/{app}/triggers/assistant/starts"}},
	"POST /triggers/{agent}:run":                              {{path: "/apps/{app}/triggers/assistant:run", body: nilBody}},
	"GET /triggers":                                           {{path: "/apps/{app}/triggers"}},
	"POST /webhooks/{webhook}":                                {{path: "/webhooks/{agent}", body: emptyBody}, {path: "/apps/{app}/webhooks/{agent}", body: emptyBody}},
	"PUT /webhooks/{webhook}":                                 {{path: "/webhooks/{agent}", body: emptyBody}, {path: "/apps/{app}/webhooks/{agent}", body: emptyBody}},
	"PATCH /webhooks/{webhook}":                               {{path: "/webhooks/{agent}", body: emptyBody}, {path: "/apps/{app}/webhooks/{agent}", body: emptyBody}},
	"DELETE /webhooks/{webhook}":                              {{path: "/webhooks/{agent}", body: emptyBody}, {path: "/apps/{app}/webhooks/{agent}", body: emptyBody}},
	"GET /webhooks/{webhook}":                                 {{path: "/webhooks/{agent}"}, {path: "/apps/{app}/webhooks/{agent}"}},
	"GET /memories":                                           {{path: "/memories?user={user}"}, {path: "/memories?user={user}&issuer=elsewhere"}, {path: "/apps/{app}/memories"}},
	"DELETE /memories":                                        {{path: "/memories?user={user}"}, {path: "/apps/{app}/memories?user={user}"}},
	"GET /caller":                                             {{path: "/apps/{app}/caller"}},
	"GET /credentials":                                        {{path: "/credentials"}, {path: "/apps/{app}/credentials"}},
	"DELETE /credentials/{tool}":                              {{path: "/credentials/{tool}"}, {path: "/apps/{app}/credentials/{tool}"}},
	"POST /tasks/{task}/approve":                              {{path: "/tasks/{held}/approve", body: emptyBody}, {path: "/tasks/{held}/approve", body: newDecisionBody}, {path: "/tasks/{task}/approve"}, {path: "/tasks/{wanting}/approve"}, {path: "/apps/{app}/tasks/{held}/approve"}},
	"GET /tasks/{task}/log":                                   {{path: "/tasks/{task}/log"}, {path: "/tasks/{held}/log?after=1&page_size=10"}, {path: "/apps/{app}/tasks/{task}/log"}},
	"GET /tasks/{task}/checkpoints":                           {{path: "/tasks/{task}/checkpoints"}, {path: "/apps/{app}/tasks/{task}/checkpoints"}},
	"GET /tasks/{task}/notifications":                         {{path: "/tasks/{task}/notifications"}, {path: "/apps/{app}/tasks/{task}/notifications"}},
	"POST /tasks/{task}/checkpoints/{checkpoint}:restore":     {{path: "/tasks/{task}/checkpoints/2:restore"}, {path: "/tasks/{task}/checkpoints/2:restore", body: emptyBody}, {path: "/apps/{app}/tasks/{task}/checkpoints/2:restore"}},
	"POST /tasks/{task}/cancel":                               {{path: "/tasks/{task}/cancel"}, {path: "/tasks/{held}/cancel", body: emptyBody}, {path: "/apps/{app}/tasks/{task}/cancel"}},
	"POST /tasks/{task}/reject":                               {{path: "/tasks/{held}/reject", body: emptyBody}, {path: "/tasks/{held}/reject", body: newDecisionBody}, {path: "/tasks/{task}/reject"}, {path: "/apps/{app}/tasks/{held}/reject"}},
	"POST /api/tasks/{task}/toolCalls/{call}/cancel":          {{path: "/api/tasks/{held}/toolCalls/{call}/cancel"}, {path: "/api/tasks/{task}/toolCalls/{call}/cancel", body: emptyBody}, {path: "/apps/{app}/api/tasks/{held}/toolCalls/{call}/cancel"}},
	"POST /admin/apps":                                        {{path: "/admin/apps", body: func(x appIDs) any { return map[string]any{"name": x.app, "config": "{}"} }}},
	"GET /admin/apps":                                         {{path: "/admin/apps"}},
	"GET /admin/apps/{app}":                                   {{path: "/admin/apps/{app}"}},
	"PUT /admin/apps/{app}":                                   {{path: "/admin/apps/{app}", body: func(appIDs) any { return map[string]any{"display_name": "stolen"} }}},
	"PATCH /admin/apps/{app}":                                 {{path: "/admin/apps/{app}", body: func(appIDs) any { return map[string]any{"display_name": "stolen"} }}},
	"DELETE /admin/apps/{app}":                                {{path: "/admin/apps/{app}"}},
	"POST /admin/apps/{app}:suspend":                          {{path: "/admin/apps/{app}:suspend", body: emptyBody}},
	"POST /admin/apps/{app}:resume":                           {{path: "/admin/apps/{app}:resume", body: emptyBody}},
	"GET /admin/apps/{app}/revisions":                         {{path: "/admin/apps/{app}/revisions"}},
	"POST /admin/apps/{app}/revisions/{revision}:restore":     {{path: "/admin/apps/{app}/revisions/1:restore", body: emptyBody}},
	"GET /admin/apps/{app}/secrets":                           {{path: "/admin/apps/{app}/secrets"}},
	"PUT /admin/apps/{app}/secrets/{name}":                    {{path: "/admin/apps/{app}/secrets/KEY", body: func(appIDs) any { return map[string]any{"value": "v"} }}},
	"DELETE /admin/apps/{app}/secrets/{name}":                 {{path: "/admin/apps/{app}/secrets/KEY"}},
	"POST /admin/apps/{app}/tokens":                           {{path: "/admin/apps/{app}/tokens", body: func(appIDs) any { return map[string]any{"sub": "mallory"} }}},
	"POST /admin/apps/{app}/tokens:revoke":                    {{path: "/admin/apps/{app}/tokens:revoke", body: emptyBody}},
	"GET /admin/apps/{app}/keys":                              {{path: "/admin/apps/{app}/keys"}},
	"POST /admin/apps/{app}/keys":                             {{path: "/admin/apps/{app}/keys", body: func(appIDs) any { return map[string]any{"name": "mine"} }}},
	"GET /admin/apps/{app}/revisions/{revision}":              {{path: "/admin/apps/{app}/revisions/1"}},
	"GET /admin/apps/{app}/keys/{key}":                        {{path: "/admin/apps/{app}/keys/{key}"}},
	"GET /admin/apps/{app}/roles/{role}":                      {{path: "/admin/apps/{app}/roles/desk"}},
	"POST /admin/apps/{app}/keys/{key}:rotate":                {{path: "/admin/apps/{app}/keys/{key}:rotate", body: emptyBody}},
	"DELETE /admin/apps/{app}/keys/{key}":                     {{path: "/admin/apps/{app}/keys/{key}"}},
	"GET /admin/apps/{app}/tools":                             {{path: "/admin/apps/{app}/tools"}},
	"POST /admin/apps/{app}/tools/{mcp_server}/{tool}:accept": {{path: "/admin/apps/{app}/tools/shop/echo:accept", body: func(appIDs) any { return map[string]any{"hash": "x"} }}},
	"GET /admin/apps/{app}/roles":                             {{path: "/admin/apps/{app}/roles"}},
	"POST /admin/apps/{app}/roles":                            {{path: "/admin/apps/{app}/roles", body: func(appIDs) any { return map[string]any{"name": "thief", "scopes": []string{"tasks:read"}} }}},
	"PUT /admin/apps/{app}/roles/{role}":                      {{path: "/admin/apps/{app}/roles/desk", body: func(appIDs) any { return map[string]any{"scopes": []string{"tasks:read"}} }}},
	"DELETE /admin/apps/{app}/roles/{role}":                   {{path: "/admin/apps/{app}/roles/desk"}},
	"GET /admin/apps/{app}/authz/explain":                     {{path: "/admin/apps/{app}/authz/explain?subject=ana&action=tasks:read"}},
	"GET /admin/queue":                                        {{path: "/admin/queue"}},
	"GET /admin/processes":                                    {{path: "/admin/processes"}},
	"GET /admin/schema":                                       {{path: "/admin/schema"}},
	"GET /admin/traffic":                                      {{path: "/admin/traffic"}},
	"GET /admin/queue/dead":                                   {{path: "/admin/queue/dead?app={app}"}},
	"POST /admin/queue/dead:requeue":                          {{path: "/admin/queue/dead:requeue", body: emptyBody}},
	"POST /admin/queue/dead/{id}:requeue":                     {{path: "/admin/queue/dead/{task}.1:requeue", body: emptyBody}},
	"POST /admin/prices":                                      {{path: "/admin/prices", body: emptyBody}},
	"GET /admin/prices":                                       {{path: "/admin/prices"}},
	"GET /admin/prices/{version}":                             {{path: "/admin/prices/nosuch"}},
	"DELETE /admin/prices/{version}":                          {{path: "/admin/prices/nosuch"}},
	"POST /admin/plans":                                       {{path: "/admin/plans", body: emptyBody}},
	"GET /admin/plans":                                        {{path: "/admin/plans"}},
	"GET /admin/plans/{plan}":                                 {{path: "/admin/plans/pro"}},
	"PUT /admin/plans/{plan}":                                 {{path: "/admin/plans/pro", body: emptyBody}},
	"POST /admin/budgets":                                     {{path: "/admin/budgets", body: emptyBody}},
	"GET /admin/budgets":                                      {{path: "/admin/budgets"}},
	"GET /admin/budgets/{budget}":                             {{path: "/admin/budgets/cap"}},
	"GET /admin/apps/{app}/budgets/{budget}":                  {{path: "/admin/apps/{app}/budgets/cap"}},
	"GET /billing/budgets/{budget}":                           {{path: "/billing/budgets/nosuch"}, {path: "/apps/{app}/billing/budgets/cap"}},
	"GET /admin/apps/{app}/credits/{credit}":                  {{path: "/admin/apps/{app}/credits/{task}"}},
	"PUT /admin/budgets/{budget}":                             {{path: "/admin/budgets/cap", body: emptyBody}},
	"DELETE /admin/budgets/{budget}":                          {{path: "/admin/budgets/cap"}},
	"POST /admin/apps/{app}/budgets":                          {{path: "/admin/apps/{app}/budgets", body: emptyBody}},
	"GET /admin/apps/{app}/budgets":                           {{path: "/admin/apps/{app}/budgets"}},
	"PUT /admin/apps/{app}/budgets/{budget}":                  {{path: "/admin/apps/{app}/budgets/cap", body: emptyBody}},
	"DELETE /admin/apps/{app}/budgets/{budget}":               {{path: "/admin/apps/{app}/budgets/cap"}},
	"GET /admin/apps/{app}/usage":                             {{path: "/admin/apps/{app}/usage"}},
	"GET /billing/usage":                                      {{path: "/apps/{app}/billing/usage"}, {path: "/billing/usage?from=2026-01-01&to=2026-01-02&group_by=agent,user"}},
	"POST /admin/apps/{app}/credits":                          {{path: "/admin/apps/{app}/credits", body: func(appIDs) any { return map[string]any{"amount": 1} }}},
	"GET /admin/apps/{app}/credits":                           {{path: "/admin/apps/{app}/credits"}},
	"DELETE /admin/apps/{app}/credits/{credit}":               {{path: "/admin/apps/{app}/credits/{task}"}},
	"GET /admin/apps/{app}/ledger":                            {{path: "/admin/apps/{app}/ledger"}},
	"GET /admin/apps/{app}/invoices":                          {{path: "/admin/apps/{app}/invoices"}},
	"GET /admin/apps/{app}/invoices/{invoice}":                {{path: "/admin/apps/{app}/invoices/{invoice}"}, {path: "/admin/apps/{app}/invoices/{invoice}.csv"}},
	"POST /admin/apps/{app}/invoices/{invoice}:finalize":      {{path: "/admin/apps/{app}/invoices/{invoice}:finalize"}},
	"POST /admin/apps/{app}/invoices/{invoice}:reverse":       {{path: "/admin/apps/{app}/invoices/{invoice}:reverse"}},
	"POST /admin/apps/{app}/invoices/{invoice}:reissue":       {{path: "/admin/apps/{app}/invoices/{invoice}:reissue"}},
	"GET /admin/apps/{app}/buyer":                             {{path: "/admin/apps/{app}/buyer"}},
	"PUT /admin/apps/{app}/buyer":                             {{path: "/admin/apps/{app}/buyer", body: func(appIDs) any { return map[string]any{"name": "Mallory"} }}},
	"GET /admin/seller":                                       {{path: "/admin/seller"}},
	"PUT /admin/seller":                                       {{path: "/admin/seller", body: func(appIDs) any { return map[string]any{"name": "Mallory"} }}},
	"GET /admin/invoices":                                     {{path: "/admin/invoices"}, {path: "/admin/invoices?status=draft"}},
	"GET /admin/usage":                                        {{path: "/admin/usage"}},
	"GET /admin/exports":                                      {{path: "/admin/exports"}},
	"GET /billing/invoices":                                   {{path: "/billing/invoices"}, {path: "/apps/{app}/billing/invoices"}},
	"GET /billing/invoices/{invoice}":                         {{path: "/billing/invoices/{invoice}"}, {path: "/billing/invoices/{invoice}.html"}, {path: "/apps/{app}/billing/invoices/{invoice}"}},
	"GET /billing/budgets":                                    {{path: "/billing/budgets"}, {path: "/apps/{app}/billing/budgets"}},
	"GET /admin/apps/{app}/export":                            {{path: "/admin/apps/{app}/export"}},
	"POST /admin/apps:import":                                 {{path: "/admin/apps:import"}},
	"GET /admin/audit/export":                                 {{path: "/admin/audit/export?app={app}"}},
	"GET /admin/audit":                                        {{path: "/admin/audit?app={app}"}},
}

// newSearchBody returns a search that names a document and what only its owner may read of it.
func newSearchBody(x appIDs) any { return map[string]any{"query": x.document + " a secret"} }

func emptyBody(appIDs) any { return map[string]any{} }

func newDecisionBody(x appIDs) any { return map[string]any{"call_id": x.callID} }

// newDecisionMessage returns the params of a message with a decision about a tool call.
func newDecisionMessage(x appIDs) any {
	return map[string]any{"message": map[string]any{"role": "user", "task_id": x.approvalTask, "parts": []any{map[string]any{"type": "data", "data": newDecisionData(x)}}}}
}

func newDecisionData(x appIDs) any {
	return map[string]any{"type": "tool_approval", "call_id": x.callID, "decision": "approve"}
}

// newCredentialMessage returns the params of a message with a credential.
func newCredentialMessage(x appIDs) any {
	value := newCredentialData("locked", "mine now")
	return map[string]any{"message": map[string]any{"role": "user", "task_id": x.credentialTask, "parts": []any{map[string]any{"type": "data", "data": value}}}}
}

func newCredentialData(tool, value string) any {
	return map[string]any{"type": "tool_credential", "tool": tool, "value": value}
}

// rpcProbes has the same for each JSON-RPC method of the extension surface.
var rpcProbes = map[string][]func(x appIDs) any{
	"message:send":                  {func(x appIDs) any { return newTextMessage("mine now", "task_id", x.task) }, func(x appIDs) any { return newTextMessage("recall", "context_id", x.context) }, func(x appIDs) any { return newTextMessage("hello", "message_id", x.message, "context_id", x.context) }, newDecisionMessage, newCredentialMessage},
	"message:stream":                {newDecisionMessage, newCredentialMessage, func(x appIDs) any { return newTextMessage("mine now", "task_id", x.task) }, func(x appIDs) any { return newTextMessage("recall", "context_id", x.context) }},
	"tasks/get":                     {func(x appIDs) any { return map[string]any{"id": x.task} }, func(x appIDs) any { return map[string]any{"task_id": x.task} }, func(x appIDs) any { return map[string]any{"id": x.task, "tenant": x.app} }},
	"tasks/list":                    {func(x appIDs) any { return map[string]any{"context_id": x.context} }, func(x appIDs) any { return map[string]any{"page_token": x.cursor} }},
	"tasks/cancel":                  {func(x appIDs) any { return map[string]any{"id": x.task} }},
	"tasks/subscribe":               {func(x appIDs) any { return map[string]any{"id": x.task} }, func(x appIDs) any { return map[string]any{"id": x.task, "after": 0} }},
	"tasks/pushNotificationConfig/": {func(x appIDs) any { return map[string]any{"id": x.task} }},
}

const tenantConfig = `
llms: {m: {provider: scripted, script: [{when: {text: "^ask$"}, then: [{ask: "what?"}]}, {when: {text: "^unlock locked$"}, then: [{call: {tool: locked, arguments: {url: "http://127.0.0.1:9"}}}]}, {when: {text: "^unlock open$"}, then: [{call: {tool: open, arguments: {url: "http://127.0.0.1:9"}}}]}, {when: {text: "^sum$"}, then: [{call: {tool: calc, arguments: {expression: "1+1"}}}]}, {then: [{say: "You said: {{text}}"}]}]}}
tools:
  calc: {type: function, handler: calculator, require_approval: true}
  locked: {type: function, handler: http_request, credential: {url: "http://127.0.0.1:9"}}
  open: {type: function, handler: http_request, credential: {url: "http://127.0.0.1:9"}}
agents: {assistant: {llm: m, tools: [calc, locked, open]}, %[1]s: {llm: m, visibility: internal}}
document_stores: {manual: {source: {type: upload}}, %[1]s: {source: {type: upload}}}
`

// TestIsolation tries every route and every JSON-RPC method with every kind of id of a tenant, as another tenant and
// as another user of the same tenant. The response must be the one for an id that never existed, and nothing of the
// tenant may change.
func TestIsolation(t *testing.T) {
	t.Parallel()
	onEachEngineWith(t, "../../examples/notifications.yaml", func(t *testing.T, h *testServer) {
		for _, name := range []string{"acme", "globex"} {
			src := fmt.Sprintf(tenantConfig, name+"only")
			h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": name, "config": src, "secrets": map[string]string{"SEALED": "canary of " + name}})
		}
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps/acme/budgets", testSecret, map[string]any{"name": "cap", "scope": map[string]any{"user": "ana"}, "unit": "calls", "amount": 1000, "window": "day", "hard": true})
		ana := h.createToken(t, "acme", "ana", nil)
		x := h.createAppIDs(t, ana)
		before := h.dumpAppRows(t, "acme")
		if len(before) < 10 {
			t.Fatalf("only %d rows to guard", len(before))
		}
		walkers := []struct {
			name, token string
			adds        bool   // the caller's own calls add rows to the app
			from        appIDs // the ids to try
		}{
			{"another tenant", h.createToken(t, "globex", "ana", map[string]any{"roles": []string{"admin"}}), false, x},
			{"another tenant's key", h.createAPIKey(t, "globex", map[string]any{"roles": []string{"admin"}}).Key, false, x},
			{"another user", h.createToken(t, "acme", "eve", nil), true, appIDs{app: unknownIDs.app, agent: unknownIDs.agent, task: x.task, context: x.context, message: x.message, cursor: x.cursor, approvalTask: x.approvalTask, callID: x.callID, user: x.user, credentialTask: x.credentialTask, tool: x.tool, key: x.key, invoice: x.invoice, document: x.document}},
		}
		for _, w := range walkers {
			t.Run(w.name, func(t *testing.T) {
				frontend, err := h.NewFrontend(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})
				if err != nil {
					t.Fatal(err)
				}
				for _, route := range frontend.Routes() {
					key := route.Method + " " + route.Pattern
					probes, ok := routeProbes[key]
					if !ok {
						t.Errorf("%s: the isolation proof has no row for this route", key)
					}
					for _, probe := range probes {
						h.requireIsolated(t, w.token, route.Method, probe, w.from)
					}
				}
				for _, method := range listRPCMethods(t, "../../agentsvc/surface/ext/message.go") {
					if _, ok := rpcProbes[strings.Replace(method, "message/", "message:", 1)]; !ok {
						t.Errorf("%s: the isolation proof has no row for this method", method)
					}
					for _, params := range rpcProbes[strings.Replace(method, "message/", "message:", 1)] {
						name := strings.TrimSuffix(method, "/")
						for _, path := range []string{"/agents/assistant", "/agents/{agent}", "/apps/{app}/agents/assistant"} {
							h.requireIsolated(t, w.token, "POST", isolationProbe{path: path, body: func(x appIDs) any { return newRPCCall(name, params(x)) }}, w.from)
							h.requireIsolated(t, w.token, "POST", isolationProbe{path: path, lastEventID: "1", body: func(x appIDs) any { return newRPCCall(name, params(x)) }}, w.from)
						}
					}
				}
				h.probeWebSocket(t, w.token, w.from)
				h.probeGRPC(t, w.token, w.from)
				h.probeA2A(t, w.token, w.from)
				h.probeMCP(t, w.token, w.from)
				after := h.dumpAppRows(t, "acme")
				for _, row := range before {
					if !slices.Contains(after, row) {
						t.Errorf("this row was changed or lost: %q", row)
					}
				}
				if !w.adds && len(after) != len(before) {
					t.Errorf("%d rows were added", len(after)-len(before))
				}
			})
		}
	})
}

// createAppIDs creates data of every kind as user ana: a waiting task, an ended one, a session, a page token.
func (ts *testServer) createAppIDs(t *testing.T, ana string) appIDs {
	t.Helper()
	x := appIDs{app: "acme", agent: "acmeonly", message: "m-ana"}
	var out struct {
		Result struct {
			TaskID    string `json:"task_id"`
			ContextID string `json:"context_id"`
			Status    struct{ State string }
		}
	}
	ts.requireStatus(t, http.StatusOK, &out, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("ask", "message_id", x.message)))
	if out.Result.Status.State != "input_required" {
		t.Fatalf("the task of ana is %s, want one that waits", out.Result.Status.State)
	}
	x.task, x.context = out.Result.TaskID, out.Result.ContextID
	x.approvalTask, x.callID = ts.createApprovalTask(t, ana)
	x.credentialTask, x.tool = ts.createCredentialTask(t, ana), "open"
	ts.addChangedTool(t, x.app)
	x.document = ts.addDocument(t, x.app)
	x.user = ts.addMemory(t, x.app)
	x.key = ts.createAPIKey(t, x.app, nil).ID
	ts.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("a secret", "context_id", x.context)))
	var list struct {
		Result struct {
			Next string `json:"next_page_token"`
		}
	}
	ts.requireStatus(t, http.StatusOK, &list, "POST", "/agents/assistant", ana, newRPCCall("tasks/list", map[string]any{"page_size": 1}))
	if x.cursor = list.Result.Next; x.cursor == "" {
		t.Fatal("there is no second page to have a token of")
	}
	x.invoice = ts.finalizeInvoice(t, x.app)
	ts.addFailedReceiver(t, ana, x)
	return x
}

// addFailedReceiver adds a notification receiver that has failed for good to the waiting task.
func (ts *testServer) addFailedReceiver(t *testing.T, ana string, x appIDs) {
	t.Helper()
	config := map[string]any{"id": x.task, "url": "https://127.0.0.1:9"}
	ts.requireStatus(t, http.StatusOK, nil, "POST", "/a2a/assistant/tasks/"+x.task+"/pushNotificationConfigs", ana, config)
	ts.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("ask", "task_id", x.task)))
	dbtest.WaitUntil(t, "the address is given up", func() bool {
		at := ts.getNotification(t, ana, x.task)
		return at.Status == "dead" && at.Error == `the address of "127.0.0.1" is not allowed: only public addresses may be called`
	})
}

// finalizeInvoice creates a final invoice.
func (ts *testServer) finalizeInvoice(t *testing.T, app string) string {
	t.Helper()
	var list struct{ Invoices []struct{ ID string } }
	ts.requireStatus(t, http.StatusOK, &list, "GET", "/admin/apps/"+app+"/invoices", testSecret, nil)
	if len(list.Invoices) == 0 {
		t.Fatal("there is no draft of what was used")
	}
	ts.requireStatus(t, http.StatusOK, nil, "POST", "/admin/apps/"+app+"/invoices/"+list.Invoices[0].ID+":finalize", testSecret, map[string]any{"force": true, "allow_unpriced": true})
	return list.Invoices[0].ID
}

// createApprovalTask creates a task of ana whose tool call waits for a decision.
func (ts *testServer) createApprovalTask(t *testing.T, ana string) (id, call string) {
	t.Helper()
	ts.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("sum")))
	var list struct {
		Tasks []struct {
			TaskID    string `json:"task_id"`
			Approvals []struct {
				CallID string `json:"call_id"`
			}
		}
	}
	ts.requireStatus(t, http.StatusOK, &list, "GET", "/tasks?status=input_required", ana, nil)
	for _, t := range list.Tasks {
		if len(t.Approvals) == 1 {
			return t.TaskID, t.Approvals[0].CallID
		}
	}
	t.Fatal("no task of ana waits for a decision")
	return "", ""
}

// createCredentialTask creates a task of ana that waits for a credential, and a stored credential of hers for the
// tool open.
func (ts *testServer) createCredentialTask(t *testing.T, ana string) (waiting string) {
	t.Helper()
	for _, tool := range []string{"locked", "open"} {
		var out struct {
			Result struct {
				TaskID string `json:"task_id"`
				Status struct{ State string }
			}
		}
		ts.requireStatus(t, http.StatusOK, &out, "POST", "/agents/assistant", ana, newRPCCall("message:send", newTextMessage("unlock "+tool)))
		if out.Result.Status.State != "auth_required" {
			t.Fatalf("the task is %s, want one that waits for a credential", out.Result.Status.State)
		}
		if tool == "locked" {
			waiting = out.Result.TaskID
			continue
		}
		value := map[string]any{"type": "tool_credential", "tool": tool, "value": "ana's own"}
		parts := []any{map[string]any{"type": "data", "data": value}}
		ts.requireStatus(t, http.StatusOK, nil, "POST", "/agents/assistant", ana, newRPCCall("message:send",
			map[string]any{"message": map[string]any{"role": "user", "task_id": out.Result.TaskID, "parts": parts}}))
	}
	return waiting
}

// requireIsolated tries the ids and ids that never existed, and requires the same response.
func (ts *testServer) requireIsolated(t *testing.T, token, method string, probe isolationProbe, x appIDs) {
	t.Helper()
	if probe.body == nil {
		probe.body = nilBody
	}
	theirs, none := ts.sendProbe(t, token, method, probe, x), ts.sendProbe(t, token, method, probe, unknownIDs)
	if theirs != none {
		t.Errorf("%s %s: their id answers\n%s\none that never existed\n%s", method, probe.path, theirs, none)
	}
}

func (ts *testServer) sendProbe(t *testing.T, token, method string, probe isolationProbe, x appIDs) string {
	t.Helper()
	req := ts.newRequest(t, method, x.replaceIDs(probe.path), token, probe.body(x))
	if probe.lastEventID != "" {
		req.Header.Set("Last-Event-ID", probe.lastEventID)
	}
	if probe.header != "" {
		req.Header.Set(probe.header, x.replaceIDs(probe.value))
	}
	status, body := ts.sendRequest(t, req)
	return fmt.Sprintf("%d %s", status, normalizeAnswer(body, x))
}

var (
	chunkLines    = regexp.MustCompile(`(?m)^data: .*("state":"working","message":|TASK_STATE_WORKING|"kind":"status-update").*\n\n|^(event: message\n)?data: \{"(msg|response)":.*\n\n`) // text may come in one piece or in several
	requestIDForm = regexp.MustCompile(`"request_id":"[^"]*"`)
	uuidForm      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[78][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
	timeForm      = regexp.MustCompile(`"timestamp":"[^"]*"|"execution_time":[0-9.e-]+|"(total_size|input|total)":[0-9]+`)
)

// normalizeAnswer removes from a response what differs from call to call and what the caller sent itself.
func normalizeAnswer(body string, x appIDs) string {
	for _, specific := range []string{x.task, x.context, x.message, x.cursor, x.approvalTask, x.callID, x.credentialTask, x.key, x.document, x.agent, x.app} {
		body = strings.ReplaceAll(body, specific, "ID")
	}
	if strings.Contains(body, "data: ") {
		body = chunkLines.ReplaceAllString(body, "")
	}
	body = requestIDForm.ReplaceAllString(body, "REQUEST")
	body = uuidForm.ReplaceAllString(body, "ID")
	return timeForm.ReplaceAllString(body, "TIME")
}

// listRPCMethods reads the names of JSON-RPC methods from a protocol's source, so that a new method without a probe
// fails the test.
func listRPCMethods(t *testing.T, file string) []string {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`"((?:message|tasks|agent)[:/][A-Za-z/]+)"`).FindAllStringSubmatch(string(src), -1)
	var names []string
	for _, m := range found {
		if !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	if len(names) < 8 {
		t.Fatalf("only %v found in %s", names, file)
	}
	return names
}

// addMemory adds a memory of a user and returns the user's name.
func (ts *testServer) addMemory(t *testing.T, app string) (user string) {
	t.Helper()
	id, err := ts.apps.FindAppID(t.Context(), app)
	if err != nil {
		t.Fatal(err)
	}
	zoe := memory.Memory{Owner: agentsvc.Owner{Issuer: "stoa", Subject: "zoe"}, Agent: "assistant", Role: agentsvc.RoleUser, Text: "a secret"}
	if err := memory.New(ts.db, id).AddMemories(t.Context(), zoe); err != nil {
		t.Fatal(err)
	}
	return zoe.Owner.Subject
}

// addDocument uploads a document that ana alone may read.
func (ts *testServer) addDocument(t *testing.T, app string) (id string) {
	t.Helper()
	id = "secret-of-ana"
	developer := ts.createToken(t, app, "dev", map[string]any{"roles": []string{"developer"}})
	req := ts.newRequest(t, "PUT", "/v1/document-stores/manual/documents/"+id, developer, map[string]any{"text": "a secret"})
	req.Header.Set("X-Document-Access", `{"subjects": ["ana"]}`)
	if status, body := ts.sendRequest(t, req); status != http.StatusAccepted {
		t.Fatal(status, body)
	}
	// Its indexing would change the rows that are guarded.
	dbtest.WaitUntil(t, "the document is indexed", func() bool {
		var d struct{ State string }
		ts.requireStatus(t, http.StatusOK, &d, "GET", "/v1/document-stores/manual/documents/"+id, developer, nil)
		return d.State == "indexed"
	})
	return id
}

// addChangedTool adds a tool of an MCP server that has changed since it was first used.
func (ts *testServer) addChangedTool(t *testing.T, app string) {
	t.Helper()
	id, err := ts.apps.FindAppID(t.Context(), app)
	if err != nil {
		t.Fatal(err)
	}
	for _, hash := range []string{"then", "x"} {
		if _, err := toolpin.New(ts.db, id).Update(t.Context(), "shop", []toolpin.Definition{{Tool: "echo", Hash: hash, Body: "{}"}}); err != nil {
			t.Fatal(err)
		}
	}
}

// dumpAppRows returns everything in the database of an app, one text for each row.
func (ts *testServer) dumpAppRows(t *testing.T, app string) (rows []string) {
	t.Helper()
	id, err := ts.apps.FindAppID(t.Context(), app)
	if err != nil {
		t.Fatal(err)
	}
	err = ts.db.ChangeSchema(t.Context(), "", func(s *sql.DB) error {
		for _, table := range listTenantTables(t, s, ts.db.Engine()) {
			for _, row := range queryRows(t, s, "SELECT * FROM "+table+" WHERE tenant = $1", string(id)) {
				rows = append(rows, table+": "+row)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func listTenantTables(t *testing.T, s *sql.DB, engine db.Engine) (names []string) {
	t.Helper()
	q := `SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relkind = 'r' AND a.attname = 'tenant' ORDER BY 1`
	if engine == db.SQLite {
		q = `SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND c.name = 'tenant' ORDER BY 1`
	}
	names = queryRows(t, s, q)
	if len(names) < 5 {
		t.Fatalf("tenant tables: %v", names)
	}
	return names
}

// queryRows returns each selected row as one text.
func queryRows(t *testing.T, s *sql.DB, q string, args ...any) (lines []string) {
	t.Helper()
	rows, err := s.QueryContext(t.Context(), q, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values := make([]any, len(columns))
		dest := make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		line := make([]string, len(values))
		for i, v := range values {
			if raw, ok := v.([]byte); ok {
				v = string(raw)
			}
			line[i] = fmt.Sprint(v)
		}
		lines = append(lines, strings.Join(line, "|"))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}
