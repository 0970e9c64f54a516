package guardrail

import (
	"regexp/syntax"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// maxProgramSize bounds the instructions of a compiled list of keywords or patterns. Configured patterns have stricter
// bounds, see checkPatterns.
const maxProgramSize = 20_000

// program is a compiled RE2 expression for a [scanner]. It is read-only, except for startCache, and safe for concurrent
// use.
type program struct {
	*syntax.Prog
	// unicodeWords: \b is a boundary of words in any language, not only of ASCII words.
	unicodeWords bool
	// canBegin reports for each ASCII character whether a match can begin with it. Most characters of a text are
	// skipped by it.
	canBegin [utf8.RuneSelf]bool
	// startCache caches startStates by the empty-width conditions (6 bits). Two goroutines may compute the same value,
	// which is harmless.
	startCache [1 << 6]atomic.Pointer[startStates]
}

// startStates are the instructions at which a match begins under certain conditions and that consume a character.
type startStates struct {
	all []uint32
	// ascii lists those that accept the character.
	ascii [utf8.RuneSelf][]uint32
}

// compileProgram returns the program of expr. Errors name field. An expression that matches the empty text is refused,
// because it would match everywhere.
func compileProgram(field, expr string) (*program, error) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, newInvalidError(field, "is no RE2 expression: %v", err)
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, newInvalidError(field, "is no RE2 expression: %v", err)
	}
	if len(prog.Inst) > maxProgramSize {
		return nil, newInvalidError(field, "are too large: they compile to %d instructions, at most %d are run", len(prog.Inst), maxProgramSize)
	}
	p := &program{Prog: prog}
	states, empty := p.findRuneStates(allConditions)
	if empty {
		return nil, newInvalidError(field, "matches the empty text, so it would match everywhere")
	}
	for r := range p.canBegin {
		p.canBegin[r] = slices.ContainsFunc(states, func(pc uint32) bool { return p.Inst[pc].MatchRune(rune(r)) })
	}
	return p, nil
}

// joinAlternatives returns an expression that matches where any of exprs does, each under flags. Group names are
// removed, because several expressions may use the same one.
func joinAlternatives(flags string, exprs []string) string {
	list := make([]string, len(exprs))
	for i, e := range exprs {
		list[i] = "(?:" + flags + e + ")"
		if re, err := syntax.Parse(list[i], syntax.Perl); err == nil {
			removeGroupNames(re)
			list[i] = re.String()
		}
	}
	return "(?:" + strings.Join(list, ")|(?:") + ")"
}

// removeGroupNames removes the names of all groups in re.
func removeGroupNames(re *syntax.Regexp) {
	re.Name = ""
	for _, sub := range re.Sub {
		removeGroupNames(sub)
	}
}

// allConditions are all empty-width conditions at once, used to find what any of them lets through.
const allConditions = syntax.EmptyBeginLine | syntax.EmptyEndLine | syntax.EmptyBeginText | syntax.EmptyEndText | syntax.EmptyWordBoundary | syntax.EmptyNoWordBoundary

// canBeginWith reports whether a match can begin with r. For characters beyond ASCII it is always true.
func (p *program) canBeginWith(r rune) bool { return r >= utf8.RuneSelf || p.canBegin[r] }

// loadStartStates returns the instructions at which a match begins where flags hold and r is the next character.
func (p *program) loadStartStates(flags syntax.EmptyOp, r rune) []uint32 {
	at := &p.startCache[flags]
	s := at.Load()
	if s == nil {
		s = &startStates{}
		s.all, _ = p.findRuneStates(flags)
		for r := range s.ascii {
			for _, pc := range s.all {
				if p.Inst[pc].MatchRune(rune(r)) {
					s.ascii[r] = append(s.ascii[r], pc)
				}
			}
		}
		at.Store(s)
	}
	if r < utf8.RuneSelf {
		return s.ascii[r]
	}
	return s.all
}

// findRuneStates returns the instructions that consume a character and are reached from the start where flags hold, and
// whether the empty text matches.
func (p *program) findRuneStates(flags syntax.EmptyOp) (states []uint32, empty bool) {
	seen := make([]bool, len(p.Inst))
	stack := []uint32{uint32(p.Start)}
	for len(stack) > 0 {
		pc := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		switch i := &p.Inst[pc]; i.Op {
		case syntax.InstMatch:
			empty = true
		case syntax.InstAlt, syntax.InstAltMatch:
			stack = append(stack, i.Out, i.Arg)
		case syntax.InstCapture, syntax.InstNop:
			stack = append(stack, i.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(i.Arg)&^flags == 0 {
				stack = append(stack, i.Out)
			}
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			states = append(states, pc)
		}
	}
	return states, empty
}

// conditionsBetween returns the conditions that hold between two characters; -1 stands for an end of the text.
func (p *program) conditionsBetween(before, after rune) syntax.EmptyOp {
	flags := syntax.EmptyOpContext(before, after)
	if p.unicodeWords {
		flags &^= syntax.EmptyWordBoundary | syntax.EmptyNoWordBoundary
		if isWordRune(before) != isWordRune(after) {
			flags |= syntax.EmptyWordBoundary
		} else {
			flags |= syntax.EmptyNoWordBoundary
		}
	}
	return flags
}

// isWordRune reports whether r belongs to a word that white space or punctuation delimits. Scripts without spaces
// between words have no such words.
func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) {
		return false
	}
	return unicode.In(r, unicode.Letter, unicode.Mark, unicode.Number)
}
