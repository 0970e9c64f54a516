// Package tenantapi implements the endpoints of an app's users, developers and operators about the app's data: the
// tasks of all agents, decisions on tool calls, checkpoints, notifications, memories, credentials, the configuration
// and its secrets.
//
// [Routes] is the table of endpoints. Package surface resolves the app from the caller's credential, and the handler
// asks [surface.Request] which tasks or users the caller may act on. Request and response types are in wire.go.
package tenantapi

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/authz"
	"stoa/billing/usage"
	"stoa/tenancy"
)

// Routes returns the endpoints; apps has the configurations and secrets, charged what apps are charged for the calls of
// their models.
func Routes(apps *tenancy.Service, charged *usage.Service) []surface.Route {
	configs := newConfigHandler(apps)
	routes := []surface.Route{
		{Method: http.MethodGet, Pattern: "/caller", Serve: handleGetCaller},
		{Method: http.MethodGet, Pattern: "/tasks", Query: []string{"agent", "context_id", "status", "since", "until", "text", "page_size", "page_token"}, Serve: handleListTasks},
		{Method: http.MethodGet, Pattern: "/tasks/{task}", Query: []string{"history_length"}, Serve: handleGetTask},
		{Method: http.MethodGet, Pattern: "/tasks/{task}/log", Query: []string{"after", "page_size", "page_token"}, Serve: logHandler{charged}.handleReadLog},
		{Method: http.MethodGet, Pattern: "/memories", Query: []string{"user", "issuer", "page_size", "page_token"}, Serve: handleListMemories},
		{Method: http.MethodDelete, Pattern: "/memories", Query: []string{"user", "issuer"}, Serve: handleEraseMemories, Idempotent: true},
		{Method: http.MethodGet, Pattern: "/credentials", Serve: handleListCredentials},
		{Method: http.MethodDelete, Pattern: "/credentials/{tool}", Serve: handleDeleteCredential, Idempotent: true},
		{Method: http.MethodGet, Pattern: "/tasks/{task}/checkpoints", Serve: handleListCheckpoints},
		{Method: http.MethodGet, Pattern: "/tasks/{task}/notifications", Serve: handleListNotifications},
		{Method: http.MethodPost, Pattern: "/tasks/{task}/checkpoints/{checkpoint}:restore", Serve: handleRestoreCheckpoint, Idempotent: true},
		{Method: http.MethodPost, Pattern: "/tasks/{task}/cancel", Serve: handleCancelTask, Idempotent: true},
		// Decisions need tasks:approve, also from the owner of the task. Package surface checks a Scope before the
		// handler runs.
		{Method: http.MethodPost, Pattern: "/tasks/{task}/approve", Scope: authz.TasksApprove, Serve: newDecisionHandler(agentsvc.OutcomeApproved), Idempotent: true},
		{Method: http.MethodPost, Pattern: "/tasks/{task}/reject", Scope: authz.TasksApprove, Serve: newDecisionHandler(agentsvc.OutcomeRejected), Idempotent: true},
		{Method: http.MethodGet, Pattern: "/config", Scope: authz.ConfigRead, Serve: configs.handleGetConfig},
		{Method: http.MethodPut, Pattern: "/config", Scope: authz.ConfigWrite, Query: []string{"dry_run"}, Serve: configs.handlePutConfig, Idempotent: true},
		{Method: http.MethodGet, Pattern: "/config/revisions", Scope: authz.ConfigRead, Serve: configs.handleListConfigRevisions},
		{Method: http.MethodGet, Pattern: "/config/revisions/{revision}", Scope: authz.ConfigRead, Serve: configs.handleGetConfigRevision},
		{Method: http.MethodPost, Pattern: "/config/revisions/{revision}:restore", Scope: authz.ConfigWrite, Query: []string{"dry_run"}, Serve: configs.handleRestoreConfig, Idempotent: true},
		{Method: http.MethodGet, Pattern: "/secrets", Scope: authz.ConfigRead, Serve: configs.handleListSecrets},
		{Method: http.MethodPut, Pattern: "/secrets/{name}", Scope: authz.ConfigWrite, Serve: configs.handlePutSecret, Idempotent: true},
		{Method: http.MethodDelete, Pattern: "/secrets/{name}", Scope: authz.ConfigWrite, Serve: configs.handleDeleteSecret, Idempotent: true},
	}
	for i := range routes {
		routes[i].Kind = surface.Tenant
	}
	return routes
}
