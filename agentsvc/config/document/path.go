package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// path is the list of keys and indices from the root of a document to a value, linked from the value up. The root is
// nil.
type path struct {
	parent *path
	part   string
	kind   pathKind
}

// pathKind is what a part of a path is.
type pathKind int

const (
	fieldPart pathKind = iota // a key that the document's types define
	namePart                  // a name that the document chose
	itemPart                  // an index of a list
)

// maxQuotedName bounds a name in a path, in bytes.
const maxQuotedName = 64

// plainNameForm matches names that need no quotes in a path.
var plainNameForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// String returns the path in the form of messages: agents.assistant.tools[0].
func (p *path) String() string {
	var parts []string
	for ; p != nil; p = p.parent {
		switch {
		case p.kind == itemPart:
			parts = append(parts, "["+p.part+"]")
		case p.parent == nil:
			parts = append(parts, quoteName(p.part))
		default:
			parts = append(parts, "."+quoteName(p.part))
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, "")
}

// quoteName returns name, quoted if it has characters that separate parts of a path, and shortened if it is long.
func quoteName(name string) string {
	switch {
	case plainNameForm.MatchString(name):
		return name
	case len(name) > maxQuotedName:
		return strconv.Quote(name[:maxQuotedName] + "...")
	}
	return strconv.Quote(name)
}

// matchesPattern reports whether the path matches a pattern such as agents.*.tools, in which * is any name or index.
// It compares from the end.
func (p *path) matchesPattern(pattern string) bool {
	for ; p != nil; p = p.parent {
		part := p.part
		switch p.kind {
		case itemPart, namePart:
			part = "*"
		}
		remainder, same := strings.CutSuffix(pattern, part)
		if !same || p.parent == nil {
			return same && remainder == ""
		}
		if pattern, same = strings.CutSuffix(remainder, "."); !same {
			return false
		}
	}
	return false
}

// entryPath returns the first two parts of the path, such as tools.shell: the entry of a top-level key.
func (p *path) entryPath() string {
	for p.parent != nil && p.parent.parent != nil {
		p = p.parent
	}
	return p.String()
}

// location is a place in a document: its path and the YAML nodes there. If the document has nothing at that path,
// value is nil and key is the nearest key above, for the position of a problem.
type location struct {
	path       *path
	key, value *yaml.Node
}

// child returns the location of the key name in the mapping at s.
func (s location) child(name string) location {
	child := location{path: &path{s.path, name, fieldPart}, key: s.key}
	if key, value := findKey(s.value, name); value != nil {
		child.key, child.value = key, value
	}
	return child
}

// item returns the location of item i of the list at s.
func (s location) item(i int) location {
	child := location{path: &path{s.path, strconv.Itoa(i), itemPart}, key: s.key}
	if s.value != nil && s.value.Kind == yaml.SequenceNode && i < len(s.value.Content) {
		child.key, child.value = nil, s.value.Content[i]
	}
	return child
}

// position returns the line and column for a problem: the value's if it is a scalar or has no key, else the key's.
func (s location) position() (line, column int) {
	switch {
	case s.value != nil && (s.key == nil || s.value.Kind == yaml.ScalarNode):
		return s.value.Line, s.value.Column
	case s.key != nil:
		return s.key.Line, s.key.Column
	}
	return 1, 1
}

// findKey returns the key and value nodes of name in a mapping, nil if it has none.
func findKey(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}
