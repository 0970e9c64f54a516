// Package ops is what operators use: the list of an app's tasks, decisions on their tool calls, the admin API over apps
// and the queue, and the metrics; and where users see and erase what is kept of theirs. task.go, checkpoint.go, memory.go, credential.go,
// app.go, secret.go, token.go, apikey.go, role.go, explain.go, tool.go, queue.go, audit.go, price.go, plan.go, budget.go and usage.go answer;
// wire.go holds the shapes, answer.go what the calls of the admin
// API have in common.
package ops

import (
	"net/http"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
	"stoa/authz"
	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Options are what the endpoints administer. Apps, Issuer, Keys, DB and Dead are required.
type Options struct {
	Apps   *tenancy.Service
	Issuer *authz.Issuer
	Keys   *authz.APIKeys
	DB     *db.DB
	Memory *db.DB // where apps keep tasks in the memory of this process; nil = nowhere
	Dead   *task.DeadLetters

	Awaits func() []string // the keys of the default app's file that act once the process is restarted; nil = there are none

	Billing *billing.Service // nil = there is none

	Metrics      http.Handler // nil = there are none
	MetricsPath  string       // "" = /metrics
	MetricsToken string       // bearer token that readers of the metrics need; "" = none
}

// Routes returns what the endpoints answer.
func Routes(o Options) []surface.Route {
	a := admin{apps: o.Apps, issuer: o.Issuer, keys: o.Keys, db: o.DB, dead: o.Dead, awaits: o.Awaits, billing: o.Billing}
	if o.Memory != nil {
		a.memory = []*store.Runs{store.NewRuns(o.Memory)}
	}
	routes := []surface.Route{
		{Method: http.MethodGet, Pattern: "/tasks", Query: []string{"agent", "context_id", "status", "page_size", "page_token"}, Kind: surface.Tenant, Serve: listTasks},
		{Method: http.MethodGet, Pattern: "/memories", Query: []string{"user", "issuer", "page_size", "page_token"}, Kind: surface.Tenant, Serve: listMemories},
		{Method: http.MethodDelete, Pattern: "/memories", Query: []string{"user", "issuer"}, Kind: surface.Tenant, Serve: eraseMemories, Once: true},
		{Method: http.MethodGet, Pattern: "/credentials", Kind: surface.Tenant, Serve: listCredentials},
		{Method: http.MethodDelete, Pattern: "/credentials/{tool}", Kind: surface.Tenant, Serve: forgetCredential, Once: true},
		{Method: http.MethodGet, Pattern: "/tasks/{task}/checkpoints", Kind: surface.Tenant, Serve: listCheckpoints},
		{Method: http.MethodGet, Pattern: "/tasks/{task}/notifications", Kind: surface.Tenant, Serve: listNotifications},
		{Method: http.MethodPost, Pattern: "/tasks/{task}/checkpoints/{checkpoint}:restore", Kind: surface.Tenant, Serve: restoreCheckpoint, Once: true},
		{Method: http.MethodPost, Pattern: "/tasks/{task}/approve", Kind: surface.Tenant, Scope: authz.TasksApprove, Serve: decide(agentsvc.Approve), Once: true},
		{Method: http.MethodPost, Pattern: "/tasks/{task}/reject", Kind: surface.Tenant, Scope: authz.TasksApprove, Serve: decide(agentsvc.Reject), Once: true},

		{Method: http.MethodPost, Pattern: "/admin/apps", Query: []string{"dry_run"}, Serve: act(a.create), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/apps", Query: []string{"status", "page_size", "page_token"}, Serve: a.list},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}", Serve: a.get},
		{Method: http.MethodPut, Pattern: "/admin/apps/{app}", Query: []string{"dry_run"}, Serve: act(a.update), Once: true},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}", Serve: act(a.remove), Once: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}:suspend", Serve: act(a.suspend), Once: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}:resume", Serve: act(a.resume), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/revisions", Serve: a.revisions},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/revisions/{revision}:restore", Serve: act(a.restore), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/secrets", Serve: a.secrets},
		{Method: http.MethodPut, Pattern: "/admin/apps/{app}/secrets/{name}", Serve: act(a.putSecret), Once: true},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}/secrets/{name}", Serve: act(a.deleteSecret), Once: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/tokens", Serve: act(a.mint), Once: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/tokens:revoke", Serve: act(a.revoke), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/keys", Serve: a.apiKeys},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/keys", Serve: act(a.createKey), Once: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/keys/{key}:rotate", Serve: act(a.rotateKey), Once: true},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}/keys/{key}", Serve: act(a.deleteKey), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/roles", Serve: a.roles},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/roles", Serve: act(a.addRole), Once: true},
		{Method: http.MethodPut, Pattern: "/admin/apps/{app}/roles/{role}", Serve: act(a.setRole), Once: true},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}/roles/{role}", Serve: act(a.deleteRole), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/authz/explain", Query: []string{"subject", "object", "action", "roles", "scope"}, Serve: a.explain},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/tools", Serve: a.tools},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/tools/{server}/{tool}:accept", Serve: act(a.acceptTool), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/queue", Serve: a.queue},
		{Method: http.MethodGet, Pattern: "/admin/queue/dead", Query: []string{"app", "agent", "error", "page_size", "page_token"}, Serve: a.deadLetters},
		{Method: http.MethodPost, Pattern: "/admin/queue/dead:requeue", Serve: act(a.requeueAll), Once: true},
		{Method: http.MethodPost, Pattern: "/admin/queue/dead/{id}:requeue", Serve: act(a.requeue), Once: true},
		{Method: http.MethodGet, Pattern: "/admin/audit", Query: append(auditNames, "page_size", "page_token"), Serve: a.audit},
		{Method: http.MethodGet, Pattern: "/admin/audit/export", Query: auditNames, Serve: a.exportAudit, Waits: true},
	}
	if a.billing != nil {
		routes = append(routes, slices.Concat(billingRoutes(a), invoiceRoutes(a))...)
	}
	for i := range routes {
		if routes[i].Kind == "" {
			routes[i].Kind = surface.Admin
		}
	}
	if o.Metrics != nil {
		routes = append(routes, metrics(o))
	}
	return routes
}

// admin answers the admin API.
type admin struct {
	apps   *tenancy.Service
	issuer *authz.Issuer
	keys   *authz.APIKeys
	db     *db.DB
	memory []*store.Runs
	dead   *task.DeadLetters
	awaits func() []string

	billing *billing.Service
}
