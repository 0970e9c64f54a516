package admin

import (
	"context"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/authz"
	"stoa/tenancy"
)

// roleHandler serves apps' roles. It is read-only and used by value.
type roleHandler struct {
	apps *tenancy.Service
}

// handleListRoles answers with the roles of an app, the built-in ones first.
func (h roleHandler) handleListRoles(w http.ResponseWriter, r *http.Request) error {
	app, err := h.apps.LoadApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, roleList{listRoles(app)})
}

// handleGetRole answers with a role of an app.
func (h roleHandler) handleGetRole(w http.ResponseWriter, r *http.Request) error {
	app, err := h.apps.LoadApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	for _, role := range listRoles(app) {
		if role.Name == surface.PathParam(r, "role") {
			return response.WriteJSON(w, http.StatusOK, role)
		}
	}
	return agentsvc.NewError(agentsvc.CodeNotFound, "no such role")
}

// listRoles returns the roles of an app, the built-in ones first.
func listRoles(app tenancy.App) (roles []roleBody) {
	for _, b := range authz.BuiltInRoles() {
		roles = append(roles, roleBody{b.Name, scopeNames(b.Scopes), b.Description, true})
	}
	for _, own := range app.Roles {
		roles = append(roles, newRoleBody(own))
	}
	return roles
}

// addRole creates a role of an app. The name of a built-in role is taken.
func (h roleHandler) addRole(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var b roleRequest
	if err := o.DecodeBody(&b, false); err != nil {
		return mutation.Result{}, err
	}
	// The store knows only the app's own roles.
	if authz.IsBuiltInRole(b.Name) {
		return mutation.Result{}, agentsvc.NewError(agentsvc.CodeExists, "already exists: the role %s is built in", b.Name)
	}
	role, err := authz.CheckRole(tenancy.Role{Name: b.Name, Scopes: b.Scopes, Description: b.Description})
	if err != nil {
		return mutation.Result{}, err
	}
	id, err := h.apps.Roles.Add(ctx, o.Actor, o.AppName(), role)
	return mutation.Result{Status: http.StatusCreated, Body: newRoleBody(role), AppID: id, CreatedID: role.Name}, err
}

// updateRole replaces scopes and description of a role. The name cannot change, since tokens and keys refer to
// roles by name.
func (h roleHandler) updateRole(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var b roleRequest
	if err := o.DecodeBody(&b, false); err != nil {
		return mutation.Result{}, err
	}
	name, err := customRoleName(o)
	if err != nil {
		return mutation.Result{}, err
	}
	if b.Name != "" && b.Name != name {
		return mutation.Result{}, agentsvc.NewInvalidError("name", "must be %s, as in the path: the name of a role cannot change", name)
	}
	role, err := authz.CheckRole(tenancy.Role{Name: name, Scopes: b.Scopes, Description: b.Description})
	if err != nil {
		return mutation.Result{}, err
	}
	id, err := h.apps.Roles.Update(ctx, o.Actor, o.AppName(), role)
	return mutation.Result{Status: http.StatusOK, Body: newRoleBody(role), AppID: id}, err
}

// deleteRole deletes a role. Tokens and keys that name it keep the name, which then grants nothing.
func (h roleHandler) deleteRole(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	name, err := customRoleName(o)
	if err != nil {
		return mutation.Result{}, err
	}
	return mutation.Result{Status: http.StatusNoContent}, h.apps.Roles.Delete(ctx, o.Actor, o.AppName(), name)
}

// customRoleName returns the role of the path, or [agentsvc.CodePrecondition] for a built-in one.
func customRoleName(o *mutation.Request) (string, error) {
	name := surface.PathParam(o.HTTP, "role")
	if authz.IsBuiltInRole(name) {
		return "", agentsvc.NewError(agentsvc.CodePrecondition, "precondition failed: the role %s is built in and cannot be changed", name)
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
