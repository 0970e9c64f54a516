package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"stoa/tenancy/db"
)

// Bounds of the roles that one app makes for itself. A decision costs time in proportion to all scopes together.
const (
	maxRoles      = 50
	maxRoleScopes = 500
)

// Role is a role that an app has beside the built-in ones. What its scopes mean, and whether they exist, is for others
// to say.
type Role struct {
	Name        string   `json:"name"`
	Scopes      []string `json:"scopes"`
	Description string   `json:"description"`
}

// auditDetail is what the audit trail holds of r: of its description the hash.
func (r Role) auditDetail(h Hasher) map[string]any {
	return map[string]any{"name": r.Name, "scopes": append([]string{}, r.Scopes...), "description": h.hashValue(r.Description)}
}

// FindRole returns the app's own role of that name.
func (a *App) FindRole(name string) (Role, bool) {
	i := slices.IndexFunc(a.Roles, func(r Role) bool { return r.Name == name })
	if i < 0 {
		return Role{}, false
	}
	return a.Roles[i], true
}

// AddRole gives an app another role. One that it has is [ErrExists].
func (s *Service) AddRole(ctx context.Context, actor, app string, role Role) error {
	return s.changeRoles(ctx, actor, "app.role.create", app, role.Name, func(a *App) (*Role, error) {
		if _, ok := a.FindRole(role.Name); ok {
			return nil, errorOfKind(ErrExists, "the app %s has a role named %s", app, role.Name)
		}
		return &role, nil
	})
}

// UpdateRole changes what a role of an app may do. One that it does not have is [ErrNotFound].
func (s *Service) UpdateRole(ctx context.Context, actor, app string, role Role) error {
	return s.changeRoles(ctx, actor, "app.role.update", app, role.Name, func(a *App) (*Role, error) {
		if _, ok := a.FindRole(role.Name); !ok {
			return nil, errNoRole
		}
		return &role, nil
	})
}

// DeleteRole takes a role away from an app and from whoever has it. One that it does not have is [ErrNotFound].
func (s *Service) DeleteRole(ctx context.Context, actor, app, name string) error {
	return s.changeRoles(ctx, actor, "app.role.delete", app, name, func(a *App) (*Role, error) {
		if _, ok := a.FindRole(name); !ok {
			return nil, errNoRole
		}
		return nil, nil
	})
}

var errNoRole = errorOfKind(ErrNotFound, "no such role")

// changeRoles puts what to returns in the place of the named role; nil removes it. The roles of the default app live in
// the database like everybody's, though it has no row of its own there.
func (s *Service) changeRoles(ctx context.Context, actor, action, app, name string, to func(*App) (*Role, error)) error {
	apply := func(a *App, hasher Hasher, detail map[string]any) error {
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
		return s.changeDefaultRoles(ctx, actor, action, apply)
	}
	_, err := s.changeApp(ctx, actor, action, app, false, func(e *appEdit) error {
		e.rolesChanged = true
		return apply(&e.app, e.auditHasher(), e.detail)
	})
	return err
}

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
		return nil, invalidField("name", "there would be %d roles, %d are allowed", len(roles), maxRoles)
	case scopes > maxRoleScopes:
		return nil, invalidField("scopes", "all roles together would have %d scopes, %d are allowed", scopes, maxRoleScopes)
	}
	return roles, nil
}

func (s *Service) changeDefaultRoles(ctx context.Context, actor, action string, apply func(*App, Hasher, map[string]any) error) error {
	for range maxChangeAttempts {
		snap, err := s.loadDefaultSnapshot(ctx)
		if err != nil {
			return err
		}
		detail := map[string]any{}
		if err := apply(&snap.App, snap.Hasher, detail); err != nil {
			return err
		}
		err = s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
			if err := storeRoles(ctx, tx, &snap.App); err != nil {
				return err
			}
			return InsertAuditEntry(ctx, tx, AuditEntry{Actor: actor, Action: action, App: DefaultName, AppID: DefaultID, Detail: detail})
		})
		if errors.Is(err, errStale) {
			continue
		}
		if err != nil {
			return fmt.Errorf("change roles of the default app: %w", err)
		}
		s.publishChange(DefaultID)
		return nil
	}
	return ErrConflict
}

// storeRoles writes an app's roles over those of the version that it was read with.
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
