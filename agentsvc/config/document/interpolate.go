package document

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// badReference is a reference to a variable that cannot be replaced.
type badReference struct {
	name string // of the missing variable; "" = the reference is malformed
	// suggestion is what to write instead of a malformed reference, or "".
	suggestion string
}

// variableNameForm is the form of a variable's name.
var variableNameForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// interpolateText replaces ${NAME} and ${NAME:default} in text by the values of lookup, and reports whether one of the
// variables is set. A variable that is set to the empty text has that value and not the default. $${ is a literal ${.
// The value of a variable is not interpolated again: a secret could otherwise read others. It stops when the result is
// longer than maxBytes, which the caller checks.
func interpolateText(text string, lookup func(string) (string, bool), maxBytes int) (result string, set bool, faults []badReference) {
	var out strings.Builder
	for {
		before, remainder, found := strings.Cut(text, "${")
		if found && strings.HasSuffix(before, "$") {
			out.WriteString(before[:len(before)-1] + "${")
			text = remainder
			continue
		}
		out.WriteString(before)
		if !found || out.Len() > maxBytes {
			return out.String(), set, faults
		}
		reference, remainder, closed := strings.Cut(remainder, "}")
		if !closed {
			return "", set, append(faults, badReference{})
		}
		text = remainder
		name, fallback, hasFallback := strings.Cut(reference, ":")
		shellDefault, isShell := strings.CutPrefix(fallback, "-")
		if !variableNameForm.MatchString(name) {
			faults = append(faults, badReference{})
			continue
		}
		// In a shell the dash belongs to the operator; here it would silently become a part of the value.
		if isShell {
			faults = append(faults, badReference{suggestion: "${" + name + ":" + shellDefault + "}"})
			continue
		}
		value, ok := lookup(name)
		set = set || ok
		switch {
		case ok:
			out.WriteString(value)
		case hasFallback:
			out.WriteString(fallback)
		default:
			faults = append(faults, badReference{name: name})
		}
	}
}

// expandScalar replaces the variables of n. Afterwards an unquoted scalar has the type of its new text. It also
// reports a mask: a secret that was not restored.
func (e *expander) expandScalar(n *yaml.Node, p *Path) {
	if e.lookup == nil {
		return
	}
	if a, _ := ParseAddress(n.Value); n.Value == Mask || a.HasMask() {
		e.doc.AddProblem(Location{p, nil, n}, "holds the mask that stands for a secret: give the secret itself, or a ${VARIABLE}; "+
			"one that is known is kept only for the host or program that it was given for, and while what stands beside it stays as it was")
	}
	if !strings.Contains(n.Value, "${") {
		return
	}
	value, set, faults := interpolateText(n.Value, e.lookup, maxTextBytes-e.textBytes)
	for _, f := range faults {
		e.addBadReference(Location{p, nil, n}, f)
	}
	e.doc.fromVariable[n] = true
	n.Value = value
	if n.Style == 0 {
		n.Tag = plainTag(value)
		if value == "" && set {
			n.Tag = "!!str" // an empty value is a value; an empty default leaves the key out
		}
	}
	if len(faults) > 0 {
		e.doc.missingVariable[n] = true
		n.Style, n.Tag, n.Value = 0, "!!null", ""
	}
}

// plainTag returns the YAML type of text as an unquoted scalar: number, bool, null if it is empty, else text.
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

// addBadReference adds the problem of a reference at s. A missing variable is only noted, because the value may turn out
// to be turned off.
func (e *expander) addBadReference(s Location, f badReference) {
	doc := e.doc
	switch {
	case f.name != "":
		doc.missing = append(doc.missing, missingReference{s, fmt.Sprintf("needs the variable %s, which %s; ${%[1]s:default} would give it a default", f.name, e.missing)})
	case f.suggestion != "":
		doc.addPlaced(s, "has a default as a shell writes it; here it follows the colon alone", f.suggestion)
	default:
		doc.AddProblem(s, "has a ${ that is not ${NAME} or ${NAME:default}; write $${ for a literal ${")
	}
}
