package config

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fault is a reference that cannot be filled in.
type fault struct {
	name string // of the missing variable; empty where the reference itself is malformed
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// interpolate replaces ${NAME} and ${NAME:default} in text by what lookup says. A variable that is set to
// nothing counts as missing. $${ is a literal ${. What comes from a variable is not looked at again. It stops once the result has more
// than most bytes.
func interpolate(text string, lookup func(string) (string, bool), most int) (string, []fault) {
	var out strings.Builder
	var faults []fault
	for {
		before, rest, found := strings.Cut(text, "${")
		if found && strings.HasSuffix(before, "$") {
			out.WriteString(before[:len(before)-1] + "${")
			text = rest
			continue
		}
		out.WriteString(before)
		if !found || out.Len() > most {
			return out.String(), faults
		}
		reference, rest, closed := strings.Cut(rest, "}")
		name, fallback, hasFallback := strings.Cut(reference, ":")
		if !closed || !variableName.MatchString(name) {
			return "", append(faults, fault{})
		}
		value, _ := lookup(name)
		switch {
		case value != "":
			out.WriteString(value)
		case hasFallback:
			out.WriteString(fallback)
		default:
			faults = append(faults, fault{name})
		}
		text = rest
	}
}

// scalar fills in the variables of n. Afterwards a plain scalar has the type that its text has.
func (e *expander) scalar(n *yaml.Node, p *path) {
	if e.fill == nil {
		return
	}
	if a, _ := parseAddress(n.Value); n.Value == mask || a.holdsMask() {
		e.doc.problem(spot{p, nil, n}, "holds the mask that stands for a secret: give the secret itself, or a ${VARIABLE}; "+
			"one that is known is kept only for the host or program that it was given for, and while what stands beside it stays as it was")
	}
	if !strings.Contains(n.Value, "${") {
		return
	}
	value, faults := interpolate(n.Value, e.fill, maxText-e.text)
	for _, f := range faults {
		e.doc.problem(spot{p, nil, n}, f.message(e.missing))
	}
	e.doc.filled[n] = true
	n.Value = value
	if n.Style == 0 {
		n.Tag = plainTag(value)
	}
	if len(faults) > 0 {
		e.doc.broken[n] = true
		n.Style, n.Tag, n.Value = 0, "!!null", ""
	}
}

// plainTag is the type of text as a plain scalar: a number, true or false, nothing if it is empty, else text.
func plainTag(text string) string {
	plain := yaml.Node{Kind: yaml.ScalarNode, Value: text}
	switch tag := plain.ShortTag(); tag {
	case "!!int", "!!float", "!!bool":
		return tag
	}
	if text == "" {
		return "!!null"
	}
	return "!!str"
}

func (f fault) message(missing string) string {
	if f.name == "" {
		return "has a ${ that is not ${NAME} or ${NAME:default}; write $${ for a literal ${"
	}
	return fmt.Sprintf("needs the variable %s, which %s; ${%s:default} would give it a default", f.name, missing, f.name)
}
