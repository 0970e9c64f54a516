package authz

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/casbin/casbin/v2"
	"github.com/casbin/casbin/v2/model"

	"stoa/tenancy/db"
)

// rules is the shape of a policy: a role has a scope within a domain, which is an app. The domain comes first in the
// matcher, it is what most rules differ in.
var rules = func() model.Model {
	m, err := model.NewModelFromString(`
[request_definition]
r = dom, role, scope
[policy_definition]
p = dom, role, scope
[policy_effect]
e = some(where (p.eft == allow))
[matchers]
m = r.dom == p.dom && r.role == p.role && r.scope == p.scope
`)
	if err != nil {
		panic(err)
	}
	return m
}()

// Policy decides what principals may do in one app. It is safe for concurrent use and never changes: an app whose roles
// change gets another. Its decisions are remembered for each role and scope, of which there are few, so a principal who
// was never seen before costs nothing.
type Policy struct {
	app      db.ID
	enforcer *casbin.Enforcer
	roles    map[string]bool
	decided  atomic.Pointer[map[ask]bool]
}

type ask struct {
	role  string
	scope Scope
}

// NewPolicy returns the policy of app: the built-in roles.
func NewPolicy(app db.ID) (*Policy, error) {
	e, err := casbin.NewEnforcer(rules.Copy())
	if err != nil {
		return nil, fmt.Errorf("make the policy of app %s: %w", app, err)
	}
	p := &Policy{app: app, enforcer: e, roles: map[string]bool{}}
	p.decided.Store(&map[ask]bool{})
	var table [][]string
	for scope, roles := range holders {
		for _, role := range roles {
			table = append(table, []string{string(app), role, string(scope)})
			p.roles[role] = true
		}
	}
	if _, err := e.AddPolicies(table); err != nil {
		return nil, fmt.Errorf("fill the policy of app %s: %w", app, err)
	}
	return p, nil
}

// May returns nil where p has scope, else an [ErrDenied] that says what is missing. With [AgentsCall] agent names the
// agent to be called and is compared exactly; empty, it stands for every agent. With other scopes it means nothing.
func (po *Policy) May(p Principal, scope Scope, agent string) error {
	if err := po.admits(p); err != nil {
		return err
	}
	has, err := po.holds(p, scope)
	switch {
	case err != nil:
		return err
	case !has:
		return denied("the scope %q is needed, and your roles (%s) do not have it", scope, po.known(p.Roles))
	case !p.covers(scope, agent):
		if scope == AgentsCall && agent != "" {
			scope = callPrefix + Scope(agent)
		}
		return denied("the scope %q is needed, and your token is narrowed to others", scope)
	}
	return nil
}

// Reach is how far a permission goes over the tasks of an app.
type Reach struct {
	All    bool     // every task of the app; else those that the principal owns
	Agents []string // where not All: only tasks of these agents; nil: of any agent
}

// Tasks returns whose tasks p may act on: all of the app's with wide, which is [TasksRead] or [TasksCancel], else its
// own with [AgentsCall]. The empty agent stands for whichever agents p may call. Without either scope it returns an
// [ErrDenied].
func (po *Policy) Tasks(p Principal, wide Scope, agent string) (Reach, error) {
	if po.May(p, wide, "") == nil {
		return Reach{All: true}, nil
	}
	if err := po.admits(p); err != nil {
		return Reach{}, err
	}
	agents := p.agents()
	if agent == "" && len(agents) > 0 {
		agent = agents[0]
	}
	if po.May(p, AgentsCall, agent) == nil {
		return Reach{Agents: agents}, nil
	}
	return Reach{}, denied("the scope %q is needed, or %q for your own tasks", wide, AgentsCall)
}

// admits reports whether p belongs into the app at all.
func (po *Policy) admits(p Principal) error {
	switch {
	case p.Platform:
		return denied("a platform credential is for the admin API alone")
	case p.App != po.app || po.app == "":
		return denied("the credential belongs to another app")
	}
	return nil
}

// holds reports whether a role of p has scope.
func (po *Policy) holds(p Principal, scope Scope) (bool, error) {
	if holders[scope] == nil {
		return false, nil
	}
	for _, role := range p.Roles {
		if !po.roles[role] {
			continue
		}
		if ok, err := po.decide(ask{role: role, scope: scope}); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

func (po *Policy) decide(a ask) (bool, error) {
	before := po.decided.Load()
	if ok, seen := (*before)[a]; seen {
		return ok, nil
	}
	ok, err := po.enforcer.Enforce(string(po.app), a.role, string(a.scope))
	if err != nil {
		return false, fmt.Errorf("decide whether role %s has scope %s: %w", a.role, a.scope, err)
	}
	after := maps.Clone(*before)
	after[a] = ok
	po.decided.CompareAndSwap(before, &after) // whoever loses the race decides once more
	return ok, nil
}

// known lists those of roles that exist here: the others came from outside and mean nothing to the reader.
func (po *Policy) known(roles []string) string {
	names := slices.DeleteFunc(slices.Clone(roles), func(r string) bool { return !po.roles[r] })
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
