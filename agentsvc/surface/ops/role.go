package ops

import (
	"context"
	"fmt"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/response"
	"stoa/authz"
	"stoa/tenancy"
)

// handleListRoles answers with the roles of an app, the built-in ones first.
func (a adminAPI) handleListRoles(w http.ResponseWriter, r *http.Request) error {
	app, err := a.apps.LoadApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	out := roleList{Roles: []roleBody{}}
	for _, b := range authz.BuiltInRoles() {
		out.Roles = append(out.Roles, roleBody{b.Name, scopeNames(b.Scopes), b.Description, true})
	}
	for _, own := range app.Roles {
		out.Roles = append(out.Roles, newRoleBody(own))
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// addRole creates a role of an app. The name of a built-in role is taken.
func (a adminAPI) addRole(ctx context.Context, o *mutation) (mutationResult, error) {
	var b roleRequest
	if err := o.decodeBody(&b, false); err != nil {
		return mutationResult{}, err
	}
	// The store knows only the app's own roles.
	if authz.IsBuiltInRole(b.Name) {
		return mutationResult{}, fmt.Errorf("%w: the role %s is built in", tenancy.ErrExists, b.Name)
	}
	role, err := authz.CheckRole(tenancy.Role{Name: b.Name, Scopes: b.Scopes, Description: b.Description})
	if err != nil {
		return mutationResult{}, err
	}
	id, err := a.apps.AddRole(ctx, o.actor, o.appName(), role)
	return mutationResult{status: http.StatusCreated, body: newRoleBody(role), appID: id}, err
}

// updateRole replaces scopes and description of a role. The name cannot change, since tokens and keys refer to
// roles by name.
func (a adminAPI) updateRole(ctx context.Context, o *mutation) (mutationResult, error) {
	var b roleRequest
	if err := o.decodeBody(&b, false); err != nil {
		return mutationResult{}, err
	}
	name, err := customRoleName(o)
	if err != nil {
		return mutationResult{}, err
	}
	if b.Name != "" && b.Name != name {
		return mutationResult{}, agentsvc.NewInvalidError("name", "must be %s, as the path says: a role keeps its name", name)
	}
	role, err := authz.CheckRole(tenancy.Role{Name: name, Scopes: b.Scopes, Description: b.Description})
	if err != nil {
		return mutationResult{}, err
	}
	id, err := a.apps.UpdateRole(ctx, o.actor, o.appName(), role)
	return mutationResult{status: http.StatusOK, body: newRoleBody(role), appID: id}, err
}

// deleteRole deletes a role. Tokens and keys that name it keep the name, which then grants nothing.
func (a adminAPI) deleteRole(ctx context.Context, o *mutation) (mutationResult, error) {
	name, err := customRoleName(o)
	if err != nil {
		return mutationResult{}, err
	}
	return mutationResult{status: http.StatusNoContent}, a.apps.DeleteRole(ctx, o.actor, o.appName(), name)
}

// customRoleName returns the role of the path, or [tenancy.ErrPrecondition] for a built-in one.
func customRoleName(o *mutation) (string, error) {
	name := surface.PathParam(o.r, "role")
	if authz.IsBuiltInRole(name) {
		return "", fmt.Errorf("%w: the role %s is built in and cannot be changed", tenancy.ErrPrecondition, name)
	}
	return name, nil
}

func newRoleBody(r tenancy.Role) roleBody { return roleBody{r.Name, r.Scopes, r.Description, false} }

// scopeNames returns scopes as strings, never nil, so that the JSON is a list.
func scopeNames(scopes []authz.Scope) []string {
	words := make([]string, len(scopes))
	for i, s := range scopes {
		words[i] = string(s)
	}
	return words
}
