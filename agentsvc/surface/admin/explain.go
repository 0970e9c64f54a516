package admin

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/response"
	"stoa/authz"
	"stoa/tenancy"
)

// policyHandler serves questions about apps' policies. It is read-only and used by value.
type policyHandler struct {
	apps *tenancy.Service
	keys *authz.APIKeys
}

// handleExplain answers what an app's policy decides about a principal, and by which rule. It uses the same policy
// code as a request.
func (h policyHandler) handleExplain(w http.ResponseWriter, r *http.Request) error {
	scope, agent, err := parseExplainQuery(r)
	if err != nil {
		return err
	}
	app, err := h.apps.LoadApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	p, err := h.loadPrincipal(r, &app)
	if err != nil {
		return err
	}
	policy, err := authz.NewPolicy(app.ID, app.Roles...)
	if err != nil {
		return err
	}
	// The built-in and the app's own roles; the policy of the running app is built from the same.
	x, err := policy.ExplainAuthorization(p, scope, agent)
	if err != nil {
		return err
	}
	out := explainBody{
		Allowed: x.Allowed, Reason: x.Reason, Holders: []ruleBody{},
		Principal: principalBody{Subject: p.Subject, Roles: p.Roles, Scopes: scopeNames(p.Scopes), UnknownRoles: unknownRoles(p.Roles, &app)},
		Action:    string(scope), Object: cmp.Or(agent, "*"),
	}
	// Without a rule the member is null.
	if x.Rule != nil {
		rule := ruleBody(*x.Rule)
		out.Rule = &rule
	}
	for _, h := range x.GrantingRules {
		out.Holders = append(out.Holders, ruleBody(h))
	}
	if scope == authz.TasksRead || scope == authz.TasksCancel {
		// Without the scope a principal that may call agents still acts on its own tasks.
		out.Tasks = describeVisibility(policy, p, scope)
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// loadPrincipal returns the principal of the query. It need not exist: it is the principal that a token with this
// sub, these roles and this scope would have. For an API key (key:<id>) without roles and scope in the query, those
// of the stored key are used.
func (h policyHandler) loadPrincipal(r *http.Request, app *tenancy.App) (authz.Principal, error) {
	q := r.URL.Query()
	subject, scope := q.Get("subject"), q.Get("scope")
	roles := strings.FieldsFunc(q.Get("roles"), func(c rune) bool { return c == ',' || c == ' ' })
	if id, isKey := strings.CutPrefix(subject, tenancy.APIKeySubjectPrefix); isKey && len(roles) == 0 && scope == "" {
		key, of, err := h.keys.Store.Find(r.Context(), id)
		// A key of another app is answered as one that does not exist.
		if err == nil && of.App != app.ID {
			err = agentsvc.NewError(agentsvc.CodeNotFound, "not found: no such key")
		}
		if err != nil {
			return authz.Principal{}, err
		}
		roles, scope = key.Roles, key.Scope
	}
	return authz.HypotheticalPrincipal(app, subject, roles, scope)
}

// parseExplainQuery returns the scope of the query's action and the agent of its object, "" for all agents. Only
// agents:call has an object; it may be part of the action (agents:call:<agent>).
func parseExplainQuery(r *http.Request) (scope authz.Scope, agent string, err error) {
	action, object := r.URL.Query().Get("action"), r.URL.Query().Get("object")
	if action == "" {
		return "", "", agentsvc.NewInvalidError("action", "is missing: a scope such as agents:call or tasks:read")
	}
	if object == "*" {
		object = ""
	}
	scope, agent, err = authz.ParseScope("action", action)
	switch {
	case err != nil:
		return "", "", err
	case object == "":
		return scope, agent, nil
	case scope != authz.AgentsCall:
		return "", "", agentsvc.NewInvalidError("object", "must be * or left out: %s is about the whole app", scope)
	case agent != "" && agent != object:
		return "", "", agentsvc.NewInvalidError("object", "is another agent than the action's")
	}
	return authz.ParseScope("object", string(authz.AgentsCall)+":"+object)
}

// describeVisibility returns whose tasks p may act on with scope: all, own or none.
func describeVisibility(policy *authz.Policy, p authz.Principal, scope authz.Scope) string {
	switch visibility, err := policy.AuthorizeTasks(p, scope, ""); {
	case err != nil:
		return "none"
	case visibility.All:
		return "all"
	}
	return "own"
}

// unknownRoles returns the roles that are neither built in nor of the app. They grant nothing.
func unknownRoles(roles []string, app *tenancy.App) []string {
	names := []string{}
	for _, r := range roles {
		if _, own := app.FindRole(r); !own && !slices.Contains(authz.BuiltInRoleNames(), r) {
			names = append(names, r)
		}
	}
	return names
}
