package billing

import "strings"

// matches reports whether a name fits a pattern, in which * stands for any characters, also none, and ? for one. The empty
// pattern fits every name.
func matches(pattern, name string) bool {
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

// Fits reports whether a pattern is one of a model, with its provider and a slash before the name or without.
func Fits(pattern, provider, model string) bool {
	return matches(pattern, provider+"/"+model) || matches(pattern, model)
}

// pattern reports whether s stands for more than the name it is.
func pattern(s string) bool { return s == "" || strings.ContainsAny(s, "*?") }

// weight says how specific a pattern is: a name most of all, then by how many characters it names.
func weight(p string) int {
	n := 0
	for _, c := range p {
		if c != '*' && c != '?' {
			n++
		}
	}
	if !pattern(p) {
		n += maxPattern
	}
	return n
}

// maxPattern bounds a pattern, in bytes.
const maxPattern = 256
