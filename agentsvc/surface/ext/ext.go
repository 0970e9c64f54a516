// Package ext is the extension surface: paths without a version, JSON in snake_case, one JSON-RPC endpoint for each
// agent. wire.go holds the shapes, convert.go turns words into them and back, and routes.go is the table of what is
// answered; message.go, task.go and card.go answer it, health.go says how the process is.
package ext

import (
	"context"
	"net/http"
	"time"

	"stoa/agentsvc/config"
	"stoa/agentsvc/surface"
	"stoa/authz"
)

// Options tell the surface about the process. What is nil is not asked.
type Options struct {
	Version  string                      // of the service, in the form v1.2.3
	Role     string                      // of the process, as /ready tells it
	Database func(context.Context) error // whether the database answers
	Ready    func(context.Context) error // whether requests may come: not while migrating or draining
	JWKS     func() []byte               // the public keys of the built-in issuer
	CardKeys func() []byte               // those that cards are signed with
	Auth     config.Auth                 // how to log in, for /health to tell
	BlockFor time.Duration               // how long a blocking call waits for its task; 0 = 5 minutes
}

// Routes returns what the surface answers.
func Routes(o Options) []surface.Route {
	if o.BlockFor == 0 {
		o.BlockFor = 5 * time.Minute
	}
	h, c := newHealthChecker(o), handler{blockFor: o.BlockFor}
	return []surface.Route{
		{Method: http.MethodGet, Pattern: "/health", Kind: surface.Open, Serve: h.handleHealth},
		{Method: http.MethodGet, Pattern: "/ready", Kind: surface.Open, Serve: h.handleReady},
		{Method: http.MethodGet, Pattern: "/.well-known/jwks.json", Kind: surface.Open, Serve: newJWKSHandler(o.JWKS)},
		{Method: http.MethodGet, Pattern: CardKeysPath, Kind: surface.Open, Serve: newJWKSHandler(o.CardKeys)},
		{Method: http.MethodGet, Pattern: "/.well-known/agent-card.json", Kind: surface.Tenant, Discovery: true, Serve: handleDefaultCard},
		{Method: http.MethodGet, Pattern: "/agents", Kind: surface.Tenant, Discovery: true, Serve: handleListCards},
		{Method: http.MethodGet, Pattern: "/agents/{agent}", Kind: surface.Tenant, Discovery: true, Serve: handleCard},
		{Method: http.MethodGet, Pattern: "/agents/{agent}/.well-known/agent-card.json", Kind: surface.Tenant, Discovery: true, Serve: handleCard},
		{Method: http.MethodPost, Pattern: "/agents/{agent}", Kind: surface.Tenant, LargeBody: true, NoDeadline: true, Serve: surface.NewJSONRPCHandler(c.findMethod)},
		{Method: http.MethodPost, Pattern: "/api/tasks/{task}/toolCalls/{call}/cancel", Kind: surface.Tenant, Serve: handleCancelCall, Idempotent: true},
		{Method: http.MethodGet, Pattern: "/api/schema", Kind: surface.Tenant, Scope: authz.ConfigRead, Serve: handleSchema},
	}
}
