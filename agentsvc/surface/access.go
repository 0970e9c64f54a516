package surface

import (
	"context"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trail"
	"stoa/authz"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/router"
)

// Access is an authenticated caller inside one app, and what the caller may do and see there.
type Access struct {
	// Principal is who calls. A credential that an agent requires, or the signature of a delivery, may replace an
	// anonymous one.
	Principal authz.Principal
	App       *tenancy.App
	// Runtime is the built revision of the app. It must not be used after [Request.ReleaseApp], which allows the cache
	// to close it. It knows all agents: those that the caller may see are found by [Access.Card] and
	// [Access.FindAgent].
	Runtime *runtime.Runtime

	policy  *authz.Policy
	address router.Address
	server  *Server
	// requestRecord is for the request's log line and its response headers; nil outside of a route.
	requestRecord *requestRecord
	// memory is what reads for the response reserve: the response's own reservation, or that of one message of a
	// WebSocket; nil outside of a route. Set before the handler runs.
	memory *capacity.MemoryReservation
	// origin is where the request came from; the zero value outside of a route. Set like memory.
	origin audit.Origin
	// credentials are kept so that [Request.checkAccess] can authenticate a long-lived stream again.
	credentials Credentials
}

// Authorize returns nil if the caller may take action with agent ("" = any). Handlers call it before they look up
// anything that the request names, so that a refusal says nothing about what exists. It returns an error with
// [agentsvc.CodeDenied], or an [authz.ErrUnauthenticated] if the agent requires a credential of its own that the caller
// did not send.
func (a *Access) Authorize(ctx context.Context, action authz.Scope, agent string) (err error) {
	_, span := trail.StartSpan(ctx, "admit")
	defer func() { trail.EndSpan(span, err) }()
	if err := a.requireAgentCredentials(ctx, agent); err != nil {
		return err
	}
	return a.policy.Authorize(a.Principal, action, agent)
}

// HasScope reports whether the caller has a scope, for a route that answers differently to callers who have it. A route
// that needs the scope calls [Access.Authorize].
func (a *Access) HasScope(action authz.Scope) bool {
	return a.policy.Authorize(a.Principal, action, "") == nil
}

// ListScopes returns the scopes that the caller has. It returns an error with [agentsvc.CodeDenied] for a caller who does not
// belong to the app.
func (a *Access) ListScopes() ([]authz.Scope, error) { return a.policy.ListScopes(a.Principal) }

// ResolveVisibility returns which tasks of an agent ("" = of every agent) the caller may act on: all of the app's if it
// has the scope wide, else its own. The task service answers for a task outside of the visibility as for one that does
// not exist. It returns an error with [agentsvc.CodeDenied] for a caller who has neither, or an
// [authz.ErrUnauthenticated] as [Access.Authorize] does.
func (a *Access) ResolveVisibility(ctx context.Context, wide authz.Scope, agent string) (task.Visibility, error) {
	if err := a.requireAgentCredentials(ctx, agent); err != nil {
		return task.Visibility{}, err
	}
	allowed, err := a.policy.AuthorizeTasks(a.Principal, wide, agent)
	if err != nil {
		return task.Visibility{}, err
	}
	visibility := task.Visibility{Agents: allowed.Agents, Memory: a.memory}
	if agent != "" {
		visibility.Agents = []string{agent}
	}
	if !allowed.All {
		owner := a.Principal.Owner()
		visibility.Owner = &owner
	}
	return visibility, nil
}

// Origin returns where the request came from, for audit entries.
func (a *Access) Origin() audit.Origin { return a.origin }

// Actor returns the caller as the actor of audit entries.
func (a *Access) Actor() audit.Actor { return audit.NewUserActor(a.Principal.Owner(), a.origin) }

// OwnVisibility returns the visibility of the caller's own tasks of an agent. It checks no permission.
func (a *Access) OwnVisibility(agent string) task.Visibility {
	owner := a.Principal.Owner()
	return task.Visibility{Agents: []string{agent}, Owner: &owner, Memory: a.memory}
}

// ResolveAgentVisibility is [Access.ResolveVisibility] for an agent that must also exist for the caller, see
// [Access.FindAgent].
func (a *Access) ResolveAgentVisibility(ctx context.Context, wide authz.Scope, agent string) (task.Visibility, error) {
	visibility, err := a.ResolveVisibility(ctx, wide, agent)
	if err == nil {
		_, err = a.FindAgent(agent)
	}
	return visibility, err
}

// AuthorizeAgent is [Access.Authorize] followed by [Access.FindAgent]. The order matters: a caller without the
// permission gets the same refusal whether or not the agent exists.
func (a *Access) AuthorizeAgent(ctx context.Context, action authz.Scope, agent string) error {
	if err := a.Authorize(ctx, action, agent); err != nil {
		return err
	}
	_, err := a.FindAgent(agent)
	return err
}

// Path returns the path of the request without the part that names the app.
func (a *Access) Path() string { return a.address.Path }

// AddressPath returns the path of a tenant route with the part that names the app, if the path of the request has it.
func (a *Access) AddressPath(path string) string { return a.address.Prefix + path }

// CheckPage returns the error for an anonymous request with a method that a web page of another origin may have sent,
// nil if it may act, see [crossorigin.PageGuard]. [Server.Authenticate] has checked it, except on signed routes, where
// a GET acts too.
func (a *Access) CheckPage(method string) error {
	return a.server.pageGuard.CheckAction(method, a.credentials.Host, a.credentials.Header, a.address.Host != "")
}
