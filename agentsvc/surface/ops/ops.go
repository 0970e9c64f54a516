// Package ops is what operators use: the list of an app's tasks, decisions on their tool calls, the admin API over apps
// and the queue, and the metrics; and where users see and erase what is kept of theirs. task.go, checkpoint.go, memory.go, credential.go,
// app.go, secret.go, token.go, apikey.go, role.go, explain.go, tool.go, queue.go, audit.go, price.go, plan.go, budget.go and usage.go answer;
// wire.go holds the shapes, mutation.go what the calls of the admin
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
	Apps        *tenancy.Service
	Issuer      *authz.Issuer
	Keys        *authz.APIKeys
	DB          *db.DB
	InMemoryDB  *db.DB // where apps keep tasks in the memory of this process; nil = nowhere
	DeadLetters *task.DeadLetters

	RestartKeys func() []string // the keys of the default app's file that act once the process is restarted; nil = there are none

	Billing *billing.Service // nil = there is none

	Metrics      http.Handler // nil = there are none
	MetricsPath  string       // "" = /metrics
	MetricsToken string       // bearer token that readers of the metrics need; "" = none
}

// Routes returns what the endpoints answer.
func Routes(o Options) []surface.Route {
	a := adminAPI{apps: o.Apps, issuer: o.Issuer, keys: o.Keys, db: o.DB, deadLetters: o.DeadLetters, restartKeys: o.RestartKeys, billing: o.Billing}
	if o.InMemoryDB != nil {
		a.inMemoryRuns = []*store.RunQueue{store.NewRunQueue(o.InMemoryDB)}
	}
	routes := []surface.Route{
		{Method: http.MethodGet, Pattern: "/tasks", Query: []string{"agent", "context_id", "status", "page_size", "page_token"}, Kind: surface.Tenant, Serve: handleListTasks},
		{Method: http.MethodGet, Pattern: "/memories", Query: []string{"user", "issuer", "page_size", "page_token"}, Kind: surface.Tenant, Serve: handleListMemories},
		{Method: http.MethodDelete, Pattern: "/memories", Query: []string{"user", "issuer"}, Kind: surface.Tenant, Serve: handleEraseMemories, Idempotent: true},
		{Method: http.MethodGet, Pattern: "/credentials", Kind: surface.Tenant, Serve: handleListCredentials},
		{Method: http.MethodDelete, Pattern: "/credentials/{tool}", Kind: surface.Tenant, Serve: handleDeleteCredential, Idempotent: true},
		{Method: http.MethodGet, Pattern: "/tasks/{task}/checkpoints", Kind: surface.Tenant, Serve: handleListCheckpoints},
		{Method: http.MethodGet, Pattern: "/tasks/{task}/notifications", Kind: surface.Tenant, Serve: handleListNotifications},
		{Method: http.MethodPost, Pattern: "/tasks/{task}/checkpoints/{checkpoint}:restore", Kind: surface.Tenant, Serve: handleRestoreCheckpoint, Idempotent: true},
		{Method: http.MethodPost, Pattern: "/tasks/{task}/approve", Kind: surface.Tenant, Scope: authz.TasksApprove, Serve: newDecisionHandler(agentsvc.OutcomeApproved), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/tasks/{task}/reject", Kind: surface.Tenant, Scope: authz.TasksApprove, Serve: newDecisionHandler(agentsvc.OutcomeRejected), Idempotent: true},

		{Method: http.MethodPost, Pattern: "/admin/apps", Query: []string{"dry_run"}, Serve: newMutationHandler(a.createApp), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps", Query: []string{"status", "page_size", "page_token"}, Serve: a.handleListApps},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}", Serve: a.handleGetApp},
		{Method: http.MethodPut, Pattern: "/admin/apps/{app}", Query: []string{"dry_run"}, Serve: newMutationHandler(a.updateApp), Idempotent: true},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}", Serve: newMutationHandler(a.deleteApp), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}:suspend", Serve: newMutationHandler(a.suspendApp), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}:resume", Serve: newMutationHandler(a.resumeApp), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/revisions", Serve: a.handleListRevisions},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/revisions/{revision}:restore", Serve: newMutationHandler(a.restoreRevision), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/secrets", Serve: a.handleListSecrets},
		{Method: http.MethodPut, Pattern: "/admin/apps/{app}/secrets/{name}", Serve: newMutationHandler(a.setSecret), Idempotent: true},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}/secrets/{name}", Serve: newMutationHandler(a.deleteSecret), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/tokens", Serve: newMutationHandler(a.mintToken), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/tokens:revoke", Serve: newMutationHandler(a.revokeTokens), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/keys", Serve: a.handleListAPIKeys},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/keys", Serve: newMutationHandler(a.createKey), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/keys/{key}:rotate", Serve: newMutationHandler(a.rotateKey), Idempotent: true},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}/keys/{key}", Serve: newMutationHandler(a.deleteKey), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/roles", Serve: a.handleListRoles},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/roles", Serve: newMutationHandler(a.addRole), Idempotent: true},
		{Method: http.MethodPut, Pattern: "/admin/apps/{app}/roles/{role}", Serve: newMutationHandler(a.updateRole), Idempotent: true},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}/roles/{role}", Serve: newMutationHandler(a.deleteRole), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/authz/explain", Query: []string{"subject", "object", "action", "roles", "scope"}, Serve: a.handleExplain},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/tools", Serve: a.handleListTools},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/tools/{server}/{tool}:accept", Serve: newMutationHandler(a.acceptTool), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/queue", Serve: a.handleQueueStats},
		{Method: http.MethodGet, Pattern: "/admin/queue/dead", Query: []string{"app", "agent", "error", "page_size", "page_token"}, Serve: a.handleListDeadLetters},
		{Method: http.MethodPost, Pattern: "/admin/queue/dead:requeue", Serve: newMutationHandler(a.requeueRuns), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/queue/dead/{id}:requeue", Serve: newMutationHandler(a.requeueRun), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/audit", Query: append(auditParams, "page_size", "page_token"), Serve: a.handleAudit},
		{Method: http.MethodGet, Pattern: "/admin/audit/export", Query: auditParams, Serve: a.handleExportAudit, NoDeadline: true},
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
		routes = append(routes, newMetricsRoute(o))
	}
	return routes
}

// adminAPI answers the admin API.
type adminAPI struct {
	apps         *tenancy.Service
	issuer       *authz.Issuer
	keys         *authz.APIKeys
	db           *db.DB
	inMemoryRuns []*store.RunQueue
	deadLetters  *task.DeadLetters
	restartKeys  func() []string

	billing *billing.Service
}
