package main

import (
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// need is what a caller must have for a route or a method: one of the scopes, or, with none, what stands in who.
type need struct {
	path  string
	agent string // that the header names, "" = none
	body  any
	any   []string
	who   door
}

// door says who passes where scopes do not decide.
type door string

const (
	scoped   door = ""          // whoever has one of the scopes
	everyone door = "everyone"  // with a good credential or none
	looking  door = "discovery" // everyone; what there is to see, visibility decides
	operator door = "operator"  // the platform's operator alone
	byMethod door = "by method" // see rpcNeeds
)

// orOwn are the scopes that reach at least one's own tasks, of whichever agent.
func orOwn(wide string) []string { return append(orOfAssistant(wide), "agents:call:other") }

// orOfAssistant are those that reach at least one's own tasks of the assistant, whom all methods are sent to.
func orOfAssistant(wide ...string) []string {
	return append(wide, "agents:call", "agents:call:assistant")
}

// routeNeeds has a row for each route. A route without one fails the test, and so denies by default.
var routeNeeds = map[string]need{
	"GET /health":                      {path: "/health", who: everyone},
	"GET /ready":                       {path: "/ready", who: everyone},
	"GET /metrics":                     {path: "/metrics", who: everyone},
	"GET /.well-known/jwks.json":       {path: "/.well-known/jwks.json", who: everyone},
	"GET /.well-known/card-keys.json":  {path: "/.well-known/card-keys.json", who: everyone},
	"GET /.well-known/agent-card.json": {path: "/apps/acme/.well-known/agent-card.json", who: looking},
	"GET /agents":                      {path: "/apps/acme/agents", who: looking},
	"GET /agents/{agent}":              {path: "/apps/acme/agents/assistant", who: looking},
	"GET /agents/{agent}/.well-known/agent-card.json": {path: "/apps/acme/agents/assistant/.well-known/agent-card.json", who: looking},
	"POST /agents/{agent}":                            {who: byMethod},

	"GET /v1/agents": {path: "/apps/acme/v1/agents", who: looking},
	"GET /v1/agents/{agent}/.well-known/agent-card.json": {path: "/apps/acme/v1/agents/assistant/.well-known/agent-card.json", who: looking},
	"POST /v1/agents/{agent}/message:send":               {path: "/apps/acme/v1/agents/assistant/message:send", body: spoken("hello"), any: orOfAssistant()},
	"POST /v1/agents/{agent}/message:stream":             {path: "/apps/acme/v1/agents/assistant/message:stream", body: parted(map[string]any{"data": ruling(nobody)}, "taskId", nobody.held), any: []string{"tasks:approve"}},
	"POST /v1/message:send":                              {path: "/apps/acme/v1/message:send", agent: "assistant", body: spoken("hello"), any: orOfAssistant()},
	"GET /v1/agents/{agent}/tasks":                       {path: "/apps/acme/v1/agents/assistant/tasks", any: orOfAssistant("tasks:read")},
	"GET /v1/agents/{agent}/tasks/{task}":                {path: "/apps/acme/v1/agents/assistant/tasks/nosuch", any: orOfAssistant("tasks:read")},
	"GET /v1/agents/{agent}/tasks/{task}:subscribe":      {path: "/apps/acme/v1/agents/assistant/tasks/nosuch:subscribe", any: orOfAssistant("tasks:read")},
	"POST /v1/agents/{agent}/tasks/{task}:cancel":        {path: "/apps/acme/v1/agents/assistant/tasks/nosuch:cancel", any: orOfAssistant("tasks:cancel")},
	"GET /v1/agents/{agent}/stream":                      {path: "/apps/acme/v1/agents/assistant/stream", any: orOfAssistant("tasks:approve")},

	"GET /api/schema":                 {path: "/apps/acme/api/schema", any: []string{"config:read"}},
	"GET /tasks":                      {path: "/apps/acme/tasks", any: orOwn("tasks:read")},
	"GET /memories":                   {path: "/apps/acme/memories", any: orOwn("tasks:read")},
	"DELETE /memories":                {path: "/apps/acme/memories", any: orOwn("tasks:cancel")},
	"GET /credentials":                {path: "/apps/acme/credentials", any: orOwn("tasks:read")},
	"DELETE /credentials/{tool}":      {path: "/apps/acme/credentials/nosuch", any: orOwn("tasks:cancel")},
	"GET /tasks/{task}/notifications": {path: "/apps/acme/tasks/nosuch/notifications", any: orOwn("tasks:read")},
	"GET /tasks/{task}/checkpoints":   {path: "/apps/acme/tasks/nosuch/checkpoints", any: orOwn("tasks:read")},
	"GET /triggers":                   {path: "/apps/acme/triggers", any: []string{"tasks:read"}},
	"POST /webhooks/{webhook}":        {path: "/apps/acme/webhooks/nosuch", who: everyone},
	"PUT /webhooks/{webhook}":         {path: "/apps/acme/webhooks/nosuch", who: everyone},
	"PATCH /webhooks/{webhook}":       {path: "/apps/acme/webhooks/nosuch", who: everyone},
	"POST /tasks/{task}/checkpoints/{checkpoint}:restore": {path: "/apps/acme/tasks/nosuch/checkpoints/2:restore", any: orOwn("tasks:cancel")},
	"POST /tasks/{task}/approve":                          {path: "/apps/acme/tasks/nosuch/approve", any: []string{"tasks:approve"}},
	"POST /tasks/{task}/reject":                           {path: "/apps/acme/tasks/nosuch/reject", any: []string{"tasks:approve"}},
	"POST /api/tasks/{task}/toolCalls/{call}/cancel":      {path: "/apps/acme/api/tasks/nosuch/toolCalls/c/cancel", any: orOwn("tasks:cancel")},

	"POST /admin/apps":                                    {path: "/admin/apps", who: operator},
	"GET /admin/apps":                                     {path: "/admin/apps", who: operator},
	"GET /admin/apps/{app}":                               {path: "/admin/apps/acme", who: operator},
	"PUT /admin/apps/{app}":                               {path: "/admin/apps/acme", body: map[string]any{}, who: operator},
	"DELETE /admin/apps/{app}":                            {path: "/admin/apps/nosuch", who: operator},
	"POST /admin/apps/{app}:suspend":                      {path: "/admin/apps/nosuch:suspend", who: operator},
	"POST /admin/apps/{app}:resume":                       {path: "/admin/apps/nosuch:resume", who: operator},
	"GET /admin/apps/{app}/revisions":                     {path: "/admin/apps/acme/revisions", who: operator},
	"POST /admin/apps/{app}/revisions/{revision}:restore": {path: "/admin/apps/acme/revisions/1:restore", who: operator},
	"GET /admin/apps/{app}/secrets":                       {path: "/admin/apps/acme/secrets", who: operator},
	"PUT /admin/apps/{app}/secrets/{name}":                {path: "/admin/apps/acme/secrets/KEY", body: map[string]any{"value": "v"}, who: operator},
	"DELETE /admin/apps/{app}/secrets/{name}":             {path: "/admin/apps/acme/secrets/NOSUCH", who: operator},
	"POST /admin/apps/{app}/tokens":                       {path: "/admin/apps/acme/tokens", body: map[string]any{"sub": "x"}, who: operator},
	"POST /admin/apps/{app}/tokens:revoke":                {path: "/admin/apps/nosuch/tokens:revoke", who: operator},
	"GET /admin/apps/{app}/keys":                          {path: "/admin/apps/acme/keys", who: operator},
	"POST /admin/apps/{app}/keys":                         {path: "/admin/apps/acme/keys", who: operator},
	"POST /admin/apps/{app}/keys/{key}:rotate":            {path: "/admin/apps/acme/keys/nosuch:rotate", who: operator},
	"DELETE /admin/apps/{app}/keys/{key}":                 {path: "/admin/apps/acme/keys/nosuch", who: operator},
	"GET /admin/apps/{app}/roles":                         {path: "/admin/apps/acme/roles", who: operator},
	"POST /admin/apps/{app}/roles":                        {path: "/admin/apps/acme/roles", body: map[string]any{"name": "admin"}, who: operator},
	"PUT /admin/apps/{app}/roles/{role}":                  {path: "/admin/apps/acme/roles/nosuch", body: map[string]any{"scopes": []string{"tasks:read"}}, who: operator},
	"DELETE /admin/apps/{app}/roles/{role}":               {path: "/admin/apps/acme/roles/nosuch", who: operator},
	"GET /admin/apps/{app}/authz/explain":                 {path: "/admin/apps/acme/authz/explain?subject=x&action=tasks:read", who: operator},
	"GET /admin/apps/{app}/tools":                         {path: "/admin/apps/acme/tools", who: operator},
	"POST /admin/apps/{app}/tools/{server}/{tool}:accept": {path: "/admin/apps/acme/tools/shop/echo:accept", body: map[string]any{"hash": "x"}, who: operator},
	"GET /admin/queue":                                    {path: "/admin/queue", who: operator},
	"GET /admin/queue/dead":                               {path: "/admin/queue/dead", who: operator},
	"POST /admin/queue/dead:requeue":                      {path: "/admin/queue/dead:requeue", body: map[string]any{}, who: operator},
	"POST /admin/queue/dead/{id}:requeue":                 {path: "/admin/queue/dead/01a00000-0000-7000-8000-000000000000.1:requeue", who: operator},
	"POST /admin/apps/{app}/credits":                      {path: "/admin/apps/nosuch/credits", body: map[string]any{"amount": 1}, who: operator},
	"GET /admin/apps/{app}/credits":                       {path: "/admin/apps/acme/credits", who: operator},
	"DELETE /admin/apps/{app}/credits/{credit}":           {path: "/admin/apps/acme/credits/nosuch", who: operator},
	"GET /admin/apps/{app}/ledger":                        {path: "/admin/apps/acme/ledger", who: operator},
	"GET /admin/apps/{app}/invoices":                      {path: "/admin/apps/acme/invoices", who: operator},
	"GET /admin/apps/{app}/invoices/{invoice}":            {path: "/admin/apps/acme/invoices/2026-01", who: operator},
	"POST /admin/apps/{app}/invoices/{invoice}:finalize":  {path: "/admin/apps/acme/invoices/2026-01:finalize", who: operator},
	"POST /admin/apps/{app}/invoices/{invoice}:reverse":   {path: "/admin/apps/acme/invoices/2026-01:reverse", who: operator},
	"GET /admin/exports":                                  {path: "/admin/exports", who: operator},
	"GET /billing/invoices":                               {path: "/apps/acme/billing/invoices", any: []string{"usage:read"}},
	"GET /billing/invoices/{invoice}":                     {path: "/apps/acme/billing/invoices/2026-01", any: []string{"usage:read"}},
	"GET /admin/audit":                                    {path: "/admin/audit", who: operator},

	"POST /admin/prices":                        {path: "/admin/prices", body: map[string]any{}, who: operator},
	"GET /admin/prices":                         {path: "/admin/prices", who: operator},
	"GET /admin/prices/{version}":               {path: "/admin/prices/nosuch", who: operator},
	"DELETE /admin/prices/{version}":            {path: "/admin/prices/nosuch", who: operator},
	"POST /admin/plans":                         {path: "/admin/plans", body: map[string]any{}, who: operator},
	"GET /admin/plans":                          {path: "/admin/plans", who: operator},
	"GET /admin/plans/{plan}":                   {path: "/admin/plans/nosuch", who: operator},
	"PUT /admin/plans/{plan}":                   {path: "/admin/plans/nosuch", body: map[string]any{}, who: operator},
	"POST /admin/budgets":                       {path: "/admin/budgets", body: map[string]any{}, who: operator},
	"GET /admin/budgets":                        {path: "/admin/budgets", who: operator},
	"PUT /admin/budgets/{budget}":               {path: "/admin/budgets/nosuch", body: map[string]any{}, who: operator},
	"DELETE /admin/budgets/{budget}":            {path: "/admin/budgets/nosuch", who: operator},
	"POST /admin/apps/{app}/budgets":            {path: "/admin/apps/acme/budgets", body: map[string]any{}, who: operator},
	"GET /admin/apps/{app}/budgets":             {path: "/admin/apps/acme/budgets", who: operator},
	"PUT /admin/apps/{app}/budgets/{budget}":    {path: "/admin/apps/acme/budgets/nosuch", body: map[string]any{}, who: operator},
	"DELETE /admin/apps/{app}/budgets/{budget}": {path: "/admin/apps/acme/budgets/nosuch", who: operator},
	"GET /admin/apps/{app}/usage":               {path: "/admin/apps/acme/usage", who: operator},
	"GET /billing/usage":                        {path: "/apps/acme/billing/usage", any: []string{"usage:read"}},
	"GET /billing/budgets":                      {path: "/apps/acme/billing/budgets", any: []string{"usage:read"}},

	"GET /admin/audit/export": {path: "/admin/audit/export", who: operator},
}

// rpcNeeds has rows for each JSON-RPC method of an agent.
var rpcNeeds = map[string][]need{
	"message:send":                  {{body: words("hello"), any: orOfAssistant()}, {body: decision(nobody), any: []string{"tasks:approve"}}},
	"message:stream":                {{body: words("hello"), any: orOfAssistant()}, {body: decision(nobody), any: []string{"tasks:approve"}}},
	"tasks/get":                     {{body: map[string]any{"id": nobody.task}, any: orOfAssistant("tasks:read")}},
	"tasks/list":                    {{body: map[string]any{}, any: orOfAssistant("tasks:read")}},
	"tasks/cancel":                  {{body: map[string]any{"id": nobody.task}, any: orOfAssistant("tasks:cancel")}},
	"tasks/subscribe":               {{body: map[string]any{"id": nobody.task}, any: orOfAssistant("tasks:read")}},
	"tasks/pushNotificationConfig/": {{body: map[string]any{"id": nobody.task}, any: orOfAssistant()}},
}

// roleScopes is who may do what, once more and by hand: what the tokens below carry must be this and no more.
var roleScopes = map[string]string{
	"admin":     "agents:read agents:call tasks:read tasks:cancel tasks:approve config:read config:write usage:read",
	"operator":  "agents:read agents:call tasks:read tasks:cancel tasks:approve config:read config:write usage:read",
	"developer": "agents:read agents:call config:read config:write",
	"approver":  "agents:read tasks:read tasks:approve",
	"caller":    "agents:read agents:call",
	"viewer":    "agents:read tasks:read usage:read",
	"desk":      "agents:call:assistant tasks:approve", // the app's own
	"elsewhere": "agents:call:other",                   // as well
}

// matrixCaller is somebody who knocks at every door.
type matrixCaller struct {
	name, token string
	scopes      []string
	stranger    bool // shows no good credential of the app
	operator    bool
}

// TestMatrix has every kind of caller use every route and every JSON-RPC method: what its row does not allow is
// refused, whoever asks, and what it allows is not.
func TestMatrix(t *testing.T) {
	t.Parallel()
	o := newForeignIssuer(t)
	onEachOf(t, o.fileWith(t, "  push_notifications: true"), func(t *testing.T, h *testHouse) {
		h.want(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": `
llms: {m: {provider: scripted}}
agents: {assistant: {llm: m}}
`})
		callers := h.matrixCallers(t, o)
		front, err := h.front(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})
		if err != nil {
			t.Fatal(err)
		}
		for _, route := range front.Routes() {
			key := route.Method + " " + route.Pattern
			n, ok := routeNeeds[key]
			switch {
			case !ok:
				t.Errorf("%s: the matrix of roles has no row for this route", key)
				continue
			case n.who == byMethod:
				continue
			}
			for _, c := range callers {
				h.knock(t, key, route.Method, n.path, n.body, n, c)
			}
		}
		for _, method := range methodsOf(t, "../../agentsvc/surface/ext/message.go") {
			rows, ok := rpcNeeds[strings.Replace(method, "message/", "message:", 1)]
			if !ok {
				t.Errorf("%s: the matrix of roles has no row for this method", method)
			}
			for _, n := range rows {
				for _, c := range callers {
					h.knock(t, method, "POST", "/apps/acme/agents/assistant", rpc(method, n.body), n, c)
				}
			}
		}
		h.knockCalls(t, callers)
		h.knockA2A(t, callers)
		h.knockMCP(t, callers)
	})
}

// matrixCallers are one for each role, for each scope that a token is narrowed to, and those without any.
func (h *testHouse) matrixCallers(t *testing.T, o *foreignIssuer) []matrixCaller {
	t.Helper()
	for _, role := range []string{"desk", "elsewhere"} {
		h.want(t, http.StatusCreated, nil, "POST", "/admin/apps/acme/roles", testSecret,
			map[string]any{"name": role, "scopes": strings.Fields(roleScopes[role])})
	}
	var callers []matrixCaller
	for _, role := range slices.Sorted(maps.Keys(roleScopes)) {
		token := h.token(t, "acme", "zoe", map[string]any{"roles": []string{role}})
		callers = append(callers, matrixCaller{name: role, token: token, scopes: strings.Fields(roleScopes[role])})
	}
	for _, scope := range strings.Fields(roleScopes["admin"] + " agents:call:assistant agents:call:other") {
		token := h.token(t, "acme", "zoe", map[string]any{"roles": []string{"admin"}, "scope": scope})
		callers = append(callers, matrixCaller{name: "admin narrowed to " + scope, token: token, scopes: []string{scope}})
	}
	nothing := h.token(t, "acme", "zoe", map[string]any{"roles": []string{"viewer"}, "scope": "tasks:cancel"})
	return append(callers,
		matrixCaller{name: "viewer narrowed to what it lacks", token: nothing},
		matrixCaller{name: "anonymous", stranger: true},
		matrixCaller{name: "forger", token: nothing[:len(nothing)-4] + "AAAA", stranger: true},
		matrixCaller{name: "operator's token", token: o.token(map[string]any{"roles": []string{"platform_operator"}}), operator: true},
		matrixCaller{name: "admin secret", token: testSecret, operator: true},
	)
}

// knock has c make a request, and compares whether it is let in with whether n says so.
func (h *testHouse) knock(t *testing.T, what, method, path string, body any, n need, c matrixCaller) {
	t.Helper()
	req := h.request(t, method, path, c.token, body)
	if n.agent != "" {
		req.Header.Set("agent-name", n.agent)
	}
	status, answer := h.do(t, req)
	want := 0 // let in
	switch {
	case n.who == everyone:
	case n.who == operator && c.stranger:
		want = http.StatusUnauthorized
	case n.who == operator && !c.operator:
		want = http.StatusForbidden
	case n.who == operator:
	case c.operator: // on a tenant's route
		want = http.StatusForbidden
	case n.who == looking && c.token == "":
	case c.stranger:
		want = http.StatusUnauthorized
	case n.who == looking:
	case !n.allows(c.scopes):
		want = http.StatusForbidden
	}
	refused := status == http.StatusUnauthorized || status == http.StatusForbidden
	if want != 0 && status != want || want == 0 && (refused || status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable) {
		t.Errorf("%s by %s: %d %.300s, want %s", what, c.name, status, answer, map[bool]string{true: "to be let in", false: http.StatusText(want)}[want == 0])
	}
}

// allows reports whether one of scopes is what n needs.
func (n need) allows(scopes []string) bool {
	return slices.ContainsFunc(n.any, func(s string) bool { return slices.Contains(scopes, s) })
}
