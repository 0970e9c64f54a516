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

// holders says which roles have a scope.
var holders = map[Scope][]string{
	AgentsRead:   {RoleAdmin, RoleOperator, RoleDeveloper, RoleApprover, RoleCaller, RoleViewer},
	AgentsCall:   {RoleAdmin, RoleOperator, RoleDeveloper, RoleCaller},
	TasksRead:    {RoleAdmin, RoleOperator, RoleApprover, RoleViewer},
	TasksCancel:  {RoleAdmin, RoleOperator},
	TasksApprove: {RoleAdmin, RoleOperator, RoleApprover},
	ConfigRead:   {RoleAdmin, RoleOperator, RoleDeveloper},
	ConfigWrite:  {RoleAdmin, RoleOperator, RoleDeveloper},
	UsageRead:    {RoleAdmin, RoleOperator, RoleViewer},
}

// Roles returns the built-in roles, which exist inside every app.
func Roles() []string {
	return slices.Clone(holders[AgentsRead])
}

// scopes returns the scopes that exist, in order, but for those of single agents.
func scopes() []Scope { return slices.Sorted(maps.Keys(holders)) }

// scopeWords returns the scopes that exist, in order.
func scopeWords() []string {
	var words []string
	for _, s := range scopes() {
		words = append(words, string(s))
		if s == AgentsCall {
			words = append(words, callPrefix+"<agent>")
		}
	}
	return words
}

// known reports whether s narrows a token. Whatever begins like the scope of one agent does, even if no agent can have
// that name: ignoring it would widen the token.
func (s Scope) known() bool {
	_, ok := holders[s]
	return ok || strings.HasPrefix(string(s), callPrefix)
}

// of returns the scope that lets its bearer do s with one agent; the empty name stands for every one.
func (s Scope) of(agent string) Scope {
	if s != AgentsCall || agent == "" {
		return s
	}
	return callPrefix + Scope(agent)
}

// split takes the scope of one agent apart.
func (s Scope) split() (object string, action Scope) {
	if agent, ok := strings.CutPrefix(string(s), callPrefix); ok {
		return agent, AgentsCall
	}
	return every, s
}

// ParseScope reads a scope, and the agent it is for where it is that of one. What does not exist is an
// [agentsvc.InvalidError] of the field.
func ParseScope(field, word string) (scope Scope, agent string, err error) {
	if err := checkWord(field, word); err != nil {
		return "", "", err
	}
	object, scope := Scope(word).split()
	return scope, objectName(object), nil
}

// checkWord returns what is wrong with a scope, as an [agentsvc.InvalidError] of the field.
func checkWord(field, word string) error {
	agent, ofAgent := strings.CutPrefix(word, callPrefix)
	switch {
	case ofAgent && !agentName.MatchString(agent):
		return agentsvc.Invalid(field, "%q names no possible agent: names match %s", word, agentName)
	case !Scope(word).known():
		return agentsvc.Invalid(field, "unknown scope %q; scopes are %s", word, strings.Join(scopeWords(), ", "))
	}
	return nil
}

// narrowing returns the words of a scope claim that narrow, nil where none does.
func narrowing(claim string) []Scope {
	var scopes []Scope
	for word := range strings.FieldsSeq(claim) {
		if s := Scope(word); s.known() && !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	return scopes
}
