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
	up   *path
	part string
	kind pathKind
}

type pathKind int

const (
	fieldPart pathKind = iota // a field of a struct
	namePart                  // a name that the document gives
	itemPart                  // an index of a list
)

const longestName = 64

var plainName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// String is the path for people: agents.assistant.tools[0].
func (p *path) String() string {
	var parts []string
	for ; p != nil; p = p.up {
		switch {
		case p.kind == itemPart:
			parts = append(parts, "["+p.part+"]")
		case p.up == nil:
			parts = append(parts, readable(p.part))
		default:
			parts = append(parts, "."+readable(p.part))
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, "")
}

// readable is name, in quotes if it could be mistaken, and not too long.
func readable(name string) string {
	switch {
	case plainName.MatchString(name):
		return name
	case len(name) > longestName:
		return strconv.Quote(name[:longestName] + "...")
	}
	return strconv.Quote(name)
}

// matches reports whether the path is pattern, in which * stands for any name and any item: agents.*.tools.
func (p *path) matches(pattern string) bool {
	for ; p != nil; p = p.up {
		part := p.part
		switch p.kind {
		case itemPart, namePart:
			part = "*"
		}
		rest, same := strings.CutSuffix(pattern, part)
		if !same || p.up == nil {
			return same && rest == ""
		}
		if pattern, same = strings.CutSuffix(rest, "."); !same {
			return false
		}
	}
	return false
}

// entry is the path's first two parts: the entry of a top-level key that it leads into.
func (p *path) entry() string {
	for p.up != nil && p.up.up != nil {
		p = p.up
	}
	return p.String()
}

// spot is a place in a document: its path, and the nodes that stand there. Where nothing stands, value is
// nil and key is the nearest one above.
type spot struct {
	path       *path
	key, value *yaml.Node
}

func (s spot) child(name string) spot {
	below := spot{path: &path{s.path, name, fieldPart}, key: s.key}
	if key, value := lookup(s.value, name); value != nil {
		below.key, below.value = key, value
	}
	return below
}

func (s spot) item(i int) spot {
	below := spot{path: &path{s.path, strconv.Itoa(i), itemPart}, key: s.key}
	if s.value != nil && s.value.Kind == yaml.SequenceNode && i < len(s.value.Content) {
		below.key, below.value = nil, s.value.Content[i]
	}
	return below
}

// position returns the line and column to show: the value's if it is a scalar or has no key, else the key's.
func (s spot) position() (line, column int) {
	switch {
	case s.value != nil && (s.key == nil || s.value.Kind == yaml.ScalarNode):
		return s.value.Line, s.value.Column
	case s.key != nil:
		return s.key.Line, s.key.Column
	}
	return 1, 1
}

// lookup returns the key and value of name in a mapping, or nil.
func lookup(n *yaml.Node, name string) (key, value *yaml.Node) {
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
