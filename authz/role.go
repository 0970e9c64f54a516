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

// BuiltIn is a role that every app has.
type BuiltIn struct {
	Name        string
	Scopes      []Scope
	Description string
}

// descriptions say what the built-in roles are for.
var descriptions = map[string]string{
	RoleAdmin:     "everything inside the app",
	RoleOperator:  "runs the app: calls, tasks, decisions, configuration, usage",
	RoleDeveloper: "writes the configuration and tries the agents",
	RoleApprover:  "decides on tool calls",
	RoleCaller:    "calls agents; what a token has that names no role",
	RoleViewer:    "looks on",
}

// BuiltIns lists the roles that every app has.
func BuiltIns() []BuiltIn {
	var all []BuiltIn
	for _, name := range Roles() {
		role := BuiltIn{Name: name, Description: descriptions[name]}
		for _, s := range scopes() {
			if slices.Contains(holders[s], name) {
				role.Scopes = append(role.Scopes, s)
			}
		}
		all = append(all, role)
	}
	return all
}

// IsBuiltIn reports whether name is that of a role which no app can change, or have of its own.
func IsBuiltIn(name string) bool {
	return slices.Contains(Roles(), name) || name == RolePlatformOperator
}

const (
	maxScopes      = 50  // of one role
	maxDescription = 500 // bytes
)

var roleName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

// CheckRole returns r without repeated scopes. What is wrong with it is an [agentsvc.InvalidError].
func CheckRole(r tenancy.Role) (tenancy.Role, error) {
	switch {
	case !roleName.MatchString(r.Name):
		return r, agentsvc.Invalid("name", "must be 1 to 63 lower-case letters, digits, hyphens and underscores, a letter first")
	case len(r.Description) > maxDescription || strings.ContainsFunc(r.Description, func(c rune) bool { return c < ' ' }):
		return r, agentsvc.Invalid("description", "must be at most %d bytes without control characters", maxDescription)
	case len(r.Scopes) == 0:
		return r, agentsvc.Invalid("scopes", "is empty: name what the role may do; scopes are %s", strings.Join(scopeWords(), ", "))
	}
	var kept []string
	for _, word := range r.Scopes {
		if err := checkWord("scopes", word); err != nil {
			return r, err
		}
		if !slices.Contains(kept, word) {
			kept = append(kept, word)
		}
	}
	if len(kept) > maxScopes {
		return r, agentsvc.Invalid("scopes", "there are %d, %d are allowed", len(kept), maxScopes)
	}
	r.Scopes = kept
	return r, nil
}

// Gate holds the [Policy] of one app and replaces it when the app's roles have changed, while the app goes on. It is
// safe for concurrent use; the zero value is not, see [NewGate].
type Gate struct {
	app db.ID
	now atomic.Pointer[Policy]
	mu  sync.Mutex // one policy is made at a time
}

// NewGate returns the gate of an app.
func NewGate(app db.ID) *Gate { return &Gate{app: app} }

// Policy returns the policy of the app as the record has it, which is the newest that the caller knows.
func (g *Gate) Policy(record *tenancy.App) (*Policy, error) {
	if p := g.now.Load(); p != nil && p.version == record.RolesVersion {
		return p, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.now.Load(); p != nil && p.version == record.RolesVersion {
		return p, nil
	}
	p, err := NewPolicy(g.app, record.Roles...)
	if err != nil {
		return nil, err
	}
	p.version = record.RolesVersion
	g.now.Store(p)
	return p, nil
}
