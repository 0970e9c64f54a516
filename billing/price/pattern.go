package price

import "strings"

// matchesPattern reports whether name matches pattern, in which * stands for any characters, also none, and ? for one
// byte. The empty pattern matches every name. It takes time in proportion to the product of the lengths: it backtracks
// to the last * only.
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
		// Let the last * match one more byte, and try the rest of the pattern again.
		case star >= 0:
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// MatchesModel reports whether a pattern matches a model as provider/model or as the model's name alone.
func MatchesModel(pattern, provider, model string) bool {
	return matchesPattern(pattern, provider+"/"+model) || matchesPattern(pattern, model)
}

// isPattern reports whether s can match more than one name.
func isPattern(s string) bool { return s == "" || strings.ContainsAny(s, "*?") }

// patternSpecificity ranks patterns: the number of literal characters, and every exact name above every pattern.
func patternSpecificity(p string) int {
	n := 0
	for _, c := range p {
		if c != '*' && c != '?' {
			n++
		}
	}
	if !isPattern(p) {
		n += MaxPatternBytes
	}
	return n
}

// MaxPatternBytes bounds the length of a pattern.
const MaxPatternBytes = 256
