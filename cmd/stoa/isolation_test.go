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
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// minted is what an app's users have that strangers might name: each field is an id, or a name only that app knows.
type minted struct {
	app, agent, task, context, message, cursor string
	held, call                                 string // a task whose tool call waits for a decision
	user                                       string // of whom something is remembered
	wanting, tool                              string // a task that waits for a credential, and a tool that one is kept for
	key                                        string // the id of an API key
	invoice                                    string
}

// nobody's ids never existed.
var nobody = minted{
	app: "nosuchapp", agent: "nosuchagent", task: "01a00000-0000-7000-8000-000000000000", context: "01a00000-0000-7000-8000-000000000001",
	message: "nosuchmessage", cursor: "bm9zdWNoY3Vyc29ybm9zdWNoY3Vyc29y",
	held: "01a00000-0000-7000-8000-000000000002", call: "call_000000000000000000000000", user: "nosuchuser",
	wanting: "01a00000-0000-7000-8000-000000000003", tool: "nosuchtool", key: "nosuchkeyaaa",
	invoice: "1999-01",
}

// trespass is one way to use an id of somebody else.
type trespass struct {
	path string
	body func(x minted) any
	id   string // Last-Event-ID

	header, value string // another one, "" = none
}

// on makes a path with what the ids are.
func (x minted) on(path string) string {
	return strings.NewReplacer("{app}", x.app, "{agent}", x.agent, "{task}", x.task, "{context}", x.context, "{cursor}", x.cursor,
		"{held}", x.held, "{call}", x.call, "{user}", x.user, "{tool}", x.tool, "{wanting}", x.wanting, "{key}", x.key,
		"{invoice}", x.invoice, "{config}", x.task).Replace(path)
}

// noBody is for routes that read none.
func noBody(minted) any { return nil }

// routeWalks says for each route how a stranger would try it. A route without a row fails the test. Rows that name
// no id stand for routes that take none.
var routeWalks = map[string][]trespass{
	"GET /health":                      {{path: "/health"}},
	"GET /ready":                       {{path: "/ready"}},
	"GET /metrics":                     {{path: "/metrics/{app}"}},
	"GET /.well-known/jwks.json":       {{path: "/.well-known/jwks.json"}},
	"GET /.well-known/card-keys.json":  {{path: "/.well-known/card-keys.json"}},
	"GET /.well-known/agent-card.json": {{path: "/apps/{app}/.well-known/agent-card.json"}},
	"GET /agents":                      {{path: "/apps/{app}/agents"}},
	"GET /agents/{agent}":              {{path: "/agents/{agent}"}, {path: "/apps/{app}/agents/{agent}"}},
	"GET /agents/{agent}/.well-known/agent-card.json":     {{path: "/agents/{agent}/.well-known/agent-card.json"}, {path: "/apps/{app}/agents/{agent}/.well-known/agent-card.json"}},
	"POST /agents/{agent}":                                nil, // rpcWalks
	"GET /v1/agents":                                      {{path: "/apps/{app}/v1/agents"}},
	"GET /v1/agents/{agent}/.well-known/agent-card.json":  {{path: "/v1/agents/{agent}/.well-known/agent-card.json"}, {path: "/apps/{app}/v1/agents/{agent}/.well-known/agent-card.json"}},
	"POST /v1/agents/{agent}/message:send":                sendWalks("/v1/agents/assistant/message:send", "/v1/agents/{agent}/message:send", "/apps/{app}/v1/agents/assistant/message:send"),
	"POST /v1/agents/{agent}/message:stream":              sendWalks("/v1/agents/assistant/message:stream", "/v1/agents/assistant/message:stream?format=response", "/v1/agents/{agent}/message:stream", "/apps/{app}/v1/agents/assistant/message:stream"),
	"POST /v1/message:send":                               sendWalks("/v1/message:send", "/apps/{app}/v1/message:send"),
	"POST /v1/agents/{agent}/tasks/{task}:cancel":         {{path: "/v1/agents/assistant/tasks/{task}:cancel"}, {path: "/v1/agents/{agent}/tasks/{task}:cancel"}, {path: "/apps/{app}/v1/agents/assistant/tasks/{task}:cancel"}},
	"GET /v1/agents/{agent}/tasks/{task}:subscribe":       {{path: "/v1/agents/assistant/tasks/{task}:subscribe"}, {path: "/v1/agents/assistant/tasks/{task}:subscribe?format=response&after=0"}, {path: "/v1/agents/assistant/tasks/{task}:subscribe", id: "1"}, {path: "/v1/agents/{agent}/tasks/{task}:subscribe"}, {path: "/apps/{app}/v1/agents/assistant/tasks/{task}:subscribe"}},
	"GET /v1/agents/{agent}/tasks":                        {{path: "/v1/agents/assistant/tasks?context_id={context}"}, {path: "/v1/agents/assistant/tasks?page_token={cursor}"}, {path: "/v1/agents/{agent}/tasks"}, {path: "/apps/{app}/v1/agents/assistant/tasks"}},
	"GET /v1/agents/{agent}/tasks/{task}":                 {{path: "/v1/agents/assistant/tasks/{task}?include_artifacts=true"}, {path: "/v1/agents/{agent}/tasks/{task}"}, {path: "/apps/{app}/v1/agents/assistant/tasks/{task}"}},
	"GET /v1/agents/{agent}/stream":                       {{path: "/v1/agents/{agent}/stream"}, {path: "/apps/{app}/v1/agents/assistant/stream"}}, // and socketWalks
	"GET /api/schema":                                     {{path: "/apps/{app}/api/schema"}},
	"GET /tasks":                                          {{path: "/tasks?context_id={context}"}, {path: "/tasks?agent={agent}"}, {path: "/tasks?page_token={cursor}"}, {path: "/apps/{app}/tasks"}},
	"GET /triggers":                                       {{path: "/apps/{app}/triggers"}},
	"POST /webhooks/{webhook}":                            {{path: "/webhooks/{agent}", body: emptyBody}, {path: "/apps/{app}/webhooks/{agent}", body: emptyBody}},
	"PUT /webhooks/{webhook}":                             {{path: "/webhooks/{agent}", body: emptyBody}, {path: "/apps/{app}/webhooks/{agent}", body: emptyBody}},
	"PATCH /webhooks/{webhook}":                           {{path: "/webhooks/{agent}", body: emptyBody}, {path: "/apps/{app}/webhooks/{agent}", body: emptyBody}},
	"GET /memories":                                       {{path: "/memories?user={user}"}, {path: "/memories?user={user}&issuer=elsewhere"}, {path: "/apps/{app}/memories"}},
	"DELETE /memories":                                    {{path: "/memories?user={user}"}, {path: "/apps/{app}/memories?user={user}"}},
	"GET /credentials":                                    {{path: "/credentials"}, {path: "/apps/{app}/credentials"}},
	"DELETE /credentials/{tool}":                          {{path: "/credentials/{tool}"}, {path: "/apps/{app}/credentials/{tool}"}},
	"POST /tasks/{task}/approve":                          {{path: "/tasks/{held}/approve", body: emptyBody}, {path: "/tasks/{held}/approve", body: decided}, {path: "/tasks/{task}/approve"}, {path: "/tasks/{wanting}/approve"}, {path: "/apps/{app}/tasks/{held}/approve"}},
	"GET /tasks/{task}/checkpoints":                       {{path: "/tasks/{task}/checkpoints"}, {path: "/apps/{app}/tasks/{task}/checkpoints"}},
	"GET /tasks/{task}/notifications":                     {{path: "/tasks/{task}/notifications"}, {path: "/apps/{app}/tasks/{task}/notifications"}},
	"POST /tasks/{task}/checkpoints/{checkpoint}:restore": {{path: "/tasks/{task}/checkpoints/2:restore"}, {path: "/tasks/{task}/checkpoints/2:restore", body: emptyBody}, {path: "/apps/{app}/tasks/{task}/checkpoints/2:restore"}},
	"POST /tasks/{task}/reject":                           {{path: "/tasks/{held}/reject", body: emptyBody}, {path: "/tasks/{held}/reject", body: decided}, {path: "/tasks/{task}/reject"}, {path: "/apps/{app}/tasks/{held}/reject"}},
	"POST /api/tasks/{task}/toolCalls/{call}/cancel":      {{path: "/api/tasks/{held}/toolCalls/{call}/cancel"}, {path: "/api/tasks/{task}/toolCalls/{call}/cancel", body: emptyBody}, {path: "/apps/{app}/api/tasks/{held}/toolCalls/{call}/cancel"}},
	"POST /admin/apps":                                    {{path: "/admin/apps", body: func(x minted) any { return map[string]any{"name": x.app, "config": "{}"} }}},
	"GET /admin/apps":                                     {{path: "/admin/apps"}},
	"GET /admin/apps/{app}":                               {{path: "/admin/apps/{app}"}},
	"PUT /admin/apps/{app}":                               {{path: "/admin/apps/{app}", body: func(minted) any { return map[string]any{"display_name": "stolen"} }}},
	"DELETE /admin/apps/{app}":                            {{path: "/admin/apps/{app}"}},
	"POST /admin/apps/{app}:suspend":                      {{path: "/admin/apps/{app}:suspend", body: emptyBody}},
	"POST /admin/apps/{app}:resume":                       {{path: "/admin/apps/{app}:resume", body: emptyBody}},
	"GET /admin/apps/{app}/revisions":                     {{path: "/admin/apps/{app}/revisions"}},
	"POST /admin/apps/{app}/revisions/{revision}:restore": {{path: "/admin/apps/{app}/revisions/1:restore", body: emptyBody}},
	"GET /admin/apps/{app}/secrets":                       {{path: "/admin/apps/{app}/secrets"}},
	"PUT /admin/apps/{app}/secrets/{name}":                {{path: "/admin/apps/{app}/secrets/KEY", body: func(minted) any { return map[string]any{"value": "v"} }}},
	"DELETE /admin/apps/{app}/secrets/{name}":             {{path: "/admin/apps/{app}/secrets/KEY"}},
	"POST /admin/apps/{app}/tokens":                       {{path: "/admin/apps/{app}/tokens", body: func(minted) any { return map[string]any{"sub": "mallory"} }}},
	"POST /admin/apps/{app}/tokens:revoke":                {{path: "/admin/apps/{app}/tokens:revoke", body: emptyBody}},
	"GET /admin/apps/{app}/keys":                          {{path: "/admin/apps/{app}/keys"}},
	"POST /admin/apps/{app}/keys":                         {{path: "/admin/apps/{app}/keys", body: func(minted) any { return map[string]any{"name": "mine"} }}},
	"POST /admin/apps/{app}/keys/{key}:rotate":            {{path: "/admin/apps/{app}/keys/{key}:rotate", body: emptyBody}},
	"DELETE /admin/apps/{app}/keys/{key}":                 {{path: "/admin/apps/{app}/keys/{key}"}},
	"GET /admin/apps/{app}/tools":                         {{path: "/admin/apps/{app}/tools"}},
	"POST /admin/apps/{app}/tools/{server}/{tool}:accept": {{path: "/admin/apps/{app}/tools/shop/echo:accept", body: func(minted) any { return map[string]any{"hash": "x"} }}},
	"GET /admin/apps/{app}/roles":                         {{path: "/admin/apps/{app}/roles"}},
	"POST /admin/apps/{app}/roles":                        {{path: "/admin/apps/{app}/roles", body: func(minted) any { return map[string]any{"name": "thief", "scopes": []string{"tasks:read"}} }}},
	"PUT /admin/apps/{app}/roles/{role}":                  {{path: "/admin/apps/{app}/roles/desk", body: func(minted) any { return map[string]any{"scopes": []string{"tasks:read"}} }}},
	"DELETE /admin/apps/{app}/roles/{role}":               {{path: "/admin/apps/{app}/roles/desk"}},
	"GET /admin/apps/{app}/authz/explain":                 {{path: "/admin/apps/{app}/authz/explain?subject=ana&action=tasks:read"}},
	"GET /admin/queue":                                    {{path: "/admin/queue"}},
	"GET /admin/queue/dead":                               {{path: "/admin/queue/dead?app={app}"}},
	"POST /admin/queue/dead:requeue":                      {{path: "/admin/queue/dead:requeue", body: emptyBody}},
	"POST /admin/queue/dead/{id}:requeue":                 {{path: "/admin/queue/dead/{task}.1:requeue", body: emptyBody}},
	"POST /admin/prices":                                  {{path: "/admin/prices", body: emptyBody}},
	"GET /admin/prices":                                   {{path: "/admin/prices"}},
	"GET /admin/prices/{version}":                         {{path: "/admin/prices/nosuch"}},
	"DELETE /admin/prices/{version}":                      {{path: "/admin/prices/nosuch"}},
	"POST /admin/plans":                                   {{path: "/admin/plans", body: emptyBody}},
	"GET /admin/plans":                                    {{path: "/admin/plans"}},
	"GET /admin/plans/{plan}":                             {{path: "/admin/plans/pro"}},
	"PUT /admin/plans/{plan}":                             {{path: "/admin/plans/pro", body: emptyBody}},
	"POST /admin/budgets":                                 {{path: "/admin/budgets", body: emptyBody}},
	"GET /admin/budgets":                                  {{path: "/admin/budgets"}},
	"PUT /admin/budgets/{budget}":                         {{path: "/admin/budgets/cap", body: emptyBody}},
	"DELETE /admin/budgets/{budget}":                      {{path: "/admin/budgets/cap"}},
	"POST /admin/apps/{app}/budgets":                      {{path: "/admin/apps/{app}/budgets", body: emptyBody}},
	"GET /admin/apps/{app}/budgets":                       {{path: "/admin/apps/{app}/budgets"}},
	"PUT /admin/apps/{app}/budgets/{budget}":              {{path: "/admin/apps/{app}/budgets/cap", body: emptyBody}},
	"DELETE /admin/apps/{app}/budgets/{budget}":           {{path: "/admin/apps/{app}/budgets/cap"}},
	"GET /admin/apps/{app}/usage":                         {{path: "/admin/apps/{app}/usage"}},
	"GET /billing/usage":                                  {{path: "/apps/{app}/billing/usage"}, {path: "/billing/usage?from=2026-01-01&to=2026-01-02&group_by=agent,user"}},
	"POST /admin/apps/{app}/credits":                      {{path: "/admin/apps/{app}/credits", body: func(minted) any { return map[string]any{"amount": 1} }}},
	"GET /admin/apps/{app}/credits":                       {{path: "/admin/apps/{app}/credits"}},
	"DELETE /admin/apps/{app}/credits/{credit}":           {{path: "/admin/apps/{app}/credits/{task}"}},
	"GET /admin/apps/{app}/ledger":                        {{path: "/admin/apps/{app}/ledger"}},
	"GET /admin/apps/{app}/invoices":                      {{path: "/admin/apps/{app}/invoices"}},
	"GET /admin/apps/{app}/invoices/{invoice}":            {{path: "/admin/apps/{app}/invoices/{invoice}"}, {path: "/admin/apps/{app}/invoices/{invoice}.csv"}},
	"POST /admin/apps/{app}/invoices/{invoice}:finalize":  {{path: "/admin/apps/{app}/invoices/{invoice}:finalize"}},
	"POST /admin/apps/{app}/invoices/{invoice}:reverse":   {{path: "/admin/apps/{app}/invoices/{invoice}:reverse"}},
	"GET /admin/exports":                                  {{path: "/admin/exports"}},
	"GET /billing/invoices":                               {{path: "/billing/invoices"}, {path: "/apps/{app}/billing/invoices"}},
	"GET /billing/invoices/{invoice}":                     {{path: "/billing/invoices/{invoice}"}, {path: "/billing/invoices/{invoice}.html"}, {path: "/apps/{app}/billing/invoices/{invoice}"}},
	"GET /billing/budgets":                                {{path: "/billing/budgets"}, {path: "/apps/{app}/billing/budgets"}},
	"GET /admin/audit/export":                             {{path: "/admin/audit/export?app={app}"}},
	"GET /admin/audit":                                    {{path: "/admin/audit?app={app}"}},
}

func emptyBody(minted) any { return map[string]any{} }

func decided(x minted) any { return map[string]any{"call_id": x.call} }

// decision is the params of a message that decides on a tool call.
func decision(x minted) any {
	return map[string]any{"message": map[string]any{"role": "user", "task_id": x.held, "parts": []any{map[string]any{"type": "data", "data": ruling(x)}}}}
}

func ruling(x minted) any {
	return map[string]any{"type": "tool_approval", "call_id": x.call, "decision": "approve"}
}

// supplied is the params of a message that brings a credential.
func supplied(x minted) any {
	value := secretFor("locked", "mine now")
	return map[string]any{"message": map[string]any{"role": "user", "task_id": x.wanting, "parts": []any{map[string]any{"type": "data", "data": value}}}}
}

func secretFor(tool, value string) any {
	return map[string]any{"type": "tool_credential", "tool": tool, "value": value}
}

// rpcWalks says the same for each JSON-RPC method of the extension surface.
var rpcWalks = map[string][]func(x minted) any{
	"message:send":                  {func(x minted) any { return words("mine now", "task_id", x.task) }, func(x minted) any { return words("recall", "context_id", x.context) }, func(x minted) any { return words("hello", "message_id", x.message, "context_id", x.context) }, decision, supplied},
	"message:stream":                {decision, supplied, func(x minted) any { return words("mine now", "task_id", x.task) }, func(x minted) any { return words("recall", "context_id", x.context) }},
	"tasks/get":                     {func(x minted) any { return map[string]any{"id": x.task} }, func(x minted) any { return map[string]any{"task_id": x.task} }, func(x minted) any { return map[string]any{"id": x.task, "tenant": x.app} }},
	"tasks/list":                    {func(x minted) any { return map[string]any{"context_id": x.context} }, func(x minted) any { return map[string]any{"page_token": x.cursor} }},
	"tasks/cancel":                  {func(x minted) any { return map[string]any{"id": x.task} }},
	"tasks/subscribe":               {func(x minted) any { return map[string]any{"id": x.task} }, func(x minted) any { return map[string]any{"id": x.task, "after": 0} }},
	"tasks/pushNotificationConfig/": {func(x minted) any { return map[string]any{"id": x.task} }},
}

const tenantConfig = `
llms: {m: {provider: scripted, script: [{when: {text: "^ask$"}, then: [{ask: "what?"}]}, {when: {text: "^unlock locked$"}, then: [{call: {tool: locked, arguments: {url: "http://127.0.0.1:9"}}}]}, {when: {text: "^unlock open$"}, then: [{call: {tool: open, arguments: {url: "http://127.0.0.1:9"}}}]}, {when: {text: "^sum$"}, then: [{call: {tool: calc, arguments: {expression: "1+1"}}}]}, {then: [{say: "You said: {{text}}"}]}]}}
tools:
  calc: {type: function, handler: calculator, require_approval: true}
  locked: {type: function, handler: http_request, credential: {url: "http://127.0.0.1:9"}}
  open: {type: function, handler: http_request, credential: {url: "http://127.0.0.1:9"}}
agents: {assistant: {llm: m, tools: [calc, locked, open]}, %s: {llm: m, visibility: internal}}
`

// TestIsolation walks every route and every JSON-RPC method as another tenant, and as another user of the same one,
// with every id that a tenant has. The answer must be the one for an id that never existed, and nothing of the tenant
// may change.
func TestIsolation(t *testing.T) {
	t.Parallel()
	onEachOf(t, "../../examples/notifications.yaml", func(t *testing.T, h *testHouse) {
		for _, name := range []string{"acme", "globex"} {
			src := fmt.Sprintf(tenantConfig, name+"only")
			h.want(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": name, "config": src})
		}
		h.want(t, http.StatusCreated, nil, "POST", "/admin/apps/acme/budgets", testSecret, map[string]any{"name": "cap", "scope": map[string]any{"user": "ana"}, "unit": "calls", "amount": 1000, "window": "day", "hard": true})
		ana := h.token(t, "acme", "ana", nil)
		x := h.mint(t, ana)
		before := h.rows(t, "acme")
		if len(before) < 10 {
			t.Fatalf("only %d rows to guard", len(before))
		}
		walkers := []struct {
			name, token string
			adds        bool   // the walker's own calls leave rows in the app
			from        minted // whose ids are tried
		}{
			{"another tenant", h.token(t, "globex", "ana", map[string]any{"roles": []string{"admin"}}), false, x},
			{"another tenant's key", h.apiKey(t, "globex", map[string]any{"roles": []string{"admin"}}).Key, false, x},
			{"another user", h.token(t, "acme", "eve", nil), true, minted{app: nobody.app, agent: nobody.agent, task: x.task, context: x.context, message: x.message, cursor: x.cursor, held: x.held, call: x.call, user: x.user, wanting: x.wanting, tool: x.tool, key: x.key, invoice: x.invoice}},
		}
		for _, w := range walkers {
			t.Run(w.name, func(t *testing.T) {
				front, err := h.front(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})
				if err != nil {
					t.Fatal(err)
				}
				for _, route := range front.Routes() {
					key := route.Method + " " + route.Pattern
					walks, ok := routeWalks[key]
					if !ok {
						t.Errorf("%s: the isolation proof has no row for this route", key)
					}
					for _, walk := range walks {
						h.compare(t, w.token, route.Method, walk, w.from)
					}
				}
				for _, method := range methodsOf(t, "../../agentsvc/surface/ext/message.go") {
					if _, ok := rpcWalks[strings.Replace(method, "message/", "message:", 1)]; !ok {
						t.Errorf("%s: the isolation proof has no row for this method", method)
					}
					for _, params := range rpcWalks[strings.Replace(method, "message/", "message:", 1)] {
						name := strings.TrimSuffix(method, "/")
						for _, path := range []string{"/agents/assistant", "/agents/{agent}", "/apps/{app}/agents/assistant"} {
							h.compare(t, w.token, "POST", trespass{path: path, body: func(x minted) any { return rpc(name, params(x)) }}, w.from)
							h.compare(t, w.token, "POST", trespass{path: path, id: "1", body: func(x minted) any { return rpc(name, params(x)) }}, w.from)
						}
					}
				}
				h.walkSocket(t, w.token, w.from)
				h.walkCalls(t, w.token, w.from)
				h.walkA2A(t, w.token, w.from)
				h.walkMCP(t, w.token, w.from)
				after := h.rows(t, "acme")
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

// mint has ana leave a trace of every kind: a task that waits, one that has ended, a session, a page token.
func (h *testHouse) mint(t *testing.T, ana string) minted {
	t.Helper()
	x := minted{app: "acme", agent: "acmeonly", message: "m-ana"}
	var out struct {
		Result struct {
			TaskID    string `json:"task_id"`
			ContextID string `json:"context_id"`
			Status    struct{ State string }
		}
	}
	h.want(t, http.StatusOK, &out, "POST", "/agents/assistant", ana, rpc("message:send", words("ask", "message_id", x.message)))
	if out.Result.Status.State != "input_required" {
		t.Fatalf("the task of ana is %s, want one that waits", out.Result.Status.State)
	}
	x.task, x.context = out.Result.TaskID, out.Result.ContextID
	x.held, x.call = h.hold(t, ana)
	x.wanting, x.tool = h.entrust(t, ana), "open"
	h.pin(t, x.app)
	x.user = h.remember(t, x.app)
	x.key = h.apiKey(t, x.app, nil).ID
	h.want(t, http.StatusOK, nil, "POST", "/agents/assistant", ana, rpc("message:send", words("a secret", "context_id", x.context)))
	var list struct {
		Result struct {
			Next string `json:"next_page_token"`
		}
	}
	h.want(t, http.StatusOK, &list, "POST", "/agents/assistant", ana, rpc("tasks/list", map[string]any{"page_size": 1}))
	if x.cursor = list.Result.Next; x.cursor == "" {
		t.Fatal("there is no second page to have a token of")
	}
	x.invoice = h.bill(t, x.app)
	h.notify(t, ana, x)
	return x
}

// notify has an address told of the task that waits, of which nothing changes any more: it is no address to be told at.
func (h *testHouse) notify(t *testing.T, ana string, x minted) {
	t.Helper()
	config := map[string]any{"id": x.task, "url": "https://127.0.0.1:9"}
	h.want(t, http.StatusOK, nil, "POST", "/a2a/assistant/tasks/"+x.task+"/pushNotificationConfigs", ana, config)
	h.want(t, http.StatusOK, nil, "POST", "/agents/assistant", ana, rpc("message:send", words("ask", "task_id", x.task)))
	within(t, 20*time.Second, "the address is given up", func() bool {
		at := h.notification(t, ana, x.task)
		return at.Status == "dead" && at.Error == `the address of "127.0.0.1" is not allowed: only public addresses may be called`
	})
}

// bill leaves a final invoice.
func (h *testHouse) bill(t *testing.T, app string) string {
	t.Helper()
	var list struct{ Invoices []struct{ ID string } }
	h.want(t, http.StatusOK, &list, "GET", "/admin/apps/"+app+"/invoices", testSecret, nil)
	if len(list.Invoices) == 0 {
		t.Fatal("there is no draft of what was used")
	}
	h.want(t, http.StatusOK, nil, "POST", "/admin/apps/"+app+"/invoices/"+list.Invoices[0].ID+":finalize", testSecret, nil)
	return list.Invoices[0].ID
}

// hold leaves a task of ana whose tool call waits for a decision.
func (h *testHouse) hold(t *testing.T, ana string) (id, call string) {
	t.Helper()
	h.want(t, http.StatusOK, nil, "POST", "/agents/assistant", ana, rpc("message:send", words("sum")))
	var list struct {
		Tasks []struct {
			TaskID    string `json:"task_id"`
			Approvals []struct {
				CallID string `json:"call_id"`
			}
		}
	}
	h.want(t, http.StatusOK, &list, "GET", "/tasks?status=input_required", ana, nil)
	for _, t := range list.Tasks {
		if len(t.Approvals) == 1 {
			return t.TaskID, t.Approvals[0].CallID
		}
	}
	t.Fatal("no task of ana waits for a decision")
	return "", ""
}

// entrust leaves a task of ana that waits for a credential, and a credential that she has supplied for the tool open.
func (h *testHouse) entrust(t *testing.T, ana string) (waiting string) {
	t.Helper()
	for _, tool := range []string{"locked", "open"} {
		var out struct {
			Result struct {
				TaskID string `json:"task_id"`
				Status struct{ State string }
			}
		}
		h.want(t, http.StatusOK, &out, "POST", "/agents/assistant", ana, rpc("message:send", words("unlock "+tool)))
		if out.Result.Status.State != "auth_required" {
			t.Fatalf("the task is %s, want one that waits for a credential", out.Result.Status.State)
		}
		if tool == "locked" {
			waiting = out.Result.TaskID
			continue
		}
		value := map[string]any{"type": "tool_credential", "tool": tool, "value": "ana's own"}
		parts := []any{map[string]any{"type": "data", "data": value}}
		h.want(t, http.StatusOK, nil, "POST", "/agents/assistant", ana, rpc("message:send",
			map[string]any{"message": map[string]any{"role": "user", "task_id": out.Result.TaskID, "parts": parts}}))
	}
	return waiting
}

// compare tries the ids and ids that never existed and wants one answer.
func (h *testHouse) compare(t *testing.T, token, method string, walk trespass, x minted) {
	t.Helper()
	if walk.body == nil {
		walk.body = noBody
	}
	theirs, none := h.trespass(t, token, method, walk, x), h.trespass(t, token, method, walk, nobody)
	if theirs != none {
		t.Errorf("%s %s: their id answers\n%s\none that never existed\n%s", method, walk.path, theirs, none)
	}
}

func (h *testHouse) trespass(t *testing.T, token, method string, walk trespass, x minted) string {
	t.Helper()
	req := h.request(t, method, x.on(walk.path), token, walk.body(x))
	if walk.id != "" {
		req.Header.Set("Last-Event-ID", walk.id)
	}
	if walk.header != "" {
		req.Header.Set(walk.header, x.on(walk.value))
	}
	status, body := h.do(t, req)
	return fmt.Sprintf("%d %s", status, neutral(body, x))
}

var (
	chunks     = regexp.MustCompile(`(?m)^data: .*("state":"working","message":|TASK_STATE_WORKING|"kind":"status-update").*\n\n|^(event: message\n)?data: \{"(msg|response)":.*\n\n`) // text may come in one piece or in several
	requestIDs = regexp.MustCompile(`"request_id":"[^"]*"`)
	uuids      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[78][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
	times      = regexp.MustCompile(`"timestamp":"[^"]*"|"execution_time":[0-9.e-]+|"(total_size|input|total)":[0-9]+`)
)

// neutral takes out of an answer what differs from call to call, and what the caller said itself.
func neutral(body string, x minted) string {
	for _, own := range []string{x.task, x.context, x.message, x.cursor, x.held, x.call, x.wanting, x.key, x.agent, x.app} {
		body = strings.ReplaceAll(body, own, "ID")
	}
	body = chunks.ReplaceAllString(body, "")
	body = requestIDs.ReplaceAllString(body, "REQUEST")
	body = uuids.ReplaceAllString(body, "ID")
	return times.ReplaceAllString(body, "TIME")
}

// methodsOf reads the names of JSON-RPC methods out of a dialect's source, so that a new one cannot be forgotten.
func methodsOf(t *testing.T, file string) []string {
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

// remember leaves a memory of a user and returns who that is.
func (h *testHouse) remember(t *testing.T, app string) (user string) {
	t.Helper()
	id, err := h.apps.ID(t.Context(), app)
	if err != nil {
		t.Fatal(err)
	}
	zoe := memory.Memory{Owner: agentsvc.Owner{Issuer: "stoa", Subject: "zoe"}, Agent: "assistant", Role: agentsvc.RoleUser, Text: "a secret"}
	if err := memory.New(h.db, id).Add(t.Context(), zoe); err != nil {
		t.Fatal(err)
	}
	return zoe.Owner.Subject
}

// pin leaves a tool of a server that has changed since it was first used.
func (h *testHouse) pin(t *testing.T, app string) {
	t.Helper()
	id, err := h.apps.ID(t.Context(), app)
	if err != nil {
		t.Fatal(err)
	}
	for _, hash := range []string{"then", "x"} {
		if _, err := store.New(h.db, id).SettlePins(t.Context(), "shop", []store.Definition{{Tool: "echo", Hash: hash, Body: "{}"}}); err != nil {
			t.Fatal(err)
		}
	}
}

// rows is everything the database holds of an app, a text for each row.
func (h *testHouse) rows(t *testing.T, app string) (rows []string) {
	t.Helper()
	id, err := h.apps.ID(t.Context(), app)
	if err != nil {
		t.Fatal(err)
	}
	err = h.db.Schema(t.Context(), "", func(s *sql.DB) error {
		for _, table := range tenantTables(t, s, h.db.Engine()) {
			for _, row := range query(t, s, "SELECT * FROM "+table+" WHERE tenant = $1", string(id)) {
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

func tenantTables(t *testing.T, s *sql.DB, engine db.Engine) (names []string) {
	t.Helper()
	q := `SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relkind = 'r' AND a.attname = 'tenant' ORDER BY 1`
	if engine == db.SQLite {
		q = `SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND c.name = 'tenant' ORDER BY 1`
	}
	names = query(t, s, q)
	if len(names) < 5 {
		t.Fatalf("tenant tables: %v", names)
	}
	return names
}

// query returns each row as one text.
func query(t *testing.T, s *sql.DB, q string, args ...any) (lines []string) {
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
