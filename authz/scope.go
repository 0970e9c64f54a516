package authz

import (
	"maps"
	"slices"
	"strings"
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

// Roles returns the roles that exist inside an app.
func Roles() []string {
	return slices.Clone(holders[AgentsRead])
}

// scopeWords returns the scopes that exist, in order.
func scopeWords() []string {
	var words []string
	for _, s := range slices.Sorted(maps.Keys(holders)) {
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
