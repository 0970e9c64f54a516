package authz

import (
	"maps"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// Scope names one thing that a principal may do in an app.
type Scope string

// The scopes. Those of tasks cover every task of the app; [AgentsCall] covers the principal's own tasks.
const (
	AgentsRead   Scope = "agents:read"   // list agents; read the cards of internal ones
	AgentsCall   Scope = "agents:call"   // send and stream messages; get, list, subscribe to and cancel own tasks
	TasksRead    Scope = "tasks:read"    // get, list and subscribe to any task of the app
	TasksCancel  Scope = "tasks:cancel"  // cancel any task or tool call of the app
	TasksApprove Scope = "tasks:approve" // approve and reject tool calls, through any protocol
	ConfigRead   Scope = "config:read"   // read the configuration and its schema; open the studio
	ConfigWrite  Scope = "config:write"  // change the configuration
	UsageRead    Scope = "usage:read"    // read usage, budgets and invoices

	DocumentsRead  Scope = "documents:read"  // list, read and search the documents whose access includes the principal
	DocumentsWrite Scope = "documents:write" // upload, delete and index documents; with documents:read, read every document
)

// callPrefix begins a scope that allows calling one agent: agents:call:NAME.
const callPrefix = "agents:call:"

// The built-in roles of every app, and the role of the platform's operator, which exists in no app.
const (
	RoleAdmin     = "admin"
	RoleOperator  = "operator"
	RoleDeveloper = "developer"
	RoleApprover  = "approver"
	RoleCaller    = "caller"
	RoleViewer    = "viewer"

	RolePlatformOperator = "platform_operator"
)

// rolesByScope maps each scope to the built-in roles that have it. It is the table of docs/security.md, "Roles and
// scopes".
var rolesByScope = map[Scope][]string{
	AgentsRead:   {RoleAdmin, RoleOperator, RoleDeveloper, RoleApprover, RoleCaller, RoleViewer},
	AgentsCall:   {RoleAdmin, RoleOperator, RoleDeveloper, RoleCaller},
	TasksRead:    {RoleAdmin, RoleOperator, RoleDeveloper, RoleApprover, RoleViewer},
	TasksCancel:  {RoleAdmin, RoleOperator},
	TasksApprove: {RoleAdmin, RoleOperator, RoleApprover},
	ConfigRead:   {RoleAdmin, RoleOperator, RoleDeveloper},
	ConfigWrite:  {RoleAdmin, RoleOperator, RoleDeveloper},
	UsageRead:    {RoleAdmin, RoleOperator, RoleDeveloper, RoleViewer},

	DocumentsRead:  {RoleAdmin, RoleOperator, RoleDeveloper, RoleCaller, RoleViewer},
	DocumentsWrite: {RoleAdmin, RoleOperator, RoleDeveloper},
}

// BuiltInRoleNames returns the built-in roles. Each of them has [AgentsRead], so its list is complete.
func BuiltInRoleNames() []string {
	return slices.Clone(rolesByScope[AgentsRead])
}

// listScopes returns the scopes, sorted, without those of single agents.
func listScopes() []Scope { return slices.Sorted(maps.Keys(rolesByScope)) }

// listScopeNames returns the scopes, sorted, for error messages.
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

// isKnown reports whether s narrows a token. Every scope that begins with callPrefix does, even with a name that no
// agent can have: ignoring it would give the token more rights than its issuer intended.
func (s Scope) isKnown() bool {
	_, ok := rolesByScope[s]
	return ok || strings.HasPrefix(string(s), callPrefix)
}

// forAgent returns the scope for calling one agent if s is [AgentsCall] and agent is not "", else s.
func (s Scope) forAgent(agent string) Scope {
	if s != AgentsCall || agent == "" {
		return s
	}
	return callPrefix + Scope(agent)
}

// splitAgent returns the object and the scope of the policy that s stands for.
func (s Scope) splitAgent() (object string, action Scope) {
	if agent, ok := strings.CutPrefix(string(s), callPrefix); ok {
		return agent, AgentsCall
	}
	return anyObject, s
}

// ParseScope parses a scope, with the agent if it is for a single one. An unknown scope is an error with
// [agentsvc.CodeInvalid] for field.
func ParseScope(field, word string) (scope Scope, agent string, err error) {
	if err := checkScopeName(field, word); err != nil {
		return "", "", err
	}
	object, scope := Scope(word).splitAgent()
	return scope, objectName(object), nil
}

// checkScopeName returns an error with [agentsvc.CodeInvalid] for field if word is not a scope.
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

// parseNarrowingScopes returns the scopes in a claim, nil if it contains none. Unknown words, such as openid, are
// ignored.
func parseNarrowingScopes(claim string) []Scope {
	var scopes []Scope
	for word := range strings.FieldsSeq(claim) {
		if s := Scope(word); s.isKnown() && !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	return scopes
}
