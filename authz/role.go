package authz

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// BuiltInRole is a role that every app has and no app can change.
type BuiltInRole struct {
	Name        string
	Scopes      []Scope
	Description string
}

// roleDescriptions are the descriptions of the built-in roles, for people.
var roleDescriptions = map[string]string{
	RoleAdmin:     "everything inside the app",
	RoleOperator:  "runs the app: calls, tasks, decisions, configuration, usage",
	RoleDeveloper: "writes the configuration, tries the agents, reads tasks and usage",
	RoleApprover:  "decides on tool calls",
	RoleCaller:    "calls agents; what a token has that names no role",
	RoleViewer:    "looks on",
}

// BuiltInRoles returns the roles that every app has, with their scopes.
func BuiltInRoles() []BuiltInRole {
	var all []BuiltInRole
	for _, name := range BuiltInRoleNames() {
		role := BuiltInRole{Name: name, Description: roleDescriptions[name]}
		for _, s := range listScopes() {
			if slices.Contains(rolesByScope[s], name) {
				role.Scopes = append(role.Scopes, s)
			}
		}
		all = append(all, role)
	}
	return all
}

// IsBuiltInRole reports whether an app may not define a role of that name.
func IsBuiltInRole(name string) bool {
	return slices.Contains(BuiltInRoleNames(), name) || name == RolePlatformOperator
}

const (
	maxScopesPerRole    = 50
	maxDescriptionBytes = 500
)

// roleNamePattern matches the names of roles.
var roleNamePattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

// CheckRole returns r without repeated scopes, or an error with [agentsvc.CodeInvalid] if it is not valid.
func CheckRole(r tenancy.Role) (tenancy.Role, error) {
	switch {
	case !roleNamePattern.MatchString(r.Name):
		return r, agentsvc.NewInvalidError("name", "must be 1 to 63 lower-case letters, digits, hyphens and underscores, a letter first")
	case len(r.Description) > maxDescriptionBytes || strings.ContainsFunc(r.Description, func(c rune) bool { return c < ' ' }):
		return r, agentsvc.NewInvalidError("description", "must be at most %d bytes without control characters", maxDescriptionBytes)
	case len(r.Scopes) == 0:
		return r, agentsvc.NewInvalidError("scopes", "is empty: name what the role may do; scopes are %s", strings.Join(listScopeNames(), ", "))
	}
	var stored []string
	for _, word := range r.Scopes {
		if err := checkScopeName("scopes", word); err != nil {
			return r, err
		}
		if !slices.Contains(stored, word) {
			stored = append(stored, word)
		}
	}
	if len(stored) > maxScopesPerRole {
		return r, agentsvc.NewInvalidError("scopes", "there are %d, %d are allowed", len(stored), maxScopesPerRole)
	}
	r.Scopes = stored
	return r, nil
}

// PolicyCache holds the [Policy] of one app and replaces it when the app's roles have changed; the app's runtime is not
// rebuilt for that. It is safe for concurrent use. Use [NewPolicyCache]; the zero value has no app.
type PolicyCache struct {
	app     db.ID
	current atomic.Pointer[Policy]
	// mu serialises making a policy; current is written under it.
	mu sync.Mutex
}

// NewPolicyCache returns an empty cache for an app.
func NewPolicyCache(app db.ID) *PolicyCache { return &PolicyCache{app: app} }

// PolicyFor returns the policy for the roles in record, the newest record that the caller knows.
func (c *PolicyCache) PolicyFor(record *tenancy.App) (*Policy, error) {
	if p := c.current.Load(); p != nil && p.rolesVersion == record.RolesVersion {
		return p, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.current.Load(); p != nil && p.rolesVersion == record.RolesVersion {
		return p, nil
	}
	p, err := NewPolicy(c.app, record.Roles...)
	if err != nil {
		return nil, err
	}
	p.rolesVersion = record.RolesVersion
	c.current.Store(p)
	return p, nil
}
