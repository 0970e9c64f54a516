// Package admin implements the admin API of the platform's operator below /admin (docs/api/admin.md): apps and what
// belongs to them, the queue, the processes and the audit trail. The billing endpoints are in package billingapi.
//
// [Routes] is the table of endpoints. Package surface admits the admin secret and platform operators only; the app is a
// parameter of the path. There is one handler type for each resource. An endpoint that reads is a [surface.Handler]
// (handle...); one that changes something is a function from [mutation.Request] to [mutation.Result], wrapped by
// [mutation.NewHandler] or [mutation.NewGuardedHandler], and must be marked Idempotent in the table. The services that it calls (tenancy, authz, task)
// validate the request, write the audit entry and return the errors that package apierror maps to statuses.
//
// To add an endpoint, write its function in the file of its resource, list it in [Routes], describe it in
// openapi/descriptions.json and in docs/api/admin.md.
//
// Request and response types are in wire.go. Times in responses are RFC 3339 in UTC with milliseconds, null for none.
package admin

import (
	"net/http"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/task"
	"stoa/authz"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/transfer"
)

// Options are the services behind the endpoints. All but InMemoryDB, RestartKeys and ProcessID are required.
type Options struct {
	Apps   *tenancy.Service
	Issuer *authz.BuiltInIssuer // issues the tokens of mintToken
	Keys   *authz.APIKeys       // creates and rotates API keys
	DB     *db.DB               // for queue statistics, tool pins, processes and traffic
	// InMemoryDB is the process's in-memory database, for apps with backend: inmemory; nil = there is none.
	InMemoryDB *db.DB
	// Transfer exports and imports apps.
	Transfer *transfer.Service
	// DeadLetters lists and requeues runs that failed for good.
	DeadLetters *task.DeadLetters
	// RestartKeys returns the keys of the default app's file that were changed and act only after a restart of the
	// process; nil = none.
	RestartKeys func() []string
	// ProcessID is the id of this process in the list of processes; "" = it is not in it.
	ProcessID string
}

// Routes returns the endpoints. Query lists the allowed query parameters of a route: one without it allows none, and
// package surface refuses all others, since a misspelled filter or dry_run would have an unwanted effect.
func Routes(o Options) []surface.Route {
	apps, revisions, secrets := appHandler{o.Apps, o.RestartKeys}, revisionHandler{o.Apps}, secretHandler{o.Apps}
	tokens, keys := tokenHandler{o.Apps, o.Issuer}, keyHandler{o.Apps, o.Keys}
	roles, policies, tools := roleHandler{o.Apps}, policyHandler{o.Apps, o.Keys}, toolHandler{o.Apps, o.DB}
	queue, deadLetters, audit := queueHandler{db: o.DB}, deadLetterHandler{o.DeadLetters}, auditHandler{o.Apps}
	moves, importBytes := transferHandler{o.Transfer}, transfer.DefaultMaxBytes
	if o.Transfer != nil {
		importBytes = o.Transfer.MaxBytes()
	}
	// Runs of apps in memory are in a database of their own; the statistics add them.
	if o.InMemoryDB != nil {
		queue.inMemoryDBs = []*db.DB{o.InMemoryDB}
	}
	routes := []surface.Route{
		// Apps, their secrets, tokens, keys, roles and tools.
		{Method: http.MethodPost, Pattern: "/admin/apps", Query: []string{"dry_run"}, Serve: mutation.NewHandler(apps.createApp), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps", Query: []string{"status", "page_size", "page_token"}, Serve: apps.handleListApps},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}", Serve: apps.handleGetApp},
		{Method: http.MethodPut, Pattern: "/admin/apps/{app}", Query: []string{"dry_run"}, Serve: mutation.NewGuardedHandler(apps.replaceApp), Idempotent: true},
		{Method: http.MethodPatch, Pattern: "/admin/apps/{app}", Query: []string{"dry_run"}, Serve: mutation.NewGuardedHandler(apps.patchApp), Idempotent: true},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}", Query: []string{"moved"}, Serve: mutation.NewGuardedHandler(apps.deleteApp), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}:suspend", Serve: mutation.NewGuardedHandler(apps.suspendApp), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}:resume", Serve: mutation.NewGuardedHandler(apps.resumeApp), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/revisions", Serve: revisions.handleListRevisions},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/revisions/{revision}", Serve: revisions.handleGetRevision},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/revisions/{revision}:restore", Query: []string{"dry_run"}, Serve: mutation.NewGuardedHandler(revisions.restoreRevision), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/secrets", Serve: secrets.handleListSecrets},
		{Method: http.MethodPut, Pattern: "/admin/apps/{app}/secrets/{name}", Serve: mutation.NewGuardedHandler(secrets.setSecret), Idempotent: true},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}/secrets/{name}", Serve: mutation.NewGuardedHandler(secrets.deleteSecret), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/tokens", Serve: mutation.NewHandler(tokens.mintToken), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/tokens:revoke", Serve: mutation.NewHandler(tokens.revokeTokens), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/keys", Serve: keys.handleListAPIKeys},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/keys", Serve: mutation.NewHandler(keys.createKey), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/keys/{key}", Serve: keys.handleGetAPIKey},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/keys/{key}:rotate", Serve: mutation.NewHandler(keys.rotateKey), Idempotent: true},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}/keys/{key}", Serve: mutation.NewHandler(keys.deleteKey), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/roles", Serve: roles.handleListRoles},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/roles", Serve: mutation.NewHandler(roles.addRole), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/roles/{role}", Serve: roles.handleGetRole},
		{Method: http.MethodPut, Pattern: "/admin/apps/{app}/roles/{role}", Serve: mutation.NewHandler(roles.updateRole), Idempotent: true},
		{Method: http.MethodDelete, Pattern: "/admin/apps/{app}/roles/{role}", Serve: mutation.NewHandler(roles.deleteRole), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/authz/explain", Query: []string{"subject", "object", "action", "roles", "scope"}, Serve: policies.handleExplain},
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/tools", Serve: tools.handleListTools},
		{Method: http.MethodPost, Pattern: "/admin/apps/{app}/tools/{mcp_server}/{tool}:accept", Serve: mutation.NewHandler(tools.acceptTool), Idempotent: true},
		// Moving an app: neither is bounded by the deadline of requests, and neither is kept in memory.
		{Method: http.MethodGet, Pattern: "/admin/apps/{app}/export", Serve: moves.handleExportApp, NoDeadline: true, RequestHeaders: []string{passphraseHeader}},
		{
			Method: http.MethodPost, Pattern: "/admin/apps:import", Query: []string{"grants"}, Serve: moves.handleImportApp, NoDeadline: true,
			StreamBytes: importBytes, RequestHeaders: []string{passphraseHeader},
		},
		// The schema of configurations. That of /api/schema needs a credential of an app, which the operator's is not.
		{Method: http.MethodGet, Pattern: "/admin/schema", Serve: handleSchema},
		// The queue of all apps.
		{Method: http.MethodGet, Pattern: "/admin/queue", Serve: queue.handleQueueStats},
		{Method: http.MethodGet, Pattern: "/admin/queue/dead", Query: []string{"app", "agent", "error", "page_size", "page_token"}, Serve: deadLetters.handleListDeadLetters},
		{Method: http.MethodPost, Pattern: "/admin/queue/dead:requeue", Serve: mutation.NewHandler(deadLetters.requeueRuns), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/admin/queue/dead/{id}:requeue", Serve: mutation.NewHandler(deadLetters.requeueRun), Idempotent: true},
		// The audit trail. An export may take longer than the deadline of requests.
		{Method: http.MethodGet, Pattern: "/admin/audit", Query: append(auditParams, "page_size", "page_token"), Serve: audit.handleAudit},
		{Method: http.MethodGet, Pattern: "/admin/audit/export", Query: auditParams, Serve: audit.handleExportAudit, NoDeadline: true},
	}
	routes = append(routes, fleetRoutes(o)...)
	for i := range routes {
		routes[i].Kind = surface.Admin
	}
	return routes
}
