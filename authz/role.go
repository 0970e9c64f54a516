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

// BuiltInRole is a role that every app has.
type BuiltInRole struct {
	Name        string
	Scopes      []Scope
	Description string
}

// roleDescriptions say what the built-in roles are for.
var roleDescriptions = map[string]string{
	RoleAdmin:     "everything inside the app",
	RoleOperator:  "runs the app: calls, tasks, decisions, configuration, usage",
	RoleDeveloper: "writes the configuration and tries the agents",
	RoleApprover:  "decides on tool calls",
	RoleCaller:    "calls agents; what a token has that names no role",
	RoleViewer:    "looks on",
}

// BuiltInRoles lists the roles that every app has.
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

// IsBuiltInRole reports whether name is that of a role which no app can change, or have of its own.
func IsBuiltInRole(name string) bool {
	return slices.Contains(BuiltInRoleNames(), name) || name == RolePlatformOperator
}

const (
	maxScopesPerRole    = 50  // of one role
	maxDescriptionBytes = 500 // bytes
)

var roleNamePattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

// CheckRole returns r without repeated scopes. What is wrong with it is an [agentsvc.InvalidError].
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

// PolicyCache holds the [Policy] of one app and replaces it when the app's roles have changed, while the app goes on. It is
// safe for concurrent use; the zero value is not, see [NewPolicyCache].
type PolicyCache struct {
	app     db.ID
	current atomic.Pointer[Policy]
	mu      sync.Mutex // one policy is made at a time
}

// NewPolicyCache returns the gate of an app.
func NewPolicyCache(app db.ID) *PolicyCache { return &PolicyCache{app: app} }

// PolicyFor returns the policy of the app as the record has it, which is the newest that the caller knows.
func (g *PolicyCache) PolicyFor(record *tenancy.App) (*Policy, error) {
	if p := g.current.Load(); p != nil && p.rolesVersion == record.RolesVersion {
		return p, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.current.Load(); p != nil && p.rolesVersion == record.RolesVersion {
		return p, nil
	}
	p, err := NewPolicy(g.app, record.Roles...)
	if err != nil {
		return nil, err
	}
	p.rolesVersion = record.RolesVersion
	g.current.Store(p)
	return p, nil
}
