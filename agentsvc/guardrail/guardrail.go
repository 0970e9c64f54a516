// Package guardrail checks what goes into an agent and what comes out of it. A [Guardrail] is a named set of checks,
// built once for each revision from [Options]:
//
//   - [Guardrail.EvaluateInput] checks the messages of callers before a model reads them ([Sanitizer], [Length],
//     [Injection]).
//   - [Guardrail.NewAnswerCheck] checks the answer of a model while it streams, before anyone sees it ([PII],
//     [Content]).
//   - [Guardrail.EvaluateTool] checks whether the model may call a tool ([Authorization]).
//
// The package judges texts and has no other effect. The decorators that apply its results to models, agents and tools
// are in package runtime.
//
// A check that matches yields a [Finding]. The check's [Action] says what happens to the text: it passes (Allow, Warn),
// it is changed (Modify), or it is withheld (Block). In shadow mode all checks run and nothing is changed. Findings
// never contain the checked text, so they can be logged.
//
// The cost of a check is bounded by a pattern.StepBudget in proportion to the size of the text. A check that exceeds it
// counts as matched, and blocks where it would have changed or blocked the text: the guardrail fails closed.
package guardrail

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
)

// Action is what happens to a text in which a check matched. The constants are in order of severity.
type Action string

// The actions. Allow and Warn let the text pass; the caller is notified of Warn.
const (
	Allow  Action = "allow"
	Warn   Action = "warn"
	Modify Action = "modify"
	Block  Action = "block"
)

// changesText reports whether the action modifies or withholds the text.
func (a Action) changesText() bool { return a == Modify || a == Block }

// Rule is the part that all checks have in common: the action when the check matches, and the severity for reports.
type Rule struct {
	// Action is the action when the check matches; empty: the check's default, which withDefault sets.
	Action Action
	// Severity is low, medium, high or critical. It is only reported.
	Severity string
}

// Finding reports that a check matched in a message, in an answer or at a tool call. It contains no part of the text.
// It is comparable, so that duplicates can be removed.
type Finding struct {
	// Guardrail is the name of the guardrail.
	Guardrail string
	// Check is the phase and the rule, e.g. "input.length".
	Check    string
	Action   Action
	Severity string
	// Shadow reports that the action was not taken, because the guardrail is in shadow mode.
	Shadow bool
	// Unevaluated reports that the check exceeded its budget and counts as matched.
	Unevaluated bool
}

// Options are the checks of a guardrail. Checks that are nil do not run.
type Options struct {
	// App is the app whose share of the processors the checks use, see package processor.
	App    string
	Shadow bool
	Input  Input
	Output Output
	// Authorization decides which tools the model may call.
	Authorization *Authorization
}

// Guardrail is a set of checks. It is immutable and safe for concurrent use.
type Guardrail struct {
	name   string
	app    string // see Options.App
	shadow bool
	input  input
	output output
	tools  *authorization
}

// New returns the guardrail with this name. It returns an error with [agentsvc.CodeInvalid] for a pattern that is not
// an RE2 expression, matches the empty text or is too large. Equal data has equal hashes ([Hash]) within one guardrail
// only, since each has a random key.
func New(name string, o Options) (*Guardrail, error) {
	g := &Guardrail{name: name, app: o.App, shadow: o.Shadow}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // crypto/rand.Read never returns an error
	var errs [3]error
	g.input, errs[0] = newInput(o.Input)
	g.output, errs[1] = newOutput(o.Output, key)
	g.tools, errs[2] = newAuthorization(o.Authorization)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return g, nil
}

// newFinding returns the finding of a check that matched.
func (g *Guardrail) newFinding(check string, r Rule) Finding {
	return Finding{Guardrail: g.name, Check: check, Action: r.Action, Severity: r.Severity, Shadow: g.shadow}
}

// newUnevaluatedFinding returns the finding of a check that exceeded its budget. A check that would change the text
// blocks it, since what it would have found is unknown.
func (g *Guardrail) newUnevaluatedFinding(check string, r Rule) Finding {
	f := g.newFinding(check, r)
	f.Unevaluated = true
	if r.Action.changesText() {
		f.Action = Block
	}
	return f
}

// Blocks reports whether the text must be withheld because of f.
func (f Finding) Blocks() bool { return f.Action == Block && !f.Shadow }

// ToFinding returns f as the domain type that is recorded on the task's log.
func (f Finding) ToFinding() agentsvc.Finding {
	phase, check, _ := strings.Cut(f.Check, ".")
	return agentsvc.Finding{
		Guardrail: f.Guardrail, Phase: phase, Rule: check, Action: string(f.Action), Severity: f.Severity, Shadow: f.Shadow,
	}
}

// listBlockingChecks returns the names of the checks that block, joined by commas, or "" if none does.
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

// newWithheldText returns the text shown instead of a withheld one. It names the guardrail and the checks, never their
// patterns, which would help to evade them.
func (g *Guardrail) newWithheldText(what, checks string) string {
	return fmt.Sprintf("%s withheld by the guardrail %q (%s).", what, g.name, checks)
}

// withDefault returns r with action a if it has none.
func (r Rule) withDefault(a Action) Rule {
	if r.Action == "" {
		r.Action = a
	}
	return r
}

// newInvalidError returns an error about a field of the guardrail's configuration.
func newInvalidError(field, format string, args ...any) error {
	return agentsvc.NewInvalidError(field, format, args...)
}
