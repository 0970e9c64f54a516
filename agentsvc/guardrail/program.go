package guardrail

import (
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxProgram bounds the instructions of a pattern, or of all patterns and keywords of one check: each of them may cost
// time at every character.
const maxProgram = 20_000

// program is a compiled RE2 expression for a [scanner].
type program struct {
	*syntax.Prog
	words bool                // \b knows the letters of all languages
	first [utf8.RuneSelf]bool // the ASCII characters that a match can begin with
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
		return nil, invalid(field, "is too large: it compiles to %d instructions, at most %d are run", len(prog.Inst), maxProgram)
	}
	p := &program{Prog: prog}
	if p.begin() {
		return nil, invalid(field, "matches the empty text, so it would strike everywhere")
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

// begin finds out what a match can begin with. It reports whether a match can be empty.
func (p *program) begin() bool {
	seen := make([]bool, len(p.Inst))
	stack := []uint32{uint32(p.Start)}
	empty := false
	for len(stack) > 0 {
		pc := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		i := &p.Inst[pc]
		switch i.Op {
		case syntax.InstMatch:
			empty = true
		case syntax.InstAlt, syntax.InstAltMatch:
			stack = append(stack, i.Out, i.Arg)
		case syntax.InstCapture, syntax.InstNop, syntax.InstEmptyWidth:
			stack = append(stack, i.Out)
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			for r := range p.first {
				p.first[r] = p.first[r] || i.MatchRune(rune(r))
			}
		}
	}
	return empty
}

// mayBegin reports whether a match can begin with r.
func (p *program) mayBegin(r rune) bool { return r >= utf8.RuneSelf || p.first[r] }

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
	if r < 0 || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) {
		return false
	}
	return r == '_' || unicode.In(r, unicode.Letter, unicode.Mark, unicode.Number)
}
