// Package pattern matches regular expressions that a tenant wrote against texts that a caller or a model wrote, and
// bounds the cost of both: [Compile] refuses an expression that is too large, and every match spends steps of a
// [StepBudget], which is limited and ends with its context.
//
// The expressions have the syntax of package regexp (RE2) and match the same texts at the same offsets. Package regexp
// itself cannot be used: it neither counts the cost of a match nor can be stopped, and a pattern with hundreds of
// states takes minutes for a text of some megabytes.
//
// A [Pattern] is compiled once, when a revision is built. A judgement of a text creates a budget with [NewStepBudget]
// for the text's size and passes it to [Pattern.Match], [Pattern.FindGroups] or [Pattern.ReplaceAll]; all patterns of
// the judgement share the budget. While it matches for long, it needs a permit of package processor, which shares the
// processors between apps.
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

// Bounds of expressions. Instructions are those of the compiled program (regexp/syntax.Prog); the cost of one character
// grows with their number.
const (
	// maxExpressionBytes bounds the length of an expression, in bytes.
	maxExpressionBytes = 10_000
	// MaxInstructions bounds the instructions of one expression.
	MaxInstructions = 2_000
	// MaxTotalInstructions bounds the instructions of the expressions of one list, or of one script.
	MaxTotalInstructions = 5_000
	// MaxNamedGroups bounds the named groups of an expression.
	MaxNamedGroups = 32
)

// Pattern is a compiled expression. It is safe for concurrent use: it is read-only except for two caches.
type Pattern struct {
	prog *syntax.Prog
	// names are those of the named groups, in order; other groups are removed before compilation.
	names []string
	// anchored reports that a match can only begin at the beginning of the text.
	anchored bool
	// prefix is a literal with which every match begins, "" if there is none. The search skips to it with
	// strings.Index.
	prefix string
	// startsByFlags caches the states in which a match can begin, by the empty-width conditions (syntax.EmptyOp, 6
	// bits) that hold before the first character. Computed on first use; two goroutines may compute the same value,
	// which is harmless.
	startsByFlags [1 << 6]atomic.Pointer[startStates]
	// matcherPool keeps matchers, whose arrays have the size of the program.
	matcherPool sync.Pool
}

// Compile returns the pattern of an expression. The error says what is wrong and what to do about it, without the name
// of the configuration field, which the caller adds.
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

// CompileAny returns the pattern that matches where any of the expressions does. The expressions of a list are compiled
// under the list's flags. The pattern has no groups, and MaxInstructions does not apply: the caller checks the sum, see
// [SumInstructions].
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

// ExpressionList is a list of expressions with the same flags, such as "(?i)"; "" = none.
type ExpressionList struct {
	Flags string
	Exprs []string
}

// CountInstructions checks an expression against the bounds and returns the number of instructions that it compiles to,
// or slightly more.
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

// SumInstructions returns the sum of CountInstructions. Expressions that are refused count nothing: Compile reports
// them.
func SumInstructions(exprs ...string) (n int) {
	for _, expr := range exprs {
		if one, err := CountInstructions(expr); err == nil {
			n += one
		}
	}
	return n
}

// TotalSizeError returns the error for expressions whose [SumInstructions], n, exceeds MaxTotalInstructions.
func TotalSizeError(n int) error {
	return fmt.Errorf("compile to %d instructions together, at most %d are run: shorten repetitions such as {100,200}, or leave some out", n, MaxTotalInstructions)
}

// sizeError returns the error for one expression of n instructions, more than MaxInstructions.
func sizeError(n int) error {
	return fmt.Errorf("is too large: it compiles to %d instructions, at most %d are run; shorten repetitions such as {100,200}", n, MaxInstructions)
}

// syntaxError returns the error for an expression that package regexp/syntax refuses.
func syntaxError(err error) error {
	return fmt.Errorf("is no RE2 expression: %w", err)
}

// parseExpression parses and checks an expression. Groups without a name are removed: no caller reads them, and each
// costs time at every step.
func parseExpression(expr string) (*syntax.Regexp, error) {
	if len(expr) > maxExpressionBytes {
		return nil, fmt.Errorf("is longer than %d bytes", maxExpressionBytes)
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

// removeGroups returns re without its groups, except the named ones if named is true. It changes re.
func removeGroups(re *syntax.Regexp, named bool) *syntax.Regexp {
	next := 1
	return removeGroupsFrom(re, named, &next)
}

// removeGroupsFrom is removeGroups for a part of an expression; next is the number of the next group that remains.
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

// regexpSize returns the number of instructions that re compiles to, or slightly more. It is computed from the syntax
// tree, because compiling writes out all repetitions, which takes the memory that the bound is to save.
func regexpSize(re *syntax.Regexp) int {
	// maxSize is the cap of the result: nested repetitions would overflow an int.
	const maxSize = 1 << 30
	n := 0
	for _, sub := range re.Sub {
		n = min(n+regexpSize(sub), maxSize)
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
	return min(max(n, 1), maxSize)
}

// compileRegexp compiles a parsed expression.
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

// Names returns the names of the groups, in the order in which [Pattern.FindGroups] returns their texts. The caller
// must not change it.
func (p *Pattern) Names() []string { return p.names }

// MatchesEmpty reports whether the pattern matches the empty text. It needs no budget: its cost is bounded by the
// program's size.
func (p *Pattern) MatchesEmpty() bool {
	found, _ := p.Match(newUnboundedBudget(), "")
	return found
}

// Match reports whether the text contains a match. The error is the budget's.
func (p *Pattern) Match(w *StepBudget, text string) (bool, error) {
	at, err := p.findMatch(w, text, 0, 0)
	return at != nil, err
}

// FindGroups returns the texts of the named groups of the first match, "" for a group that did not take part, and
// whether there is a match.
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

// minReplacedBytes is how long the result of [Pattern.ReplaceAll] may be of a short text.
const minReplacedBytes = 64 << 10

// ReplaceAll returns the text with each match replaced by with, literally, as ReplaceAllLiteralString of package regexp
// does. A result that is more than twice as long as the text and longer than minReplacedBytes fails the budget.
func (p *Pattern) ReplaceAll(w *StepBudget, text, with string) (string, error) {
	m := p.getMatcher()
	defer p.matcherPool.Put(m)
	var out strings.Builder
	copied := 0
	for pos := 0; pos <= len(text); {
		at, err := m.findMatch(w, text, pos, 2)
		if err != nil {
			return "", err
		}
		if at == nil {
			break
		}
		size := at[0] - copied + len(with)
		if out.Len()+size > max(2*len(text), minReplacedBytes) {
			return "", w.FailTooManySteps()
		}
		if size > out.Cap()-out.Len() {
			out.Grow(max(size, len(text)-out.Len())) // doubles at least; WriteString would copy many times
		}
		out.WriteString(text[copied:at[0]])
		if at[1] > copied || at[0] == 0 { // not for an empty match directly after another match, as in package regexp
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
