// Package pattern matches regular expressions that a tenant wrote against texts that a caller or a model wrote, and
// bounds both: [Compile] refuses an expression that is too large, and every match is paid for from a [StepBudget], which has a
// budget of steps and ends with its context.
//
// The expressions are those of the package regexp (RE2 syntax) and match the same texts at the same places. That package
// cannot be used for them: it neither counts what a match costs nor stops, and a pattern with hundreds of states takes
// minutes for a text of some megabytes.
package pattern

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// Bounds of expressions.
const (
	MaxExpressionBytes   = 10_000 // bytes of an expression
	MaxInstructions      = 2_000  // instructions that an expression compiles to
	MaxTotalInstructions = 5_000  // instructions of the expressions of one list, or of one script
	MaxNamedGroups       = 32     // named groups of an expression
)

// Pattern is a compiled expression. It is safe for concurrent use.
type Pattern struct {
	prog          *syntax.Prog
	names         []string                            // of the groups, in order; only named groups are kept
	anchored      bool                                // a match begins at the beginning of the text
	prefix        string                              // that every match begins with
	startsByFlags [1 << 6]atomic.Pointer[startStates] // by what holds before the first character
	matcherPool   sync.Pool
}

// Compile returns the pattern of an expression. An error names what is wrong, and what to do about it, without the field.
func Compile(expr string) (*Pattern, error) {
	re, err := parseExpression(expr)
	if err != nil {
		return nil, err
	}
	if n := regexpSize(re); n > MaxInstructions {
		return nil, sizeError(n)
	}
	return compileRegexp(re)
}

// CompileAny returns the pattern that matches what one of the expressions does, each under flags such as (?i), "" = none. It has
// no groups, and is not held to MaxInstructions: the caller bounds the sum.
func CompileAny(lists ...ExpressionList) (*Pattern, error) {
	all := &syntax.Regexp{Op: syntax.OpAlternate, Flags: syntax.Perl}
	for _, list := range lists {
		for _, expr := range list.Exprs {
			re, err := syntax.Parse(list.Flags+"(?:"+expr+")", syntax.Perl)
			if err != nil {
				return nil, syntaxError(err)
			}
			all.Sub = append(all.Sub, removeGroups(re, false))
		}
	}
	return compileRegexp(all)
}

// ExpressionList is a list of expressions that are compiled under the same flags.
type ExpressionList struct {
	Flags string
	Exprs []string
}

// CountInstructions checks an expression against the bounds and returns about how many instructions it compiles to.
func CountInstructions(expr string) (int, error) {
	re, err := parseExpression(expr)
	if err != nil {
		return 0, err
	}
	n := regexpSize(re)
	if n > MaxInstructions {
		return n, sizeError(n)
	}
	return n, nil
}

// SumInstructions returns how many instructions the expressions compile to, but for those that are refused.
func SumInstructions(exprs ...string) (n int) {
	for _, expr := range exprs {
		if one, err := CountInstructions(expr); err == nil {
			n += one
		}
	}
	return n
}

// TotalSizeError is what is wrong with expressions whose [SumInstructions] n is above MaxTotalInstructions.
func TotalSizeError(n int) error {
	return fmt.Errorf("compile to %d instructions together, at most %d are run: shorten repetitions such as {100,200}, or leave some out", n, MaxTotalInstructions)
}

func sizeError(n int) error {
	return fmt.Errorf("is too large: it compiles to %d instructions, at most %d are run; shorten repetitions such as {100,200}", n, MaxInstructions)
}

func syntaxError(err error) error {
	return fmt.Errorf("is no RE2 expression: %w", err)
}

// parseExpression reads an expression. Groups without a name are not kept: nothing asks for them, and they cost time at each step.
func parseExpression(expr string) (*syntax.Regexp, error) {
	if len(expr) > MaxExpressionBytes {
		return nil, fmt.Errorf("is longer than %d bytes", MaxExpressionBytes)
	}
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, syntaxError(err)
	}
	if n := len(re.CapNames()) - 1; n > MaxNamedGroups {
		named := slices.DeleteFunc(re.CapNames(), func(name string) bool { return name == "" })
		if len(named) > MaxNamedGroups {
			return nil, fmt.Errorf("has %d named groups, at most %d are kept", len(named), MaxNamedGroups)
		}
	}
	return removeGroups(re, true), nil
}

// removeGroups returns re without its groups, but for those with a name where named is true.
func removeGroups(re *syntax.Regexp, named bool) *syntax.Regexp {
	next := 1
	return removeGroupsFrom(re, named, &next)
}

func removeGroupsFrom(re *syntax.Regexp, named bool, next *int) *syntax.Regexp {
	if re.Op == syntax.OpCapture {
		if !named || re.Name == "" {
			return removeGroupsFrom(re.Sub[0], named, next)
		}
		re.Cap = *next
		*next++
	}
	for i, sub := range re.Sub {
		re.Sub[i] = removeGroupsFrom(sub, named, next)
	}
	return re
}

// regexpSize returns how many instructions re compiles to, or a few more. It is known before the repetitions are written out,
// which takes memory.
func regexpSize(re *syntax.Regexp) int {
	const most = 1 << 30 // beyond which nobody needs to know
	n := 0
	for _, sub := range re.Sub {
		n = min(n+regexpSize(sub), most)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCapture, syntax.OpStar:
		n += 2
	case syntax.OpPlus, syntax.OpQuest:
		n++
	case syntax.OpAlternate:
		n += len(re.Sub) - 1
	case syntax.OpRepeat:
		if re.Max < 0 {
			n = max(re.Min, 1)*n + 2
		} else {
			n = re.Max*n + re.Max - re.Min
		}
	}
	return min(max(n, 1), most)
}

func compileRegexp(re *syntax.Regexp) (*Pattern, error) {
	names := re.CapNames()[1:]
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, syntaxError(err)
	}
	p := &Pattern{prog: prog, names: names, anchored: prog.StartCond()&syntax.EmptyBeginText != 0}
	p.prefix, _ = prog.Prefix()
	return p, nil
}

// Names returns the names of the groups, in the order of what [Pattern.FindGroups] returns.
func (p *Pattern) Names() []string { return p.names }

// MatchesEmpty reports whether the pattern matches the empty text.
func (p *Pattern) MatchesEmpty() bool {
	found, _ := p.Match(newUnboundedBudget(), "")
	return found
}

// Match reports whether the text holds a match.
func (p *Pattern) Match(w *StepBudget, text string) (bool, error) {
	at, err := p.findMatch(w, text, 0, 0)
	return at != nil, err
}

// FindGroups returns what the named groups of the first match hold, and whether there is a match.
func (p *Pattern) FindGroups(w *StepBudget, text string) ([]string, bool, error) {
	at, err := p.findMatch(w, text, 0, 2+2*len(p.names))
	if at == nil {
		return nil, false, err
	}
	groups := make([]string, len(p.names))
	for i := range groups {
		if from, to := at[2+2*i], at[3+2*i]; from >= 0 && to >= 0 {
			groups[i] = text[from:to]
		}
	}
	return groups, true, nil
}

// ReplaceAll returns the text with other text in the place of each match, as ReplaceAllLiteralString of the package
// regexp does.
func (p *Pattern) ReplaceAll(w *StepBudget, text, with string) (string, error) {
	var out strings.Builder
	copied := 0
	for pos := 0; pos <= len(text); {
		at, err := p.findMatch(w, text, pos, 2)
		if err != nil {
			return "", err
		}
		if at == nil {
			break
		}
		out.WriteString(text[copied:at[0]])
		if at[1] > copied || at[0] == 0 { // not for an empty match right behind another one
			out.WriteString(with)
		}
		copied = at[1]
		_, width := utf8.DecodeRuneInString(text[pos:])
		pos = max(pos+max(width, 1), at[1])
	}
	if copied == 0 && out.Len() == 0 {
		return text, nil
	}
	out.WriteString(text[copied:])
	return out.String(), nil
}
