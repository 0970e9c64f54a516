package ops

import (
	"context"
	"fmt"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/authz"
	"stoa/tenancy"
)

// roles lists the roles of an app, the built-in ones first.
func (a admin) roles(w http.ResponseWriter, r *http.Request) error {
	app, err := a.apps.Get(r.Context(), surface.Param(r, "app"))
	if err != nil {
		return err
	}
	out := roleList{Roles: []roleBody{}}
	for _, b := range authz.BuiltIns() {
		out.Roles = append(out.Roles, roleBody{b.Name, wordsOf(b.Scopes), b.Description, true})
	}
	for _, own := range app.Roles {
		out.Roles = append(out.Roles, newRoleBody(own))
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}

func (a admin) addRole(ctx context.Context, o *order) (answer, error) {
	var b roleOrder
	if err := o.decode(&b, false); err != nil {
		return answer{}, err
	}
	if authz.IsBuiltIn(b.Name) {
		return answer{}, fmt.Errorf("%w: the role %s is built in", tenancy.ErrExists, b.Name)
	}
	role, err := authz.CheckRole(tenancy.Role{Name: b.Name, Scopes: b.Scopes, Description: b.Description})
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusCreated, body: newRoleBody(role)}, a.apps.AddRole(ctx, o.actor, o.app(), role)
}

func (a admin) setRole(ctx context.Context, o *order) (answer, error) {
	var b roleOrder
	if err := o.decode(&b, false); err != nil {
		return answer{}, err
	}
	name, err := ownRole(o)
	if err != nil {
		return answer{}, err
	}
	if b.Name != "" && b.Name != name {
		return answer{}, agentsvc.Invalid("name", "must be %s, as the path says: a role keeps its name", name)
	}
	role, err := authz.CheckRole(tenancy.Role{Name: name, Scopes: b.Scopes, Description: b.Description})
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusOK, body: newRoleBody(role)}, a.apps.SetRole(ctx, o.actor, o.app(), role)
}

func (a admin) deleteRole(ctx context.Context, o *order) (answer, error) {
	name, err := ownRole(o)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, a.apps.DeleteRole(ctx, o.actor, o.app(), name)
}

// ownRole returns the role that the path names, which must not be built in.
func ownRole(o *order) (string, error) {
	name := surface.Param(o.r, "role")
	if authz.IsBuiltIn(name) {
		return "", fmt.Errorf("%w: the role %s is built in and cannot be changed", tenancy.ErrPrecondition, name)
	}
	return name, nil
}

func newRoleBody(r tenancy.Role) roleBody { return roleBody{r.Name, r.Scopes, r.Description, false} }

func wordsOf(scopes []authz.Scope) []string {
	words := make([]string, len(scopes))
	for i, s := range scopes {
		words[i] = string(s)
	}
	return words
}
