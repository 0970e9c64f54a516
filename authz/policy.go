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

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// policyModel is the form of a policy for casbin. A rule allows a role (role) of an app (dom) a scope (act) on an
// object (obj): with agents:call the name of an agent or *, with every other scope *. There are no rules that deny, and
// whatever no rule allows is denied. The matcher compares the app first, so that a rule of another app can never match.
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

// The objects that are not names of agents; agentNamePattern matches neither.
const (
	// anyObject stands for all agents, or for everything that a scope covers.
	anyObject = "*"
	// unnamedAgent stands for every agent that no rule names. It bounds the number of different queries to cache.
	unnamedAgent = "?"
)

// Policy decides what principals may do in one app. It is immutable, except for its cache of decisions, and safe for
// concurrent use; when the app's roles change a [PolicyCache] replaces it. Decisions are cached by role, object and
// scope, which the policy bounds; principals are not part of the key.
type Policy struct {
	app db.ID
	// rolesVersion is the [tenancy.RoleSet.RolesVersion] that the policy was made of.
	rolesVersion int64
	// ownRoles has the rules of the app's own roles; nil where it has none. Those of the built-in roles are in
	// [builtInEnforcer], which all policies share.
	ownRoles *casbin.Enforcer
	// agentsByRole maps every existing role to the agents that its scopes name.
	agentsByRole map[string][]string
	// namedAgents are the agents that any role names.
	namedAgents map[string]bool
	// cachedResults maps queries to decisions. isAllowed replaces the map as a whole, so that readers need no lock.
	cachedResults atomic.Pointer[map[authorizationQuery]bool]
}

// authorizationQuery asks whether a role has a scope on an object.
type authorizationQuery struct {
	role   string
	object string
	action Scope
}

// newEnforcer returns an enforcer with rules. It holds about 8 KiB, even with few of them.
func newEnforcer(rules [][]string) (*casbin.Enforcer, error) {
	e, err := casbin.NewEnforcer(policyModel.Copy())
	if err != nil {
		return nil, err
	}
	_, err = e.AddPolicies(rules)
	return e, err
}

// builtInEnforcer has the rules of the built-in roles. They are the same in every app, so that one copy serves all of
// them: it made up most of a policy's memory. Their app is builtInApp.
var builtInEnforcer = func() *casbin.Enforcer {
	var rules [][]string
	for _, role := range BuiltInRoles() {
		for _, s := range role.Scopes {
			rules = append(rules, []string{builtInApp, role.Name, anyObject, string(s)})
		}
	}
	e, err := newEnforcer(rules)
	if err != nil {
		panic(err)
	}
	return e
}()

// builtInApp stands for the app in the rules of the built-in roles. It is not the id of an app.
const builtInApp = "*"

// NewPolicy returns the policy of app with the built-in roles and its own. An own role that is not valid, or has the
// name of a built-in one, is ignored: it must not make the app unusable.
func NewPolicy(app db.ID, appOwned ...tenancy.Role) (*Policy, error) {
	p := &Policy{app: app, agentsByRole: map[string][]string{}, namedAgents: map[string]bool{}}
	p.cachedResults.Store(&map[authorizationQuery]bool{})
	for _, name := range BuiltInRoleNames() {
		p.agentsByRole[name] = nil
	}
	var rules [][]string
	for _, role := range appOwned {
		// A role of an older version may not be valid any more, or have a name that has become built in.
		role, err := CheckRole(role)
		if err != nil || IsBuiltInRole(role.Name) {
			continue
		}
		p.agentsByRole[role.Name] = nil
		for _, word := range role.Scopes {
			object, action := Scope(word).splitAgent()
			if object != anyObject {
				p.agentsByRole[role.Name] = append(p.agentsByRole[role.Name], object)
				p.namedAgents[object] = true
			}
			rules = append(rules, []string{string(app), role.Name, object, string(action)})
		}
	}
	if len(rules) == 0 {
		return p, nil
	}
	var err error
	if p.ownRoles, err = newEnforcer(rules); err != nil {
		return nil, fmt.Errorf("make the policy of app %s: %w", app, err)
	}
	return p, nil
}

// Authorize returns nil if p has scope, else an error with [agentsvc.CodeDenied] whose text names what is missing. A
// scope must be allowed by one of the roles and not be excluded by the scopes of the token. With [AgentsCall], agent is
// the agent to be called, "" for every agent; with other scopes it is ignored.
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

// Visibility is the set of an app's tasks that a permission covers.
type Visibility struct {
	// All covers every task of the app. Otherwise only tasks that the principal owns are covered.
	All bool
	// Agents restricts the principal's own tasks to these agents; nil means any agent.
	Agents []string
}

// AuthorizeTasks returns the tasks that p may act on: all of the app's with the scope wide, which is [TasksRead] or
// [TasksCancel], else its own with [AgentsCall]. agent is the task's agent, "" for any agent that p may call. Without
// either scope it returns an error with [agentsvc.CodeDenied].
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

// ListScopes returns the scopes that p has here, sorted: what its roles allow and its token does not exclude. For calls of
// some agents alone, each has a scope of its own.
func (po *Policy) ListScopes(p Principal) ([]Scope, error) {
	if err := po.checkMembership(p); err != nil {
		return nil, err
	}
	scopes := []Scope{}
	for _, s := range listScopes() {
		has, err := po.hasScope(p, s, "")
		if err != nil {
			return nil, err
		}
		if has && p.coversScope(s, "") {
			scopes = append(scopes, s)
		}
	}
	agents, err := po.callableAgents(p)
	if err != nil {
		return nil, err
	}
	for _, agent := range agents {
		scopes = append(scopes, AgentsCall.forAgent(agent))
	}
	slices.Sort(scopes)
	return scopes, nil
}

// callableAgents returns the agents that p may call, sorted if they come from roles; nil means every agent.
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

// checkMembership returns an error with [agentsvc.CodeDenied] if p does not belong to this app. It is a second line of
// defence: the app's policy is chosen by the principal's app.
func (po *Policy) checkMembership(p Principal) error {
	switch {
	case p.Platform:
		return permissionDenied("a platform credential is for the admin API alone")
	case p.App != po.app || po.app == "":
		return permissionDenied("the credential belongs to another app")
	}
	return nil
}

// hasScope reports whether one of p's roles has scope, for agent if that is not "". Roles that do not exist are
// skipped.
func (po *Policy) hasScope(p Principal, scope Scope, agent string) (bool, error) {
	// An unknown scope is never allowed; it also must not become a key of the cache.
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

// objectFor returns the object of a query.
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

// isAllowed returns the cached decision on a query, or decides and caches it.
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
	po.cachedResults.CompareAndSwap(before, &after) // if another goroutine replaced the map first, the decision is made again next time
	return ok, nil
}

// enforceQuery lets casbin decide and returns the rule that allows the query.
func (po *Policy) enforceQuery(a authorizationQuery) (ok bool, line []string, err error) {
	enforcer, app := po.ownRoles, string(po.app)
	if IsBuiltInRole(a.role) {
		enforcer, app = builtInEnforcer, builtInApp
	}
	if enforcer == nil {
		return false, nil, nil // no such role
	}
	ok, line, err = enforcer.EnforceEx(app, a.role, a.object, string(a.action))
	if err != nil {
		return false, nil, fmt.Errorf("decide whether role %s has scope %s: %w", a.role, a.action, err)
	}
	return ok, line, nil
}

// describeRoles lists the roles that exist, and up to maxMissingRoles that do not: a role of a token may have been
// deleted. Names that cannot be roles are left out, since the text is shown to the caller.
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

// maxMissingRoles bounds the missing roles in the text of a refusal.
const maxMissingRoles = 3

// Rule is one rule of a policy: a role has a scope on an object.
type Rule struct {
	Role  string
	Scope Scope
	// Object is the agent that may be called; "*" for every agent, and with other scopes.
	Object string
}

// Explanation is the result of [Policy.ExplainAuthorization].
type Explanation struct {
	Allowed bool
	// Rule is the rule that gives the scope, nil if none does. It is also set if the token's scopes exclude it.
	Rule *Rule
	// Reason explains the decision in words.
	Reason string
	// GrantingRules are all rules of the policy that would give the scope.
	GrantingRules []Rule
}

// ExplainAuthorization makes the decision of [Policy.Authorize] and explains it. It does not use the cache.
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
	case errors.Is(err, agentsvc.CodeDenied):
		x.Reason = strings.TrimPrefix(err.Error(), deniedPrefix)
	default:
		return x, err
	}
	return x, nil
}

// listGrantingRules returns the rules that give scope on object, those of built-in roles first.
func (po *Policy) listGrantingRules(scope Scope, object string) ([]Rule, error) {
	var found []Rule
	for _, e := range []*casbin.Enforcer{builtInEnforcer, po.ownRoles} {
		if e == nil {
			continue
		}
		lines, err := e.GetFilteredPolicy(3, string(scope))
		if err != nil {
			return nil, fmt.Errorf("list who has scope %s: %w", scope, err)
		}
		for _, line := range lines {
			if line[2] == anyObject || line[2] == object {
				found = append(found, Rule{line[1], scope, line[2]})
			}
		}
	}
	return found, nil
}

// objectName returns the agent that an object names, "" for all agents.
func objectName(object string) string {
	if object == anyObject {
		return ""
	}
	return object
}
