// Package ops implements the endpoints of operators and of users about their own data: the task list, decisions on
// tool calls, checkpoints, memories and credentials of an app; the admin API below /admin (docs/api/admin.md); the
// billing endpoints (docs/billing.md); and the metrics.
//
// [Routes] is the table of endpoints. Routes of kind Tenant belong to an app: package surface resolves the app from
// the caller's credential, and the handler asks [surface.Request] which tasks or users the caller may act on.
// Routes of kind Admin belong to the platform: package surface admits the admin secret and platform operators only,
// and the app is a parameter of the path.
//
// An endpoint that reads is a [surface.Handler] (handle...). An endpoint of the admin API that changes something is
// a function from mutation to mutationResult (mutation.go), wrapped by newMutationHandler, which reads the body,
// dry_run and the actor, and writes status, ETag and body. It must be marked Idempotent in the table. The services
// that it calls (tenancy, authz, billing, task) validate the request, write the audit entry and return the errors
// that package surface maps to statuses.
//
// To add an endpoint, write its function in the file of its subject, list it in [Routes], describe it in
// openapi/descriptions.json and in docs/api/admin.md.
//
// Request and response types are in wire.go, those of billing in the file of their subject. Times in responses are
// RFC 3339 in UTC with milliseconds, null for none; amounts of money are integers in nano-units (10⁻⁹) of their
// currency.
package ops

import (
	"net/http"
	"slices"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
	"stoa/authz"
	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Options are the services behind the endpoints. Apps, Issuer, Keys, DB and DeadLetters are required.
type Options struct {
	Apps   *tenancy.Service
	Issuer *authz.Issuer  // issues the tokens of mintToken
	Keys   *authz.APIKeys // creates and rotates API keys
	DB     *db.DB         // for queue statistics and tool pins
	// InMemoryDB is the process's in-memory database, for apps with backend: inmemory; nil = there is none.
	InMemoryDB *db.DB
	// DeadLetters lists and requeues runs that failed for good.
	DeadLetters *task.DeadLetters

	// RestartKeys returns the keys of the default app's file that were changed and act only after a restart of the
	// process; nil = none.
	RestartKeys func() []string

	// Billing is nil if the platform does not bill; the billing endpoints then do not exist.
	Billing *billing.Service

	// Metrics serves the metrics; nil = the endpoint does not exist.
	Metrics     http.Handler
	MetricsPath string // "" = /metrics
	// MetricsToken is the bearer token that readers of the metrics must send; "" = none is needed.
	MetricsToken string
}

// Routes returns the endpoints. A route without a Kind is of kind Admin. Query lists the allowed query parameters
// of a route: an admin route without one allows none, and package surface refuses all others, since a misspelled
// filter or dry_run would have an unwanted effect.
func Routes(o Options) []surface.Route {
	a := adminAPI{apps: o.Apps, issuer: o.Issuer, keys: o.Keys, db: o.DB, deadLetters: o.DeadLetters, restartKeys: o.RestartKeys, billing: o.Billing}
	// Runs of apps in memory are in a database of their own; the statistics add them.
	if o.InMemoryDB != nil {
		a.inMemoryDBs = []*db.DB{o.InMemoryDB}
	}
	routes := []surface.Route{
		// Endpoints of an app.
		{Method: http.MethodGet, Pattern: "/tasks", Query: []string{"agent", "context_id", "status", "page_size", "page_token"}, Kind: surface.Tenant, Serve: handleListTasks},
		{Method: http.MethodGet, Pattern: "/memories", Query: []string{"user", "issuer", "page_size", "page_token"}, Kind: surface.Tenant, Serve: handleListMemories},
		{Method: http.MethodDelete, Pattern: "/memories", Query: []string{"user", "issuer"}, Kind: surface.Tenant, Serve: handleEraseMemories, Idempotent: true},
		{Method: http.MethodGet, Pattern: "/credentials", Kind: surface.Tenant, Serve: handleListCredentials},
		{Method: http.MethodDelete, Pattern: "/credentials/{tool}", Kind: surface.Tenant, Serve: handleDeleteCredential, Idempotent: true},
		{Method: http.MethodGet, Pattern: "/tasks/{task}/checkpoints", Kind: surface.Tenant, Serve: handleListCheckpoints},
		{Method: http.MethodGet, Pattern: "/tasks/{task}/notifications", Kind: surface.Tenant, Serve: handleListNotifications},
		{Method: http.MethodPost, Pattern: "/tasks/{task}/checkpoints/{checkpoint}:restore", Kind: surface.Tenant, Serve: handleRestoreCheckpoint, Idempotent: true},
		// Decisions need tasks:approve, also from the owner of the task. Package surface checks a Scope before the
		// handler runs.
		{Method: http.MethodPost, Pattern: "/tasks/{task}/approve", Kind: surface.Tenant, Scope: authz.TasksApprove, Serve: newDecisionHandler(agentsvc.OutcomeApproved), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/tasks/{task}/reject", Kind: surface.Tenant, Scope: authz.TasksApprove, Serve: newDecisionHandler(agentsvc.OutcomeRejected), Idempotent: true},

		// Apps, their secrets, tokens, keys, roles and tools.
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
		// The queue of all apps.
		{Method: http.MethodGet, Pattern: "/admin/queue", Serve: a.handleQueueStats},
		{Method: http.MethodGet, Pattern: "/admin/queue/dead", Query: []string{"app", "agent", "error", "page_size", "page_token"}, Serve: a.handleListDeadLetters},
		{Method: http.MethodPost, Pattern: "/admin/queue/dead:requeue", Serve: newMutationHandler(a.requeueRuns), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/queue/dead/{id}:requeue", Serve: newMutationHandler(a.requeueRun), Idempotent: true},
		// The audit trail. An export may take longer than the deadline of requests.
		{Method: http.MethodGet, Pattern: "/admin/audit", Query: append(auditParams, "page_size", "page_token"), Serve: a.handleAudit},
		{Method: http.MethodGet, Pattern: "/admin/audit/export", Query: auditParams, Serve: a.handleExportAudit, NoDeadline: true},
	}
	if a.billing != nil {
		routes = append(routes, slices.Concat(billingRoutes(a), invoiceRoutes(a))...)
	}
	// The default is Admin and not Tenant or Open, so that a forgotten Kind cannot open an endpoint.
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

// adminAPI holds the dependencies of the admin endpoints; see Options. It is read-only and used by value.
type adminAPI struct {
	apps   *tenancy.Service
	issuer *authz.Issuer
	keys   *authz.APIKeys
	db     *db.DB
	// inMemoryDBs are the databases in this process's memory; handleQueueStats adds their runs.
	inMemoryDBs []*db.DB
	deadLetters *task.DeadLetters
	restartKeys func() []string

	billing *billing.Service // nil = no billing endpoints are registered
}
