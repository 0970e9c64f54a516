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
func (doc *Document) turnOff(n *yaml.Node, fields []Field) {
	doc.off[n] = true
	for _, f := range fields {
		if _, value := findKey(n, f.Name); value != nil && f.isInert() {
			doc.markInert(value)
		}
	}
}

// markInert notes that the variables in n and below need no value.
func (doc *Document) markInert(n *yaml.Node) {
	doc.inert[n] = true
	for _, child := range n.Content {
		doc.markInert(child)
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
