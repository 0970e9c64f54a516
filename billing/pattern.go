package billing

import "strings"

// matchesPattern reports whether a name fits a pattern, in which * stands for any characters, also none, and ? for one. The empty
// pattern fits every name.
func matchesPattern(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	star, mark := -1, 0
	p, n := 0, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0: // let the last star take one more
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// MatchesModel reports whether a pattern is one of a model, with its provider and a slash before the name or without.
func MatchesModel(pattern, provider, model string) bool {
	return matchesPattern(pattern, provider+"/"+model) || matchesPattern(pattern, model)
}

// isPattern reports whether s stands for more than the name it is.
func isPattern(s string) bool { return s == "" || strings.ContainsAny(s, "*?") }

// patternSpecificity says how specific a pattern is: a name most of all, then by how many characters it names.
func patternSpecificity(p string) int {
	n := 0
	for _, c := range p {
		if c != '*' && c != '?' {
			n++
		}
	}
	if !isPattern(p) {
		n += maxPatternBytes
	}
	return n
}

// maxPatternBytes bounds a pattern, in bytes.
const maxPatternBytes = 256
