package guardrail

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Content is a check of answers for keywords and patterns.
type Content struct {
	Rule // Block if no action is set
	// Keywords are words or phrases, matched as whole words and without regard to case. Patterns are RE2 expressions.
	Keywords []string
	// Patterns are RE2 expressions, case-sensitive unless they say (?i).
	Patterns []string
}

// newDetectors returns at most two detectors, one for all keywords and one for all patterns: the cost of a character
// then does not grow with the length of the lists alone.
func (c *Content) newDetectors() ([]detector, error) {
	d := detector{check: "output.content", rule: c.withDefault(Block), replace: func(string, string) string { return removedMark }}
	var out []detector
	var errs []error
	words := make([]string, len(c.Keywords))
	for i, w := range c.Keywords {
		if words[i] = newKeywordPattern(w); words[i] == "" {
			errs = append(errs, newInvalidError(fmt.Sprintf("output.content.blocked_keywords[%d]", i), "is empty"))
		}
	}
	if len(errs) > 0 {
		words = nil // an empty one would match everywhere
	}
	patterns := c.Patterns
	if err := checkPatterns("output.content.blocked_patterns", patterns); err != nil {
		errs, patterns = append(errs, err), nil
	}
	for _, list := range []struct {
		field, flags string
		exprs        []string
	}{{"blocked_keywords", "(?i)", words}, {"blocked_patterns", "", patterns}} {
		if len(list.exprs) == 0 {
			continue
		}
		prog, err := compileProgram("output.content."+list.field, joinAlternatives(list.flags, list.exprs))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		// Keywords are in any language; \b of RE2 knows ASCII words only.
		prog.unicodeWords = list.field == "blocked_keywords"
		d.program = prog
		out = append(out, d)
	}
	return out, errors.Join(errs...)
}

// newKeywordPattern returns the expression that matches the words of s with any white space between them, or "" if s
// has none. At an end of s that is a letter or digit, a word boundary is required, so that "cat" does not match
// "category".
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
