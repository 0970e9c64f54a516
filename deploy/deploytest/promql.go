package deploytest

import (
	"regexp"
	"slices"
	"strings"
)

// Selector is a metric in a query with the conditions on its labels.
type Selector struct {
	Metric   string
	Matchers []Matcher
}

// Matcher is a condition on a label. Op is one of =, !=, =~ and !~.
type Matcher struct{ Label, Op, Value string }

// Values returns the values that a series must have one of for a condition to be useful, and false if the condition names
// none: it excludes values, matches a pattern, or contains a variable of a dashboard.
func (m Matcher) Values() ([]string, bool) {
	if m.Op == "=" && !strings.Contains(m.Value, "$") {
		return []string{m.Value}, m.Value != ""
	}
	if m.Op == "=~" && regexp.MustCompile(`^[\w|]+$`).MatchString(m.Value) {
		return strings.Split(m.Value, "|"), true
	}
	return nil, false
}

var (
	promqlToken = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[a-zA-Z_:][\w:]*|\d[\w.]*|=~|!~|!=|\S`)
	// groupingWords are followed by a list of labels.
	groupingWords = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
	promqlWords   = []string{"and", "or", "unless", "bool", "offset"}
)

// ParseQuery returns the metrics of a PromQL expression and the labels that it groups or matches by. It understands as much
// of the language as finding them needs; promtool checks the rest.
func ParseQuery(expr string) (selectors []Selector, grouped []string) {
	tokens := append(promqlToken.FindAllString(expr, -1), "")
	for i := 0; i < len(tokens)-1; i++ {
		word, next := tokens[i], tokens[i+1]
		switch {
		case slices.Contains(groupingWords, word):
			for i += 2; i < len(tokens) && tokens[i] != ")"; i++ {
				if tokens[i] != "," {
					grouped = append(grouped, tokens[i])
				}
			}
		case !isName(word) || slices.Contains(promqlWords, word) || next == "(" || isAggregation(next):
		default:
			s := Selector{Metric: word}
			if next == "{" {
				for i += 2; i+2 < len(tokens) && tokens[i] != "}"; i++ {
					if tokens[i] != "," {
						s.Matchers = append(s.Matchers, Matcher{tokens[i], tokens[i+1], strings.Trim(tokens[i+2], `"`)})
						i += 2
					}
				}
			}
			selectors = append(selectors, s)
		}
	}
	return selectors, grouped
}

// isName reports whether a token can be the name of a metric.
func isName(token string) bool {
	return token != "" && (token[0] == '_' || token[0] == ':' || token[0] >= 'a' && token[0] <= 'z' || token[0] >= 'A' && token[0] <= 'Z')
}

// isAggregation reports whether the word before next is an operator such as sum, whose labels stand before its argument.
func isAggregation(next string) bool { return next == "by" || next == "without" }
