package authz

import (
	"maps"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// Scope is one thing that a principal may do in an app.
type Scope string

// The scopes. Those of tasks reach over every task of the app; [AgentsCall] reaches over one's own.
const (
	AgentsRead   Scope = "agents:read"   // the list of agents, cards of internal ones
	AgentsCall   Scope = "agents:call"   // send and stream; get, list, subscribe and cancel of one's own tasks
	TasksRead    Scope = "tasks:read"    // get, list, subscribe of the app's tasks
	TasksCancel  Scope = "tasks:cancel"  // cancel of the app's tasks and tool calls
	TasksApprove Scope = "tasks:approve" // approve and reject, whatever way the decision comes
	ConfigRead   Scope = "config:read"   // configuration, its schema, studio
	ConfigWrite  Scope = "config:write"  // change of the configuration
	UsageRead    Scope = "usage:read"    // usage, budget, invoices
)

// callPrefix begins a scope that lets its bearer call one agent: agents:call:NAME.
const callPrefix = "agents:call:"

// The roles inside an app, and the one of the platform's operator, which exists in no app.
const (
	RoleAdmin     = "admin"
	RoleOperator  = "operator"
	RoleDeveloper = "developer"
	RoleApprover  = "approver"
	RoleCaller    = "caller"
	RoleViewer    = "viewer"

	RolePlatformOperator = "platform_operator"
)

// rolesByScope says which roles have a scope.
var rolesByScope = map[Scope][]string{
	AgentsRead:   {RoleAdmin, RoleOperator, RoleDeveloper, RoleApprover, RoleCaller, RoleViewer},
	AgentsCall:   {RoleAdmin, RoleOperator, RoleDeveloper, RoleCaller},
	TasksRead:    {RoleAdmin, RoleOperator, RoleApprover, RoleViewer},
	TasksCancel:  {RoleAdmin, RoleOperator},
	TasksApprove: {RoleAdmin, RoleOperator, RoleApprover},
	ConfigRead:   {RoleAdmin, RoleOperator, RoleDeveloper},
	ConfigWrite:  {RoleAdmin, RoleOperator, RoleDeveloper},
	UsageRead:    {RoleAdmin, RoleOperator, RoleViewer},
}

// BuiltInRoleNames returns the built-in roles, which exist inside every app.
func BuiltInRoleNames() []string {
	return slices.Clone(rolesByScope[AgentsRead])
}

// listScopes returns the scopes that exist, in order, but for those of single agents.
func listScopes() []Scope { return slices.Sorted(maps.Keys(rolesByScope)) }

// listScopeNames returns the scopes that exist, in order.
func listScopeNames() []string {
	var words []string
	for _, s := range listScopes() {
		words = append(words, string(s))
		if s == AgentsCall {
			words = append(words, callPrefix+"<agent>")
		}
	}
	return words
}

// isKnown reports whether s narrows a token. Whatever begins like the scope of one agent does, even if no agent can have
// that name: ignoring it would widen the token.
func (s Scope) isKnown() bool {
	_, ok := rolesByScope[s]
	return ok || strings.HasPrefix(string(s), callPrefix)
}

// forAgent returns the scope that lets its bearer do s with one agent; the empty name stands for every one.
func (s Scope) forAgent(agent string) Scope {
	if s != AgentsCall || agent == "" {
		return s
	}
	return callPrefix + Scope(agent)
}

// splitAgent takes the scope of one agent apart.
func (s Scope) splitAgent() (object string, action Scope) {
	if agent, ok := strings.CutPrefix(string(s), callPrefix); ok {
		return agent, AgentsCall
	}
	return anyObject, s
}

// ParseScope reads a scope, and the agent it is for where it is that of one. What does not exist is an
// [agentsvc.InvalidError] of the field.
func ParseScope(field, word string) (scope Scope, agent string, err error) {
	if err := checkScopeName(field, word); err != nil {
		return "", "", err
	}
	object, scope := Scope(word).splitAgent()
	return scope, objectName(object), nil
}

// checkScopeName returns what is wrong with a scope, as an [agentsvc.InvalidError] of the field.
func checkScopeName(field, word string) error {
	agent, ofAgent := strings.CutPrefix(word, callPrefix)
	switch {
	case ofAgent && !agentNamePattern.MatchString(agent):
		return agentsvc.NewInvalidError(field, "%q names no possible agent: names match %s", word, agentNamePattern)
	case !Scope(word).isKnown():
		return agentsvc.NewInvalidError(field, "unknown scope %q; scopes are %s", word, strings.Join(listScopeNames(), ", "))
	}
	return nil
}

// parseNarrowingScopes returns the words of a scope claim that narrow, nil where none does.
func parseNarrowingScopes(claim string) []Scope {
	var scopes []Scope
	for word := range strings.FieldsSeq(claim) {
		if s := Scope(word); s.isKnown() && !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	return scopes
}
