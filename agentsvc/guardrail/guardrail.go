// Package guardrail judges what goes into an agent and what comes out of it: a [Guardrail] checks the messages of
// callers before a model reads them, the answer of a model before anyone sees it, and the tools that the model wants to
// call. It judges texts and calls nobody: whoever stands between an agent and its model asks it, and does as it says.
//
// A check that strikes is a [Finding]. Its [Action] says what becomes of the text: it passes (allow, warn), it is
// changed (modify), or it goes no further (block). In shadow mode all is judged and nothing is changed.
package guardrail

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
)

// Action is what happens to a text in which a check has struck, from the mildest to the strictest.
type Action string

// The actions. Allow and Warn let the text pass; Warn tells the caller.
const (
	Allow  Action = "allow"
	Warn   Action = "warn"
	Modify Action = "modify"
	Block  Action = "block"
)

// changesText reports whether the action does something to the text.
func (a Action) changesText() bool { return a == Modify || a == Block }

// Rule is what every check has in common: what to do when it strikes, and how bad that is.
type Rule struct {
	Action   Action // Block if empty
	Severity string // low, medium, high or critical
}

// Finding says that a check has struck in a message, in an answer, or at a tool call. It holds nothing of the text.
type Finding struct {
	Guardrail string // its name
	Check     string // such as input.length
	Action    Action
	Severity  string
	Shadow    bool // the action is what would have happened
	// Unevaluated says that the check took more work than is allowed, and so counts as one that struck.
	Unevaluated bool
}

// Options say what a guardrail checks. What is nil is not checked.
type Options struct {
	Shadow bool
	Input  Input
	Output Output
	// Authorization says which tools may be called.
	Authorization *Authorization
}

// Guardrail is a set of checks. It is safe for concurrent use.
type Guardrail struct {
	name   string
	shadow bool
	input  input
	output output
	tools  *authorization
}

// New returns the guardrail of this name. It returns an [agentsvc.InvalidError] for a pattern that is no RE2
// expression, that strikes at the empty text, or that is too large.
func New(name string, o Options) (*Guardrail, error) {
	g := &Guardrail{name: name, shadow: o.Shadow}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	var err error
	if g.input, err = newInput(o.Input); err != nil {
		return nil, err
	}
	if g.output, err = newOutput(o.Output, key); err != nil {
		return nil, err
	}
	if g.tools, err = newAuthorization(o.Authorization); err != nil {
		return nil, err
	}
	return g, nil
}

// newFinding makes a finding of a check.
func (g *Guardrail) newFinding(check string, r Rule) Finding {
	return Finding{Guardrail: g.name, Check: check, Action: r.Action, Severity: r.Severity, Shadow: g.shadow}
}

// newUnevaluatedFinding makes a finding of a check that took more work than is allowed.
func (g *Guardrail) newUnevaluatedFinding(check string, r Rule) Finding {
	f := g.newFinding(check, r)
	f.Unevaluated = true
	if r.Action.changesText() {
		f.Action = Block
	}
	return f
}

// Blocks reports whether what f was found in goes no further.
func (f Finding) Blocks() bool { return f.Action == Block && !f.Shadow }

// ToFinding is f as a turn tells of it.
func (f Finding) ToFinding() agentsvc.Finding {
	phase, check, _ := strings.Cut(f.Check, ".")
	return agentsvc.Finding{
		Guardrail: f.Guardrail, Phase: phase, Rule: check, Action: string(f.Action), Severity: f.Severity, Shadow: f.Shadow,
	}
}

// listBlockingChecks returns the names of the checks that block, or "" if none does.
func listBlockingChecks(found []Finding) string {
	var names []string
	for _, f := range found {
		name := f.Check
		if f.Unevaluated {
			name += ": " + pattern.ErrTooManySteps.Error()
		}
		if f.Blocks() && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// newWithheldText says that a text goes no further. It names the guardrail and never what it looks for.
func (g *Guardrail) newWithheldText(what, checks string) string {
	return fmt.Sprintf("%s withheld by the guardrail %q (%s).", what, g.name, checks)
}

func (r Rule) withDefault(a Action) Rule {
	if r.Action == "" {
		r.Action = a
	}
	return r
}

func newInvalidError(field, format string, args ...any) error {
	return agentsvc.NewInvalidError(field, format, args...)
}
