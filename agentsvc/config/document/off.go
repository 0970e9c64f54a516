package document

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// switchKey is the key that turns a block on and off.
const switchKey = "enabled"

// What a block with enabled: false holds must have known keys and right types, and nothing more: required keys, bounds,
// references and variables are not checked. After decoding it has its defaults, so that nothing of it can act. Fields
// with the tag acts:"always" do not belong to what the switch turns off.

// switches is what of a document is turned off.
type switches struct {
	// off are the mappings with enabled: false, inert the nodes that this turns off.
	off, inert map[*yaml.Node]bool
	// isOff is true while a value that is turned off is decoded.
	isOff bool
}

func newSwitches() switches {
	return switches{off: map[*yaml.Node]bool{}, inert: map[*yaml.Node]bool{}}
}

// IsOff reports whether n is a mapping with enabled: false. Its other keys have been decoded for their types only.
func (s *switches) IsOff(n *yaml.Node) bool { return s.off[n] }

// isTurnedOff reports whether the mapping n, of a struct with fields, has enabled: false.
func (doc *Document) isTurnedOff(n *yaml.Node, fields []Field) bool {
	if !slices.ContainsFunc(fields, func(f Field) bool { return f.Name == switchKey }) {
		return false
	}
	_, value := findKey(n, switchKey)
	return value != nil && value.Kind == yaml.ScalarNode && doc.scalarTag(value, reflect.Bool) == "!!bool" && strings.EqualFold(value.Value, "false")
}

// isInert reports whether field f belongs to what a switch turns off.
func (f *Field) isInert() bool { return f.Name != switchKey && !f.ActsAlways }

// turnOff notes that the mapping n, of a struct with fields, is off. The variables below it need no value.
func (s *switches) turnOff(n *yaml.Node, fields []Field) {
	s.off[n] = true
	for _, f := range fields {
		if _, value := findKey(n, f.Name); value != nil && f.isInert() {
			s.markInert(value)
		}
	}
}

// markInert notes that the variables in n and below need no value.
func (s *switches) markInert(n *yaml.Node) {
	s.inert[n] = true
	for _, child := range n.Content {
		s.markInert(child)
	}
}

// resetInert sets what is turned off of the struct v to its defaults.
func resetInert(v reflect.Value, fields []Field) {
	defaults := NewDefault(v.Type()).Elem()
	for _, f := range fields {
		if f.isInert() {
			v.Field(f.Index).Set(defaults.Field(f.Index))
		}
	}
}
