package guardrail

import (
	"regexp/syntax"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// maxProgram bounds the instructions of all keywords of a check. Patterns have bounds of their own, in the package pattern.
const maxProgram = 20_000

// program is a compiled RE2 expression for a [scanner]. It is safe for concurrent use.
type program struct {
	*syntax.Prog
	words bool                // \b knows the letters of all languages
	first [utf8.RuneSelf]bool // the ASCII characters that a match can begin with
	start [1 << 6]atomic.Pointer[starts]
}

// starts are the states in which a match begins, of those that look at a character, where certain conditions hold.
type starts struct {
	all   []uint32
	ascii [utf8.RuneSelf][]uint32 // those that accept the character
}

// compile returns the program of expr, which belongs to the configuration's field.
func compile(field, expr string) (*program, error) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, invalid(field, "is no RE2 expression: %v", err)
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, invalid(field, "is no RE2 expression: %v", err)
	}
	if len(prog.Inst) > maxProgram {
		return nil, invalid(field, "are too large: they compile to %d instructions, at most %d are run", len(prog.Inst), maxProgram)
	}
	p := &program{Prog: prog}
	states, empty := p.leaves(anything)
	if empty {
		return nil, invalid(field, "matches the empty text, so it would strike everywhere")
	}
	for r := range p.first {
		p.first[r] = slices.ContainsFunc(states, func(pc uint32) bool { return p.Inst[pc].MatchRune(rune(r)) })
	}
	return p, nil
}

// anyOf returns an expression that matches what one of exprs does, each under flags. Groups lose their names, which may
// be the same in several.
func anyOf(flags string, exprs []string) string {
	list := make([]string, len(exprs))
	for i, e := range exprs {
		list[i] = "(?:" + flags + e + ")"
		if re, err := syntax.Parse(list[i], syntax.Perl); err == nil {
			unname(re)
			list[i] = re.String()
		}
	}
	return "(?:" + strings.Join(list, ")|(?:") + ")"
}

func unname(re *syntax.Regexp) {
	re.Name = ""
	for _, sub := range re.Sub {
		unname(sub)
	}
}

// anything are all conditions at once.
const anything = syntax.EmptyBeginLine | syntax.EmptyEndLine | syntax.EmptyBeginText | syntax.EmptyEndText | syntax.EmptyWordBoundary | syntax.EmptyNoWordBoundary

// mayBegin reports whether a match can begin with r.
func (p *program) mayBegin(r rune) bool { return r >= utf8.RuneSelf || p.first[r] }

// starts returns the states in which a match begins where flags hold and the next character is r.
func (p *program) starts(flags syntax.EmptyOp, r rune) []uint32 {
	at := &p.start[flags]
	s := at.Load()
	if s == nil {
		s = &starts{}
		s.all, _ = p.leaves(flags)
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

// leaves returns the states that look at a character and that are reached from the beginning where flags hold, and
// whether a match is.
func (p *program) leaves(flags syntax.EmptyOp) (states []uint32, empty bool) {
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

// context returns what holds between two characters; -1 stands for an end of the text.
func (p *program) context(before, after rune) syntax.EmptyOp {
	flags := syntax.EmptyOpContext(before, after)
	if p.words {
		flags &^= syntax.EmptyWordBoundary | syntax.EmptyNoWordBoundary
		if isWord(before) != isWord(after) {
			flags |= syntax.EmptyWordBoundary
		} else {
			flags |= syntax.EmptyNoWordBoundary
		}
	}
	return flags
}

// isWord reports whether r belongs to a word that white space or punctuation ends. Scripts that are written without
// spaces have no such words.
func isWord(r rune) bool {
	if r < utf8.RuneSelf {
		return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) {
		return false
	}
	return unicode.In(r, unicode.Letter, unicode.Mark, unicode.Number)
}
