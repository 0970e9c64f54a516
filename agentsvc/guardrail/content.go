package guardrail

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Content looks for what must not be said.
type Content struct {
	Rule              // Block if no action is set
	Keywords []string // whole words in capital or small letters
	Patterns []string // RE2 expressions
}

func (c *Content) newDetectors() ([]detector, error) {
	d := detector{check: "output.content", rule: c.withDefault(Block), replace: func(string, string) string { return removedMark }}
	var out []detector
	words := make([]string, len(c.Keywords))
	for i, w := range c.Keywords {
		if words[i] = newKeywordPattern(w); words[i] == "" {
			return nil, newInvalidError(fmt.Sprintf("output.content.blocked_keywords[%d]", i), "is empty")
		}
	}
	if err := checkPatterns("output.content.blocked_patterns", c.Patterns); err != nil {
		return nil, err
	}
	for _, list := range []struct {
		field, flags string
		exprs        []string
	}{{"blocked_keywords", "(?i)", words}, {"blocked_patterns", "", c.Patterns}} {
		if len(list.exprs) == 0 {
			continue
		}
		prog, err := compileProgram("output.content."+list.field, joinAlternatives(list.flags, list.exprs))
		if err != nil {
			return nil, err
		}
		prog.unicodeWords = list.field == "blocked_keywords"
		d.program = prog
		out = append(out, d)
	}
	return out, nil
}

// newKeywordPattern returns the expression that finds the words of s, with any white space between them. At an end of s that is
// a letter or digit the word must end as well.
func newKeywordPattern(s string) string {
	words := strings.Fields(s)
	if len(words) == 0 {
		return ""
	}
	for i, w := range words {
		words[i] = regexp.QuoteMeta(w)
	}
	expr := strings.Join(words, `\s+`)
	s = strings.TrimSpace(s)
	if first, _ := utf8.DecodeRuneInString(s); isWordRune(first) {
		expr = `\b` + expr
	}
	if last, _ := utf8.DecodeLastRuneInString(s); isWordRune(last) {
		expr += `\b`
	}
	return expr
}
