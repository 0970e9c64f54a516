package guardrail

import (
	"errors"
	"strings"
)

// Authorization says which tools may be called. Patterns are names in which * stands for anything.
type Authorization struct {
	Rule             // Block if no action is set
	Allowed []string // nil: all
	Blocked []string // also of those that are allowed
}

// ErrNotAllowed is what a model is told of a call that is refused.
var ErrNotAllowed = errors.New("not allowed by policy")

// authorization is an [Authorization] that was checked.
type authorization struct {
	Authorization
}

func newAuthorization(o *Authorization) (*authorization, error) {
	if o == nil {
		return nil, nil
	}
	a := &authorization{*o}
	a.Rule = a.withDefault(Block)
	if a.Action == Modify {
		return nil, newInvalidError("tool.authorization.action", "cannot be modify: a call runs or does not")
	}
	return a, nil
}

// EvaluateTool returns what is found when the tool of this name is called, if something is. The call may run unless the
// finding [Finding.Blocks].
func (g *Guardrail) EvaluateTool(name string) (Finding, bool) {
	if g.tools == nil || g.tools.allowsTool(name) {
		return Finding{}, false
	}
	return g.newFinding("tool.authorization", g.tools.Rule), true
}

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

// matchesName reports whether name fits pattern, in which * stands for any text, the empty one included.
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
