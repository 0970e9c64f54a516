package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// path leads from the root of a document to one of its values. The root is nil.
type path struct {
	parent *path
	part   string
	kind   pathKind
}

type pathKind int

const (
	fieldPart pathKind = iota // a field of a struct
	namePart                  // a name that the document gives
	itemPart                  // an index of a list
)

const maxQuotedName = 64

var plainNameForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// String is the path for people: agents.assistant.tools[0].
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

// quoteName is name, in quotes if it could be mistaken, and not too long.
func quoteName(name string) string {
	switch {
	case plainNameForm.MatchString(name):
		return name
	case len(name) > maxQuotedName:
		return strconv.Quote(name[:maxQuotedName] + "...")
	}
	return strconv.Quote(name)
}

// matchesPattern reports whether the path is pattern, in which * stands for any name and any item: agents.*.tools.
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

// entryPath is the path's first two parts: the entry of a top-level key that it leads into.
func (p *path) entryPath() string {
	for p.parent != nil && p.parent.parent != nil {
		p = p.parent
	}
	return p.String()
}

// location is a place in a document: its path, and the nodes that stand there. Where nothing stands, value is
// nil and key is the nearest one above.
type location struct {
	path       *path
	key, value *yaml.Node
}

func (s location) child(name string) location {
	child := location{path: &path{s.path, name, fieldPart}, key: s.key}
	if key, value := findKey(s.value, name); value != nil {
		child.key, child.value = key, value
	}
	return child
}

func (s location) item(i int) location {
	child := location{path: &path{s.path, strconv.Itoa(i), itemPart}, key: s.key}
	if s.value != nil && s.value.Kind == yaml.SequenceNode && i < len(s.value.Content) {
		child.key, child.value = nil, s.value.Content[i]
	}
	return child
}

// position returns the line and column to show: the value's if it is a scalar or has no key, else the key's.
func (s location) position() (line, column int) {
	switch {
	case s.value != nil && (s.key == nil || s.value.Kind == yaml.ScalarNode):
		return s.value.Line, s.value.Column
	case s.key != nil:
		return s.key.Line, s.key.Column
	}
	return 1, 1
}

// findKey returns the key and value of name in a mapping, or nil.
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
