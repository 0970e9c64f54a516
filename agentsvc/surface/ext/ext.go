// Package ext implements the extension surface (docs/api/extension.md): paths without a version, JSON in
// snake_case, one JSON-RPC endpoint per agent, discovery of agents, and the health and key endpoints of the
// process.
//
// [Routes] is the table of endpoints. Package surface authenticates the caller and resolves the tenant before it
// calls a handler. message.go and task.go implement the JSON-RPC methods (see handler.findMethod), card.go
// describes agents, health.go reports the state of the process and serves public keys. wire.go holds the request
// and response types, convert.go converts them to and from domain types. Responses about tasks use the records of
// package surface, which other surfaces share.
//
// To add a JSON-RPC method, write its function and list it in findMethod. A method that does not wait for a task
// must be wrapped in withDeadline, because the route itself has no deadline.
package ext

import (
	"context"
	"net/http"
	"time"

	"stoa/agentsvc/config"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/agentcard"
	"stoa/agentsvc/surface/jsonrpc"
	"stoa/authz"
)

// Options describe the process. A nil function means that the process does not have what it reports.
type Options struct {
	Version  string                      // of the service, in the form v1.2.3; shown by /health
	Role     string                      // of the process (the flag --role), shown by /ready
	Database func(context.Context) error // pings the database; nil = there is nothing to ping
	Ready    func(context.Context) error // returns an error while the process migrates or drains; nil = always ready
	// JWKS returns the public keys of the built-in token issuer as a JWK set; nil = there is no issuer.
	JWKS func() []byte
	// CardKeys returns the public keys of card signatures as a JWK set; nil = cards are not signed.
	CardKeys func() []byte
	// Metrics serves the metrics; nil = the endpoint does not exist.
	Metrics     http.Handler
	MetricsPath string // "" = /metrics
	// MetricsToken is the bearer token that readers of the metrics must send; "" = none is needed.
	MetricsToken string

	// Cards builds the cards of agents.
	Cards    agentcard.Builder
	Auth     config.Auth   // how to log in, shown by /health
	Studio   Studio        // reads and writes the operator's file
	BlockFor time.Duration // how long a blocking call waits for its task; 0 = 5 minutes
}

// Routes returns the endpoints:
//
//	/health, /ready                  probes of the process
//	/metrics                         metrics, at MetricsPath
//	/.well-known/jwks.json           keys of the built-in token issuer
//	/.well-known/card-keys.json      keys of card signatures
//	/agents, /agents/{agent}         discovery; no credential needed, visibility decides
//	POST /agents/{agent}             JSON-RPC
//	/api/tasks/.../toolCalls/...     cancels one tool call
//	/api/schema                      JSON Schema of configurations
//	/api/config                      the operator's file, in studio mode
//
// The routes of kind Tenant are also mounted below /apps/{app}; those of kind Open need no credential and belong to
// the process.
func Routes(o Options) []surface.Route {
	if o.BlockFor == 0 {
		o.BlockFor = 5 * time.Minute
	}
	h, c, cards := newHealthChecker(o), handler{blockFor: o.BlockFor}, cardHandler{o.Cards}
	studio := studioHandler{o.Studio, o.Auth}
	routes := []surface.Route{
		{Method: http.MethodGet, Pattern: "/health", Kind: surface.Open, Serve: h.handleHealth},
		{Method: http.MethodGet, Pattern: "/ready", Kind: surface.Open, Serve: h.handleReady},
		{Method: http.MethodGet, Pattern: "/.well-known/jwks.json", Kind: surface.Open, Serve: newJWKSHandler(o.JWKS)},
		{Method: http.MethodGet, Pattern: CardKeysPath, Kind: surface.Open, Serve: newJWKSHandler(o.CardKeys)},
		{Method: http.MethodGet, Pattern: agentcard.Path, Aliases: []string{agentcard.OldPath}, Kind: surface.Tenant, Discovery: true, Serve: cards.handleDefaultCard},
		{Method: http.MethodGet, Pattern: "/agents", Kind: surface.Tenant, Discovery: true, Serve: cards.handleListCards},
		{Method: http.MethodGet, Pattern: "/agents/{agent}", Kind: surface.Tenant, Discovery: true, Serve: cards.handleCard},
		{Method: http.MethodGet, Pattern: "/agents/{agent}" + agentcard.Path, Kind: surface.Tenant, Discovery: true, Serve: cards.handleCard},
		{Method: http.MethodPost, Pattern: "/agents/{agent}", Kind: surface.Tenant, LargeBody: true, NoDeadline: true, Serve: jsonrpc.NewHandler(c.findMethod)},
		{Method: http.MethodPost, Pattern: "/api/tasks/{task}/toolCalls/{call}/cancel", Kind: surface.Tenant, Serve: handleCancelCall, Idempotent: true},
		{Method: http.MethodGet, Pattern: "/api/schema", Kind: surface.Tenant, Scope: authz.ConfigRead, Serve: handleSchema},
		{Method: http.MethodGet, Pattern: studioPath, Kind: surface.Tenant, Serve: studio.handleGetConfig},
		{Method: http.MethodPost, Pattern: studioPath, Kind: surface.Tenant, Query: []string{"dry_run"}, Serve: studio.handleSaveConfig, Idempotent: true},
	}
	if o.Metrics != nil {
		routes = append(routes, newMetricsRoute(o))
	}
	return routes
}
