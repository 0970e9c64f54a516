package document

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Path is the list of keys and indices from the root of a document to a value, linked from the value up. The root is
// nil.
type Path struct {
	Parent *Path
	// Part is a key, a name or an index.
	Part string
	kind pathKind
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

// Field returns the path of a key, which the document's types define, below p.
func (p *Path) Field(key string) *Path { return &Path{p, key, fieldPart} }

// Name returns the path of a name, which the document chose, below p.
func (p *Path) Name(name string) *Path { return &Path{p, name, namePart} }

// Item returns the path of item i of the list at p.
func (p *Path) Item(i int) *Path { return &Path{p, strconv.Itoa(i), itemPart} }

// parts returns the paths from the first part of p to p itself.
func (p *Path) parts() []*Path {
	var list []*Path
	for ; p != nil; p = p.Parent {
		list = append(list, p)
	}
	slices.Reverse(list)
	return list
}

// isWithin reports whether p is above or the path of a value below it.
func (p *Path) isWithin(above *Path) bool {
	for ; p != nil; p = p.Parent {
		if p.equals(above) {
			return true
		}
	}
	return above == nil
}

// equals reports whether p and q are the same path.
func (p *Path) equals(q *Path) bool {
	for ; p != nil && q != nil; p, q = p.Parent, q.Parent {
		if p.Part != q.Part {
			return false
		}
	}
	return p == nil && q == nil
}

// String returns the path in the form of messages: agents.assistant.tools[0].
func (p *Path) String() string {
	var parts []string
	for ; p != nil; p = p.Parent {
		switch {
		case p.kind == itemPart:
			parts = append(parts, "["+p.Part+"]")
		case p.Parent == nil:
			parts = append(parts, QuoteName(p.Part))
		default:
			parts = append(parts, "."+QuoteName(p.Part))
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, "")
}

// QuoteName returns name, quoted if it has characters that separate parts of a path, and shortened if it is long.
func QuoteName(name string) string {
	switch {
	case plainNameForm.MatchString(name):
		return name
	case len(name) > maxQuotedName:
		return strconv.Quote(name[:maxQuotedName] + "...")
	}
	return strconv.Quote(name)
}

// Location is a place in a document: its path and the YAML nodes there. If the document has nothing at that path,
// Value is nil and Key is the nearest key above, for the position of a problem.
type Location struct {
	Path       *Path
	Key, Value *yaml.Node
}

// Child returns the location of the key name in the mapping at l.
func (l Location) Child(name string) Location {
	// An item of a list has no key: a problem about what it lacks is at the item.
	child := Location{Path: l.Path.Field(name), Key: cmp.Or(l.Key, l.Value)}
	if key, value := findKey(l.Value, name); value != nil {
		child.Key, child.Value = key, value
	}
	return child
}

// Entry returns the location of pair i of the mapping at l, whose key is a name that the document chose.
func (l Location) Entry(i int) Location {
	key, value := l.Value.Content[2*i], l.Value.Content[2*i+1]
	return Location{l.Path.Name(key.Value), key, value}
}

// Item returns the location of item i of the list at l.
func (l Location) Item(i int) Location {
	child := Location{Path: l.Path.Item(i), Key: l.Key}
	if l.Value != nil && l.Value.Kind == yaml.SequenceNode && i < len(l.Value.Content) {
		child.Key, child.Value = nil, l.Value.Content[i]
	}
	return child
}

// Descend returns the location below l that a list of keys and indices leads to, or the deepest one that exists.
func (l Location) Descend(parts []string) Location {
	for _, part := range parts {
		next := l.Child(part)
		if i, err := strconv.Atoi(part); err == nil && next.Value == nil {
			next = l.Item(i)
		}
		if next.Value == nil {
			break
		}
		l = next
	}
	return l
}

// Keys returns the keys of the mapping at l, in document order.
func (l Location) Keys() []string {
	var names []string
	if l.Value != nil && l.Value.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(l.Value.Content); i += 2 {
			names = append(names, l.Value.Content[i].Value)
		}
	}
	return names
}

// NewProblem returns a problem at l, which is not added to the document's.
func (l Location) NewProblem(message string) Problem {
	line, column := l.position()
	return Problem{Path: l.Path.String(), Line: line, Column: column, Message: message}
}

// position returns the line and column for a problem: the value's if it is a scalar or has no key, else the key's.
func (l Location) position() (line, column int) {
	switch {
	case l.Value != nil && (l.Key == nil || l.Value.Kind == yaml.ScalarNode):
		return l.Value.Line, l.Value.Column
	case l.Key != nil:
		return l.Key.Line, l.Key.Column
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
