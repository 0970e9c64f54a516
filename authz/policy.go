package authz

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/casbin/casbin/v2"
	"github.com/casbin/casbin/v2/model"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// policyModel is the shape of a policy. A line of it lets a role of an app do something: act is a scope, obj the agent that
// may be called with agents:call, and * with every other scope and where all agents may be called. Nothing else is
// allowed, and no line forbids. The domain, which is the app, comes first in the matcher: no line of another app ever
// counts.
var policyModel = func() model.Model {
	m, err := model.NewModelFromString(`
[request_definition]
r = dom, role, obj, act
[policy_definition]
p = dom, role, obj, act
[policy_effect]
e = some(where (p.eft == allow))
[matchers]
m = r.dom == p.dom && r.role == p.role && r.act == p.act && (p.obj == "*" || r.obj == p.obj)
`)
	if err != nil {
		panic(err)
	}
	return m
}()

// The objects beside the names of agents, which neither can be one.
const (
	anyObject    = "*" // all agents, or whatever a scope covers
	unnamedAgent = "?" // an agent that no line names
)

// Policy decides what principals may do in one app. It is safe for concurrent use and never changes: an app whose roles
// change gets another, see [PolicyCache]. Its decisions are remembered for each role, object and action, of which there are as
// many as the policy names, so a principal who was never seen before costs nothing.
type Policy struct {
	app           db.ID
	rolesVersion  int64
	enforcer      *casbin.Enforcer
	agentsByRole  map[string][]string // role to the agents that it names; of every role there is
	namedAgents   map[string]bool     // agents that a role names
	cachedResults atomic.Pointer[map[authorizationQuery]bool]
}

type authorizationQuery struct {
	role   string
	object string
	action Scope
}

// NewPolicy returns the policy of app: the built-in roles and its own. One of its own that cannot be is left out.
func NewPolicy(app db.ID, appOwned ...tenancy.Role) (*Policy, error) {
	e, err := casbin.NewEnforcer(policyModel.Copy())
	if err != nil {
		return nil, fmt.Errorf("make the policy of app %s: %w", app, err)
	}
	p := &Policy{app: app, enforcer: e, agentsByRole: map[string][]string{}, namedAgents: map[string]bool{}}
	p.cachedResults.Store(&map[authorizationQuery]bool{})
	var table [][]string
	for _, role := range BuiltInRoles() {
		p.agentsByRole[role.Name] = nil
		for _, s := range role.Scopes {
			table = append(table, []string{string(app), role.Name, anyObject, string(s)})
		}
	}
	for _, role := range appOwned {
		if role, err = CheckRole(role); err != nil || IsBuiltInRole(role.Name) {
			continue
		}
		p.agentsByRole[role.Name] = nil
		for _, word := range role.Scopes {
			object, action := Scope(word).splitAgent()
			if object != anyObject {
				p.agentsByRole[role.Name] = append(p.agentsByRole[role.Name], object)
				p.namedAgents[object] = true
			}
			table = append(table, []string{string(app), role.Name, object, string(action)})
		}
	}
	if _, err := e.AddPolicies(table); err != nil {
		return nil, fmt.Errorf("fill the policy of app %s: %w", app, err)
	}
	return p, nil
}

// Authorize returns nil where p has scope, else an [ErrDenied] that says what is missing. With [AgentsCall] agent names the
// agent to be called and is compared exactly; empty, it stands for every agent. With other scopes it means nothing.
func (po *Policy) Authorize(p Principal, scope Scope, agent string) error {
	if err := po.checkMembership(p); err != nil {
		return err
	}
	has, err := po.hasScope(p, scope, agent)
	switch {
	case err != nil:
		return err
	case !has:
		return permissionDenied("the scope %q is needed, and your roles (%s) do not have it", scope.forAgent(agent), po.describeRoles(p.Roles))
	case !p.coversScope(scope, agent):
		return permissionDenied("the scope %q is needed, and your token is narrowed to others", scope.forAgent(agent))
	}
	return nil
}

// Visibility is how far a permission goes over the tasks of an app.
type Visibility struct {
	All    bool     // every task of the app; else those that the principal owns
	Agents []string // where not All: only tasks of these agents; nil: of any agent
}

// AuthorizeTasks returns whose tasks p may act on: all of the app's with wide, which is [TasksRead] or [TasksCancel], else its
// own with [AgentsCall]. The empty agent stands for whichever agents p may call. Without either scope it returns an
// [ErrDenied].
func (po *Policy) AuthorizeTasks(p Principal, wide Scope, agent string) (Visibility, error) {
	if po.Authorize(p, wide, "") == nil {
		return Visibility{All: true}, nil
	}
	if err := po.checkMembership(p); err != nil {
		return Visibility{}, err
	}
	agents, err := po.callableAgents(p)
	if err != nil {
		return Visibility{}, err
	}
	if agents == nil || agent == "" && len(agents) > 0 || slices.Contains(agents, agent) {
		return Visibility{Agents: agents}, nil
	}
	return Visibility{}, permissionDenied("the scope %q is needed, or %q for your own tasks", wide, AgentsCall.forAgent(agent))
}

// callableAgents returns the agents that p may call, nil where it may call every one.
func (po *Policy) callableAgents(p Principal) ([]string, error) {
	has, err := po.hasScope(p, AgentsCall, "")
	if err != nil || has {
		return p.narrowedAgents(), err
	}
	names := []string{}
	for _, role := range p.Roles {
		for _, agent := range po.agentsByRole[role] {
			if p.coversScope(AgentsCall, agent) && !slices.Contains(names, agent) {
				names = append(names, agent)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// checkMembership reports whether p belongs into the app at all.
func (po *Policy) checkMembership(p Principal) error {
	switch {
	case p.Platform:
		return permissionDenied("a platform credential is for the admin API alone")
	case p.App != po.app || po.app == "":
		return permissionDenied("the credential belongs to another app")
	}
	return nil
}

// hasScope reports whether a role of p has scope, for an agent where it is about one.
func (po *Policy) hasScope(p Principal, scope Scope, agent string) (bool, error) {
	if rolesByScope[scope] == nil {
		return false, nil
	}
	for _, role := range p.Roles {
		if _, exists := po.agentsByRole[role]; !exists {
			continue
		}
		if ok, err := po.isAllowed(authorizationQuery{role, po.objectFor(scope, agent), scope}); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// objectFor is what a question is about. All agents that the policy does not name are one to it.
func (po *Policy) objectFor(scope Scope, agent string) string {
	switch {
	case scope != AgentsCall || agent == "":
		return anyObject
	case po.namedAgents[agent]:
		return agent
	default:
		return unnamedAgent
	}
}

func (po *Policy) isAllowed(a authorizationQuery) (bool, error) {
	before := po.cachedResults.Load()
	if ok, seen := (*before)[a]; seen {
		return ok, nil
	}
	ok, _, err := po.enforceQuery(a)
	if err != nil {
		return false, err
	}
	after := maps.Clone(*before)
	after[a] = ok
	po.cachedResults.CompareAndSwap(before, &after) // whoever loses the race decides once more
	return ok, nil
}

// enforceQuery has casbin decide, and returns the line that allows.
func (po *Policy) enforceQuery(a authorizationQuery) (ok bool, line []string, err error) {
	ok, line, err = po.enforcer.EnforceEx(string(po.app), a.role, a.object, string(a.action))
	if err != nil {
		return false, nil, fmt.Errorf("decide whether role %s has scope %s: %w", a.role, a.action, err)
	}
	return ok, line, nil
}

// describeRoles lists roles, and says of the first of those that do not exist here that they do not: one may have been deleted, or
// never have been made. What cannot be the name of a role is left out.
func (po *Policy) describeRoles(roles []string) string {
	var here, gone []string
	for _, r := range roles {
		if _, exists := po.agentsByRole[r]; exists {
			here = append(here, r)
		} else if roleNamePattern.MatchString(r) && len(gone) < maxMissingRoles {
			gone = append(gone, r)
		}
	}
	text := strings.Join(here, ", ")
	if len(gone) > 0 {
		text = strings.TrimPrefix(text+"; ", "; ") + "not there in this app: " + strings.Join(gone, ", ")
	}
	return cmp.Or(text, "none")
}

// maxMissingRoles bounds how many roles a refusal says of that they do not exist.
const maxMissingRoles = 3

// Rule is a line of a policy: a role may do something.
type Rule struct {
	Role   string
	Scope  Scope
	Object string // the agent that may be called, * for every one and with other scopes
}

// Explanation says why a policy decides as it does.
type Explanation struct {
	Allowed       bool
	Rule          *Rule  // that gives the scope, also where a narrowed token does not pass it on; nil = none does
	Reason        string // in words
	GrantingRules []Rule // the lines of the policy that would give it
}

// ExplainAuthorization decides as [Policy.Authorize] does, and says why.
func (po *Policy) ExplainAuthorization(p Principal, scope Scope, agent string) (x Explanation, err error) {
	object := po.objectFor(scope, agent)
	for _, role := range p.Roles {
		ok, line, err := po.enforceQuery(authorizationQuery{role, object, scope})
		if err != nil {
			return x, err
		}
		if ok {
			x.Rule = &Rule{line[1], Scope(line[3]), line[2]}
			break
		}
	}
	if x.GrantingRules, err = po.listGrantingRules(scope, object); err != nil {
		return x, err
	}
	switch err = po.Authorize(p, scope, agent); {
	case err == nil:
		x.Allowed, x.Reason = true, fmt.Sprintf("the role %q has the scope %q", x.Rule.Role, scope.forAgent(objectName(x.Rule.Object)))
	case errors.Is(err, ErrDenied):
		x.Reason = strings.TrimPrefix(err.Error(), ErrDenied.Error()+": ")
	default:
		return x, err
	}
	return x, nil
}

// listGrantingRules returns the lines that give a scope on an object.
func (po *Policy) listGrantingRules(scope Scope, object string) ([]Rule, error) {
	lines, err := po.enforcer.GetFilteredPolicy(3, string(scope))
	if err != nil {
		return nil, fmt.Errorf("list who has scope %s: %w", scope, err)
	}
	var found []Rule
	for _, line := range lines {
		if line[2] == anyObject || line[2] == object {
			found = append(found, Rule{line[1], scope, line[2]})
		}
	}
	return found, nil
}

// objectName is the agent that an object names, "" where it stands for all.
func objectName(object string) string {
	if object == anyObject {
		return ""
	}
	return object
}
