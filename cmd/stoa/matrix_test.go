package main

import (
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// accessRule is what a caller needs for a route or method: one of the scopes, or without scopes the access level.
type accessRule struct {
	path   string
	agent  string // named in the request's header, "" = none
	body   any
	anyOf  []string
	access accessLevel
}

// accessLevel is who has access if scopes do not decide.
type accessLevel string

const (
	byScope       accessLevel = ""          // any caller with one of the scopes
	anyCaller     accessLevel = "everyone"  // with a valid credential or none
	discoveryOnly accessLevel = "discovery" // every caller; visibility decides what is shown
	operatorOnly  accessLevel = "operator"  // the platform's operator only
	callersOfApp  accessLevel = "app"       // every caller of the app, whose scopes do not matter
	byMethod      accessLevel = "by method" // see rpcAccess
)

// anyAgentScopes returns the scopes that give access at least to a caller's own tasks, of any agent.
func anyAgentScopes(wide string) []string { return append(assistantScopes(wide), "agents:call:other") }

// assistantScopes returns the scopes that give access at least to a caller's own tasks of the assistant, to which all
// methods are sent.
func assistantScopes(wide ...string) []string {
	return append(wide, "agents:call", "agents:call:assistant")
}

// routeAccess has a row for each route. A route without a row fails the test, so that access is denied by default.
var routeAccess = map[string]accessRule{
	"GET /health":                      {path: "/health", access: anyCaller},
	"GET /console":                     {path: "/console", access: anyCaller},
	"GET /console/*":                   {path: "/console/tasks", access: anyCaller},
	"GET /ready":                       {path: "/ready", access: anyCaller},
	"GET /metrics":                     {path: "/metrics", access: anyCaller},
	"GET /.well-known/jwks.json":       {path: "/.well-known/jwks.json", access: anyCaller},
	"GET /.well-known/card-keys.json":  {path: "/.well-known/card-keys.json", access: anyCaller},
	"GET /.well-known/agent-card.json": {path: "/apps/acme/.well-known/agent-card.json", access: discoveryOnly},
	"GET /agents":                      {path: "/apps/acme/agents", access: discoveryOnly},
	"GET /agents/{agent}":              {path: "/apps/acme/agents/assistant", access: discoveryOnly},
	"GET /agents/{agent}/.well-known/agent-card.json": {path: "/apps/acme/agents/assistant/.well-known/agent-card.json", access: discoveryOnly},
	"POST /agents/{agent}":                            {access: byMethod},

	"GET /v1/agents": {path: "/apps/acme/v1/agents", access: discoveryOnly},
	"GET /v1/agents/{agent}/.well-known/agent-card.json": {path: "/apps/acme/v1/agents/assistant/.well-known/agent-card.json", access: discoveryOnly},
	"POST /v1/agents/{agent}/message:send":               {path: "/apps/acme/v1/agents/assistant/message:send", body: newV1TextMessage("hello"), anyOf: assistantScopes()},
	"POST /v1/agents/{agent}/message:stream":             {path: "/apps/acme/v1/agents/assistant/message:stream", body: newV1Message(map[string]any{"data": newDecisionData(unknownIDs)}, "taskId", unknownIDs.approvalTask), anyOf: []string{"tasks:approve"}},
	"POST /v1/message:send":                              {path: "/apps/acme/v1/message:send", agent: "assistant", body: newV1TextMessage("hello"), anyOf: assistantScopes()},
	"GET /v1/agents/{agent}/tasks":                       {path: "/apps/acme/v1/agents/assistant/tasks", anyOf: assistantScopes("tasks:read")},
	"GET /v1/agents/{agent}/tasks/{task}":                {path: "/apps/acme/v1/agents/assistant/tasks/nosuch", anyOf: assistantScopes("tasks:read")},
	"GET /v1/agents/{agent}/tasks/{task}:subscribe":      {path: "/apps/acme/v1/agents/assistant/tasks/nosuch:subscribe", anyOf: assistantScopes("tasks:read")},
	"POST /v1/agents/{agent}/tasks/{task}:cancel":        {path: "/apps/acme/v1/agents/assistant/tasks/nosuch:cancel", anyOf: assistantScopes("tasks:cancel")},
	"GET /v1/agents/{agent}/stream":                      {path: "/apps/acme/v1/agents/assistant/stream", anyOf: assistantScopes("tasks:approve")},

	"GET /api/config":                                              {path: "/apps/acme/api/config", access: callersOfApp},
	"POST /api/config":                                             {path: "/apps/acme/api/config", body: map[string]any{}, access: callersOfApp},
	"GET /v1/document-stores":                                      {path: "/apps/acme/v1/document-stores", anyOf: []string{"documents:read"}},
	"POST /v1/document-stores/{store}:search":                      {path: "/apps/acme/v1/document-stores/nosuch:search", body: map[string]any{"query": "x"}, anyOf: []string{"documents:read"}},
	"POST /v1/document-stores/{store}:reindex":                     {path: "/apps/acme/v1/document-stores/nosuch:reindex", anyOf: []string{"documents:write"}},
	"GET /v1/document-stores/{store}/documents":                    {path: "/apps/acme/v1/document-stores/nosuch/documents", anyOf: []string{"documents:read"}},
	"GET /v1/document-stores/{store}/documents/{document}":         {path: "/apps/acme/v1/document-stores/nosuch/documents/x", anyOf: []string{"documents:read"}},
	"GET /v1/document-stores/{store}/documents/{document}/content": {path: "/apps/acme/v1/document-stores/nosuch/documents/x/content", anyOf: []string{"documents:read"}},
	"PUT /v1/document-stores/{store}/documents/{document}":         {path: "/apps/acme/v1/document-stores/nosuch/documents/x", body: map[string]any{}, anyOf: []string{"documents:write"}},
	"DELETE /v1/document-stores/{store}/documents/{document}":      {path: "/apps/acme/v1/document-stores/nosuch/documents/x", anyOf: []string{"documents:write"}},
	"GET /api/schema":                                              {path: "/apps/acme/api/schema", anyOf: []string{"config:read"}},
	"GET /config":                                                  {path: "/apps/acme/config", anyOf: []string{"config:read"}},
	"GET /config/revisions":                                        {path: "/apps/acme/config/revisions", anyOf: []string{"config:read"}},
	"PUT /config":                                                  {path: "/apps/acme/config?dry_run=true", body: map[string]any{}, anyOf: []string{"config:write"}},
	"GET /config/revisions/{revision}":                             {path: "/apps/acme/config/revisions/1", anyOf: []string{"config:read"}},
	"GET /tasks/{task}":                                            {path: "/apps/acme/tasks/nosuch", anyOf: anyAgentScopes("tasks:read")},
	"GET /tasks":                                                   {path: "/apps/acme/tasks", anyOf: anyAgentScopes("tasks:read")},
	"GET /memories":                                                {path: "/apps/acme/memories", anyOf: anyAgentScopes("tasks:read")},
	"DELETE /memories":                                             {path: "/apps/acme/memories", anyOf: anyAgentScopes("tasks:cancel")},
	"GET /caller":                                                  {path: "/apps/acme/caller", access: callersOfApp},
	"GET /credentials":                                             {path: "/apps/acme/credentials", anyOf: anyAgentScopes("tasks:read")},
	"DELETE /credentials/{tool}":                                   {path: "/apps/acme/credentials/nosuch", anyOf: anyAgentScopes("tasks:cancel")},
	"GET /tasks/{task}/notifications":                              {path: "/apps/acme/tasks/nosuch/notifications", anyOf: anyAgentScopes("tasks:read")},
	"GET /tasks/{task}/log":                                        {path: "/apps/acme/tasks/nosuch/log", anyOf: anyAgentScopes("tasks:read")},
	"GET /tasks/{task}/checkpoints":                                {path: "/apps/acme/tasks/nosuch/checkpoints", anyOf: anyAgentScopes("tasks:read")},
	"GET /triggers/{agent}/starts":                                 {path: "/apps/acme/triggers/assistant/starts", anyOf: []string{"tasks:read"}},
	"POST /triggers/{agent}:run":                                   {path: "/apps/acme/triggers/assistant:run", anyOf: assistantScopes()},
	"GET /triggers":                                                {path: "/apps/acme/triggers", anyOf: []string{"tasks:read"}},
	"POST /webhooks/{webhook}":                                     {path: "/apps/acme/webhooks/nosuch", access: anyCaller},
	"PUT /webhooks/{webhook}":                                      {path: "/apps/acme/webhooks/nosuch", access: anyCaller},
	"PATCH /webhooks/{webhook}":                                    {path: "/apps/acme/webhooks/nosuch", access: anyCaller},
	"DELETE /webhooks/{webhook}":                                   {path: "/apps/acme/webhooks/nosuch", access: anyCaller},
	"GET /webhooks/{webhook}":                                      {path: "/apps/acme/webhooks/nosuch", access: anyCaller},
	"POST /config/revisions/{revision}:restore":                    {path: "/apps/acme/config/revisions/1:restore?dry_run=true", anyOf: []string{"config:write"}},
	"GET /secrets":                                                 {path: "/apps/acme/secrets", anyOf: []string{"config:read"}},
	"PUT /secrets/{name}":                                          {path: "/apps/acme/secrets/KEY", body: map[string]any{}, anyOf: []string{"config:write"}},
	"DELETE /secrets/{name}":                                       {path: "/apps/acme/secrets/NOSUCH", anyOf: []string{"config:write"}},
	"POST /tasks/{task}/checkpoints/{checkpoint}:restore":          {path: "/apps/acme/tasks/nosuch/checkpoints/2:restore", anyOf: anyAgentScopes("tasks:cancel")},
	"POST /tasks/{task}/approve":                                   {path: "/apps/acme/tasks/nosuch/approve", anyOf: []string{"tasks:approve"}},
	"POST /tasks/{task}/cancel":                                    {path: "/apps/acme/tasks/nosuch/cancel", anyOf: anyAgentScopes("tasks:cancel")},
	"POST /tasks/{task}/reject":                                    {path: "/apps/acme/tasks/nosuch/reject", anyOf: []string{"tasks:approve"}},
	"POST /api/tasks/{task}/toolCalls/{call}/cancel":               {path: "/apps/acme/api/tasks/nosuch/toolCalls/c/cancel", anyOf: anyAgentScopes("tasks:cancel")},

	"POST /admin/apps":                                        {path: "/admin/apps", access: operatorOnly},
	"GET /admin/apps":                                         {path: "/admin/apps", access: operatorOnly},
	"GET /admin/apps/{app}":                                   {path: "/admin/apps/acme", access: operatorOnly},
	"GET /admin/apps/{app}/export":                            {path: "/admin/apps/acme/export", access: operatorOnly},
	"POST /admin/apps:import":                                 {path: "/admin/apps:import", access: operatorOnly},
	"PUT /admin/apps/{app}":                                   {path: "/admin/apps/acme", body: map[string]any{}, access: operatorOnly},
	"PATCH /admin/apps/{app}":                                 {path: "/admin/apps/acme", body: map[string]any{}, access: operatorOnly},
	"DELETE /admin/apps/{app}":                                {path: "/admin/apps/nosuch", access: operatorOnly},
	"POST /admin/apps/{app}:suspend":                          {path: "/admin/apps/nosuch:suspend", access: operatorOnly},
	"POST /admin/apps/{app}:resume":                           {path: "/admin/apps/nosuch:resume", access: operatorOnly},
	"GET /admin/apps/{app}/revisions":                         {path: "/admin/apps/acme/revisions", access: operatorOnly},
	"POST /admin/apps/{app}/revisions/{revision}:restore":     {path: "/admin/apps/acme/revisions/1:restore", access: operatorOnly},
	"GET /admin/apps/{app}/secrets":                           {path: "/admin/apps/acme/secrets", access: operatorOnly},
	"PUT /admin/apps/{app}/secrets/{name}":                    {path: "/admin/apps/acme/secrets/KEY", body: map[string]any{"value": "v"}, access: operatorOnly},
	"DELETE /admin/apps/{app}/secrets/{name}":                 {path: "/admin/apps/acme/secrets/NOSUCH", access: operatorOnly},
	"POST /admin/apps/{app}/tokens":                           {path: "/admin/apps/acme/tokens", body: map[string]any{"sub": "x"}, access: operatorOnly},
	"POST /admin/apps/{app}/tokens:revoke":                    {path: "/admin/apps/nosuch/tokens:revoke", access: operatorOnly},
	"GET /admin/apps/{app}/keys":                              {path: "/admin/apps/acme/keys", access: operatorOnly},
	"POST /admin/apps/{app}/keys":                             {path: "/admin/apps/acme/keys", access: operatorOnly},
	"GET /admin/apps/{app}/revisions/{revision}":              {path: "/admin/apps/acme/revisions/1", access: operatorOnly},
	"GET /admin/apps/{app}/keys/{key}":                        {path: "/admin/apps/acme/keys/nosuch", access: operatorOnly},
	"GET /admin/apps/{app}/roles/{role}":                      {path: "/admin/apps/acme/roles/nosuch", access: operatorOnly},
	"GET /admin/apps/{app}/credits/{credit}":                  {path: "/admin/apps/acme/credits/nosuch", access: operatorOnly},
	"POST /admin/apps/{app}/keys/{key}:rotate":                {path: "/admin/apps/acme/keys/nosuch:rotate", access: operatorOnly},
	"DELETE /admin/apps/{app}/keys/{key}":                     {path: "/admin/apps/acme/keys/nosuch", access: operatorOnly},
	"GET /admin/apps/{app}/roles":                             {path: "/admin/apps/acme/roles", access: operatorOnly},
	"POST /admin/apps/{app}/roles":                            {path: "/admin/apps/acme/roles", body: map[string]any{"name": "admin"}, access: operatorOnly},
	"PUT /admin/apps/{app}/roles/{role}":                      {path: "/admin/apps/acme/roles/nosuch", body: map[string]any{"scopes": []string{"tasks:read"}}, access: operatorOnly},
	"DELETE /admin/apps/{app}/roles/{role}":                   {path: "/admin/apps/acme/roles/nosuch", access: operatorOnly},
	"GET /admin/apps/{app}/authz/explain":                     {path: "/admin/apps/acme/authz/explain?subject=x&action=tasks:read", access: operatorOnly},
	"GET /admin/apps/{app}/tools":                             {path: "/admin/apps/acme/tools", access: operatorOnly},
	"POST /admin/apps/{app}/tools/{mcp_server}/{tool}:accept": {path: "/admin/apps/acme/tools/shop/echo:accept", body: map[string]any{"hash": "x"}, access: operatorOnly},
	"GET /admin/schema":                                       {path: "/admin/schema", access: operatorOnly},
	"GET /admin/queue":                                        {path: "/admin/queue", access: operatorOnly},
	"GET /admin/processes":                                    {path: "/admin/processes", access: operatorOnly},
	"GET /admin/traffic":                                      {path: "/admin/traffic", access: operatorOnly},
	"GET /admin/queue/dead":                                   {path: "/admin/queue/dead", access: operatorOnly},
	"POST /admin/queue/dead:requeue":                          {path: "/admin/queue/dead:requeue", body: map[string]any{}, access: operatorOnly},
	"POST /admin/queue/dead/{id}:requeue":                     {path: "/admin/queue/dead/01a00000-0000-7000-8000-000000000000.1:requeue", access: operatorOnly},
	"POST /admin/apps/{app}/credits":                          {path: "/admin/apps/nosuch/credits", body: map[string]any{"amount": 1}, access: operatorOnly},
	"GET /admin/apps/{app}/credits":                           {path: "/admin/apps/acme/credits", access: operatorOnly},
	"DELETE /admin/apps/{app}/credits/{credit}":               {path: "/admin/apps/acme/credits/nosuch", access: operatorOnly},
	"GET /admin/apps/{app}/ledger":                            {path: "/admin/apps/acme/ledger", access: operatorOnly},
	"GET /admin/apps/{app}/invoices":                          {path: "/admin/apps/acme/invoices", access: operatorOnly},
	"GET /admin/apps/{app}/invoices/{invoice}":                {path: "/admin/apps/acme/invoices/2026-01", access: operatorOnly},
	"POST /admin/apps/{app}/invoices/{invoice}:finalize":      {path: "/admin/apps/acme/invoices/2026-01:finalize", access: operatorOnly},
	"POST /admin/apps/{app}/invoices/{invoice}:reverse":       {path: "/admin/apps/acme/invoices/2026-01:reverse", access: operatorOnly},
	"POST /admin/apps/{app}/invoices/{invoice}:reissue":       {path: "/admin/apps/acme/invoices/2026-01:reissue", access: operatorOnly},
	"GET /admin/apps/{app}/buyer":                             {path: "/admin/apps/acme/buyer", access: operatorOnly},
	"PUT /admin/apps/{app}/buyer":                             {path: "/admin/apps/acme/buyer", body: map[string]any{}, access: operatorOnly},
	"GET /admin/seller":                                       {path: "/admin/seller", access: operatorOnly},
	"PUT /admin/seller":                                       {path: "/admin/seller", body: map[string]any{}, access: operatorOnly},
	"GET /admin/invoices":                                     {path: "/admin/invoices", access: operatorOnly},
	"GET /admin/usage":                                        {path: "/admin/usage", access: operatorOnly},
	"GET /admin/exports":                                      {path: "/admin/exports", access: operatorOnly},
	"GET /billing/invoices":                                   {path: "/apps/acme/billing/invoices", anyOf: []string{"usage:read"}},
	"GET /billing/invoices/{invoice}":                         {path: "/apps/acme/billing/invoices/2026-01", anyOf: []string{"usage:read"}},
	"GET /admin/audit":                                        {path: "/admin/audit", access: operatorOnly},

	"POST /admin/prices":                        {path: "/admin/prices", body: map[string]any{}, access: operatorOnly},
	"GET /admin/prices":                         {path: "/admin/prices", access: operatorOnly},
	"GET /admin/prices/{version}":               {path: "/admin/prices/nosuch", access: operatorOnly},
	"DELETE /admin/prices/{version}":            {path: "/admin/prices/nosuch", access: operatorOnly},
	"POST /admin/plans":                         {path: "/admin/plans", body: map[string]any{}, access: operatorOnly},
	"GET /admin/plans":                          {path: "/admin/plans", access: operatorOnly},
	"GET /admin/plans/{plan}":                   {path: "/admin/plans/nosuch", access: operatorOnly},
	"PUT /admin/plans/{plan}":                   {path: "/admin/plans/nosuch", body: map[string]any{}, access: operatorOnly},
	"POST /admin/budgets":                       {path: "/admin/budgets", body: map[string]any{}, access: operatorOnly},
	"GET /admin/budgets":                        {path: "/admin/budgets", access: operatorOnly},
	"GET /admin/budgets/{budget}":               {path: "/admin/budgets/nosuch", access: operatorOnly},
	"GET /admin/apps/{app}/budgets/{budget}":    {path: "/admin/apps/acme/budgets/nosuch", access: operatorOnly},
	"GET /billing/budgets/{budget}":             {path: "/apps/acme/billing/budgets/nosuch", anyOf: []string{"usage:read"}},
	"PUT /admin/budgets/{budget}":               {path: "/admin/budgets/nosuch", body: map[string]any{}, access: operatorOnly},
	"DELETE /admin/budgets/{budget}":            {path: "/admin/budgets/nosuch", access: operatorOnly},
	"POST /admin/apps/{app}/budgets":            {path: "/admin/apps/acme/budgets", body: map[string]any{}, access: operatorOnly},
	"GET /admin/apps/{app}/budgets":             {path: "/admin/apps/acme/budgets", access: operatorOnly},
	"PUT /admin/apps/{app}/budgets/{budget}":    {path: "/admin/apps/acme/budgets/nosuch", body: map[string]any{}, access: operatorOnly},
	"DELETE /admin/apps/{app}/budgets/{budget}": {path: "/admin/apps/acme/budgets/nosuch", access: operatorOnly},
	"GET /admin/apps/{app}/usage":               {path: "/admin/apps/acme/usage", access: operatorOnly},
	"GET /billing/usage":                        {path: "/apps/acme/billing/usage", anyOf: []string{"usage:read"}},
	"GET /billing/budgets":                      {path: "/apps/acme/billing/budgets", anyOf: []string{"usage:read"}},

	"GET /admin/audit/export": {path: "/admin/audit/export", access: operatorOnly},
}

// rpcAccess has rows for each JSON-RPC method of an agent.
var rpcAccess = map[string][]accessRule{
	"message:send":                  {{body: newTextMessage("hello"), anyOf: assistantScopes()}, {body: newDecisionMessage(unknownIDs), anyOf: []string{"tasks:approve"}}},
	"message:stream":                {{body: newTextMessage("hello"), anyOf: assistantScopes()}, {body: newDecisionMessage(unknownIDs), anyOf: []string{"tasks:approve"}}},
	"tasks/get":                     {{body: map[string]any{"id": unknownIDs.task}, anyOf: assistantScopes("tasks:read")}},
	"tasks/list":                    {{body: map[string]any{}, anyOf: assistantScopes("tasks:read")}},
	"tasks/cancel":                  {{body: map[string]any{"id": unknownIDs.task}, anyOf: assistantScopes("tasks:cancel")}},
	"tasks/subscribe":               {{body: map[string]any{"id": unknownIDs.task}, anyOf: assistantScopes("tasks:read")}},
	"tasks/pushNotificationConfig/": {{body: map[string]any{"id": unknownIDs.task}, anyOf: assistantScopes()}},
}

// roleScopes repeats the scopes of each role by hand: the tokens of the test must have exactly these.
var roleScopes = map[string]string{
	"admin":     "agents:read agents:call tasks:read tasks:cancel tasks:approve config:read config:write usage:read documents:read documents:write",
	"operator":  "agents:read agents:call tasks:read tasks:cancel tasks:approve config:read config:write usage:read documents:read documents:write",
	"developer": "agents:read agents:call tasks:read config:read config:write usage:read documents:read documents:write",
	"approver":  "agents:read tasks:read tasks:approve",
	"caller":    "agents:read agents:call documents:read",
	"viewer":    "agents:read tasks:read usage:read documents:read",
	"desk":      "agents:call:assistant tasks:approve", // a role of the app
	"elsewhere": "agents:call:other",                   // likewise
}

// matrixCaller is a kind of caller.
type matrixCaller struct {
	name, token     string
	scopes          []string
	unauthenticated bool // has no valid credential of the app
	operator        bool
}

// TestMatrix lets every kind of caller use every route and every JSON-RPC method: what the row allows is accepted,
// everything else is refused.
func TestMatrix(t *testing.T) {
	t.Parallel()
	o := newForeignIssuer(t)
	onEachEngineWith(t, o.writeConfig(t, "  push_notifications: true"), func(t *testing.T, h *testServer) {
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": `
llms: {m: {provider: scripted}}
agents: {assistant: {llm: m}}
`})
		callers := h.newMatrixCallers(t, o)
		frontend, err := h.NewFrontend(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})
		if err != nil {
			t.Fatal(err)
		}
		for _, route := range frontend.Routes() {
			key := route.Method + " " + route.Pattern
			n, ok := routeAccess[key]
			switch {
			case !ok:
				t.Errorf("%s: the matrix of roles has no row for this route", key)
				continue
			case n.access == byMethod:
				continue
			}
			for _, c := range callers {
				h.checkAccess(t, key, route.Method, n.path, n.body, n, c)
			}
		}
		for _, method := range listRPCMethods(t, "../../agentsvc/surface/ext/message.go") {
			rows, ok := rpcAccess[strings.Replace(method, "message/", "message:", 1)]
			if !ok {
				t.Errorf("%s: the matrix of roles has no row for this method", method)
			}
			for _, n := range rows {
				for _, c := range callers {
					h.checkAccess(t, method, "POST", "/apps/acme/agents/assistant", newRPCCall(method, n.body), n, c)
				}
			}
		}
		h.checkGRPCAccess(t, callers)
		h.checkA2AAccess(t, callers)
		h.checkMCPAccess(t, callers)
	})
}

// newMatrixCallers returns a caller for each role, for each scope that a token is narrowed to, and those without a
// credential.
func (ts *testServer) newMatrixCallers(t *testing.T, o *foreignIssuer) []matrixCaller {
	t.Helper()
	for _, role := range []string{"desk", "elsewhere"} {
		ts.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps/acme/roles", testSecret,
			map[string]any{"name": role, "scopes": strings.Fields(roleScopes[role])})
	}
	var callers []matrixCaller
	for _, role := range slices.Sorted(maps.Keys(roleScopes)) {
		token := ts.createToken(t, "acme", "zoe", map[string]any{"roles": []string{role}})
		callers = append(callers, matrixCaller{name: role, token: token, scopes: strings.Fields(roleScopes[role])})
	}
	for _, scope := range strings.Fields(roleScopes["admin"] + " agents:call:assistant agents:call:other") {
		token := ts.createToken(t, "acme", "zoe", map[string]any{"roles": []string{"admin"}, "scope": scope})
		callers = append(callers, matrixCaller{name: "admin narrowed to " + scope, token: token, scopes: []string{scope}})
	}
	nothing := ts.createToken(t, "acme", "zoe", map[string]any{"roles": []string{"viewer"}, "scope": "tasks:cancel"})
	return append(callers,
		matrixCaller{name: "viewer narrowed to what it lacks", token: nothing},
		matrixCaller{name: "anonymous", unauthenticated: true},
		matrixCaller{name: "forger", token: nothing[:len(nothing)-4] + "AAAA", unauthenticated: true},
		matrixCaller{name: "operator's token", token: o.signToken(map[string]any{"roles": []string{"platform_operator"}}), operator: true},
		matrixCaller{name: "admin secret", token: testSecret, operator: true},
	)
}

// checkAccess sends a request as c and compares whether it is accepted with the rule n.
func (ts *testServer) checkAccess(t *testing.T, what, method, path string, body any, n accessRule, c matrixCaller) {
	t.Helper()
	req := ts.newRequest(t, method, path, c.token, body)
	if n.agent != "" {
		req.Header.Set("agent-name", n.agent)
	}
	status, answer := ts.sendRequest(t, req)
	want := 0 // accepted
	switch {
	case n.access == anyCaller:
	case n.access == operatorOnly && c.unauthenticated:
		want = http.StatusUnauthorized
	case n.access == operatorOnly && !c.operator:
		want = http.StatusForbidden
	case n.access == operatorOnly:
	case c.operator: // on a route of a tenant
		want = http.StatusForbidden
	case n.access == discoveryOnly && c.token == "":
	case c.unauthenticated:
		want = http.StatusUnauthorized
	case n.access == discoveryOnly, n.access == callersOfApp:
	case !n.allowsScopes(c.scopes):
		want = http.StatusForbidden
	}
	refused := status == http.StatusUnauthorized || status == http.StatusForbidden
	if want != 0 && status != want || want == 0 && (refused || status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable) {
		t.Errorf("%s by %s: %d %.300s, want %s", what, c.name, status, answer, map[bool]string{true: "to be let in", false: http.StatusText(want)}[want == 0])
	}
}

// allowsScopes reports whether one of scopes satisfies n.
func (r accessRule) allowsScopes(scopes []string) bool {
	return slices.ContainsFunc(r.anyOf, func(s string) bool { return slices.Contains(scopes, s) })
}
