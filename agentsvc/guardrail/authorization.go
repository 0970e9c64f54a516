package guardrail

import (
	"errors"
	"strings"
)

// Authorization is a check of tool calls by the tool's name. Patterns are names in which * stands for any text.
type Authorization struct {
	Rule // Block if no action is set
	// Allowed lists the tools that may be called; nil: all.
	Allowed []string
	// Blocked lists tools that may not be called. It takes precedence over Allowed.
	Blocked []string
}

// ErrNotAllowed is the error that the model receives for a refused call.
var ErrNotAllowed = errors.New("not allowed by policy")

// authorization is a validated [Authorization].
type authorization struct {
	Authorization
}

// newAuthorization validates o; nil stays nil.
func newAuthorization(o *Authorization) (*authorization, error) {
	if o == nil {
		return nil, nil
	}
	a := &authorization{*o}
	a.Rule = a.withDefault(Block)
	if a.Action == Modify {
		return nil, newInvalidError("tool.authorization.action", "cannot be modify: a tool call is either allowed or blocked")
	}
	return a, nil
}

// EvaluateTool returns the finding for a call of the tool with this name, and whether there is one. The call may run
// unless [Finding.Blocks].
func (g *Guardrail) EvaluateTool(name string) (Finding, bool) {
	if g.tools == nil || g.tools.allowsTool(name) {
		return Finding{}, false
	}
	return g.newFinding("tool.authorization", g.tools.Rule), true
}

// allowsTool reports whether the tool may be called.
func (a *authorization) allowsTool(name string) bool {
	for _, p := range a.Blocked {
		if matchesName(p, name) {
			return false
		}
	}
	for _, p := range a.Allowed {
		if matchesName(p, name) {
			return true
		}
	}
	return a.Allowed == nil
}

// matchesName reports whether name matches pattern, in which * stands for any text, also the empty one. Each piece
// between two stars is matched at its first occurrence, without backtracking.
func matchesName(pattern, name string) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, head)
	for ok {
		piece, more, again := strings.Cut(rest, "*")
		if !again {
			return strings.HasSuffix(name, piece)
		}
		_, name, ok = strings.Cut(name, piece)
		rest = more
	}
	return false
}
