package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// Bounds of the roles of one app. The time of an authorization decision is proportional to the number of all scopes.
const (
	maxRoles      = 50
	maxRoleScopes = 500
)

// Role is a role that an app defines in addition to the built-in ones. This package does not interpret the scopes;
// package authz checks them before the role is stored. Its JSON is the stored form.
type Role struct {
	Name        string   `json:"name"`
	Scopes      []string `json:"scopes"`
	Description string   `json:"description"`
}

// auditDetail returns the form of r in the audit trail, with the hash of the description instead of its text.
func (r Role) auditDetail(h keyring.Hasher) map[string]any {
	return map[string]any{"name": r.Name, "scopes": append([]string{}, r.Scopes...), "description": h.HashValue(r.Description)}
}

// FindRole returns the app's own role of that name; false if there is none.
func (a *App) FindRole(name string) (Role, bool) {
	i := slices.IndexFunc(a.Roles, func(r Role) bool { return r.Name == name })
	if i < 0 {
		return Role{}, false
	}
	return a.Roles[i], true
}

// Roles are the roles that apps define in addition to the built-in ones.
type Roles struct{ store *store }

// Add adds a role to an app and returns the app's id. An existing name is [agentsvc.CodeExists], too many roles or
// scopes an [agentsvc.CodeInvalid].
func (r Roles) Add(ctx context.Context, actor audit.Actor, app string, role Role) (db.ID, error) {
	return r.change(ctx, actor, "app.role.create", app, role.Name, func(a *App) (*Role, error) {
		if _, ok := a.FindRole(role.Name); ok {
			return nil, agentsvc.NewError(agentsvc.CodeExists, "the app %s has a role named %s", app, role.Name)
		}
		return &role, nil
	})
}

// Update replaces a role of an app and returns the id of the app. An unknown name is [agentsvc.CodeNotFound].
func (r Roles) Update(ctx context.Context, actor audit.Actor, app string, role Role) (db.ID, error) {
	return r.change(ctx, actor, "app.role.update", app, role.Name, func(a *App) (*Role, error) {
		if _, ok := a.FindRole(role.Name); !ok {
			return nil, errNoRole
		}
		return &role, nil
	})
}

// Delete deletes a role of an app. Tokens and keys that name the role keep its name, which no longer grants
// anything. An unknown name is [agentsvc.CodeNotFound].
func (r Roles) Delete(ctx context.Context, actor audit.Actor, app, name string) error {
	_, err := r.change(ctx, actor, "app.role.delete", app, name, func(a *App) (*Role, error) {
		if _, ok := a.FindRole(name); !ok {
			return nil, errNoRole
		}
		return nil, nil
	})
	return err
}

var errNoRole = agentsvc.NewError(agentsvc.CodeNotFound, "no such role")

// change replaces the named role by the result of to, which gets the current app; nil deletes the role. The
// default app stores its roles in the table app_role like every other, although it has no row in the table app.
func (r Roles) change(ctx context.Context, actor audit.Actor, action, app, name string, to func(*App) (*Role, error)) (db.ID, error) {
	apply := func(a *App, hasher keyring.Hasher, detail map[string]any) error {
		next, err := to(a)
		if err != nil {
			return err
		}
		detail["role"] = name
		if old, ok := a.FindRole(name); ok {
			detail["before"] = old.auditDetail(hasher)
		}
		if next != nil {
			detail["after"] = next.auditDetail(hasher)
		}
		a.Roles, err = replaceRole(a.Roles, name, next)
		return err
	}
	if app == DefaultName {
		return DefaultID, r.changeDefault(ctx, actor, action, apply)
	}
	changed, err := r.store.changeApp(ctx, actor, action, app, false, func(e *appEdit) error {
		e.rolesChanged = true
		return apply(&e.app, e.auditHasher(), e.detail)
	})
	return changed.ID, err
}

// replaceRole returns a sorted copy of roles with the named one replaced by next, or an error with
// [agentsvc.CodeInvalid] if the bounds are exceeded.
func replaceRole(roles []Role, name string, next *Role) ([]Role, error) {
	roles = slices.DeleteFunc(slices.Clone(roles), func(r Role) bool { return r.Name == name })
	if next != nil {
		roles = append(roles, *next)
	}
	slices.SortFunc(roles, func(a, b Role) int { return strings.Compare(a.Name, b.Name) })
	scopes := 0
	for _, r := range roles {
		scopes += len(r.Scopes)
	}
	switch {
	case len(roles) > maxRoles:
		return nil, agentsvc.NewInvalidError("name", "there would be %d roles, %d are allowed", len(roles), maxRoles)
	case scopes > maxRoleScopes:
		return nil, agentsvc.NewInvalidError("scopes", "all roles together would have %d scopes, %d are allowed", scopes, maxRoleScopes)
	}
	return roles, nil
}

// changeDefault is change for the default app. The version of its roles is the optimistic lock, instead of
// the app's generation.
func (r Roles) changeDefault(ctx context.Context, actor audit.Actor, action string, apply func(*App, keyring.Hasher, map[string]any) error) error {
	for range maxChangeAttempts {
		snap, err := r.store.loadDefaultSnapshot(ctx)
		if err != nil {
			return err
		}
		detail := map[string]any{}
		if err := apply(&snap.App, snap.Hasher, detail); err != nil {
			return err
		}
		err = r.store.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
			if err := storeRoles(ctx, tx, &snap.App); err != nil {
				return err
			}
			return audit.Insert(ctx, tx, audit.Entry{Actor: actor, Action: action, App: DefaultName, AppID: DefaultID, Detail: detail})
		})
		if errors.Is(err, errStale) {
			continue
		}
		if err != nil {
			return fmt.Errorf("change roles of the default app: %w", err)
		}
		r.store.publishChange(DefaultID)
		return nil
	}
	return ErrConflict
}

// storeRoles writes the app's roles and increments their version. It returns errStale if the version is not the one
// that was read.
func storeRoles(ctx context.Context, tx *db.Tx, a *App) error {
	roles, err := json.Marshal(a.Roles)
	if err != nil {
		return err
	}
	n, err := tx.Exec(ctx, `INSERT INTO app_role (tenant, roles, version) VALUES ($1, $2, 1)
		ON CONFLICT (tenant) DO UPDATE SET roles = excluded.roles, version = app_role.version + 1 WHERE app_role.version = $3`,
		string(a.ID), string(roles), a.RolesVersion)
	if err == nil && n == 0 {
		err = errStale
	}
	return err
}
