package document

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// AddErrors adds the problems of err, which have a path and no position because they were found when the document was
// built. It leaves out what only follows from a known problem, see [knownProblems.causes]. AddErrors returns an error
// of any other type.
func (doc *Document) AddErrors(err error) error {
	var configErr *Error
	if !errors.As(err, &configErr) {
		return err
	}
	doc.addMissing()
	known := knownProblems{doc, slices.Clone(doc.problems.list)}
	root := Location{Value: doc.Root}
	for _, p := range configErr.Problems {
		at, remainder := root.locatePath(p.Path)
		if slices.ContainsFunc(known.list, func(k Problem) bool { return known.causes(k, p, at, remainder) }) {
			continue
		}
		if p.Line == 0 && p.Path != "" && doc.Root != nil {
			p.Line, p.Column = at.position()
		}
		doc.problems.addProblem(p)
	}
	return nil
}

// knownProblems are the problems of a document before it is built.
type knownProblems struct {
	doc  *Document
	list []Problem
}

// causes reports whether p, a problem of the build, may only follow from the known problem k. p is about the value at
// the location at or, with a remainder of its path, about one that the document does not have below it.
//
// Two problems in one block are independent: the build got the block with a default in place of the value of k. But a
// block may lack just what was written in it and could not be read, a value that is no block, such as a list of texts,
// has one problem at a time, and that a value is missing may be what k says of its block.
func (known knownProblems) causes(k, p Problem, at Location, remainder string) bool {
	path := at.Path.String()
	if remainder == "" && at.Value != nil && at.Value.Kind == yaml.ScalarNode && at.Value.Value == "" && at.Path != nil {
		remainder, path = at.Path.Part, at.Path.Parent.String() // an empty text counts as missing
	}
	switch {
	case p.Path == k.Path, path == k.Path && remainder == "":
		return true
	case remainder != "":
		return isWithin(path, k.Path)
	case isWithin(path, k.Path):
		above, _ := Location{Value: known.doc.Root}.locatePath(k.Path)
		return !known.isBlock(above.Path)
	default:
		return isWithin(k.Path, path) && (!known.isBlock(at.Path) || known.isUnread(at.Path, k.Path))
	}
}

// isUnread reports whether path is that of a value directly in block that could not be read: one of a wrong type, with a
// missing variable or under an unknown key.
func (known knownProblems) isUnread(block *Path, path string) bool {
	return strings.HasPrefix(path, block.String()) &&
		!strings.ContainsAny(strings.TrimPrefix(path[len(block.String()):], "."), ".[") &&
		!slices.ContainsFunc(known.doc.unsound, func(p *Path) bool { return p.String() == path })
}

// isBlock reports whether the value at p is a struct of the document's types, or a list or mapping of structs.
func (known knownProblems) isBlock(p *Path) bool {
	t := typeAt(known.doc.rootType, p)
	if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
		t = indirect(t.Elem())
	}
	return t != nil && t.Kind() == reflect.Struct
}

// typeAt returns the type of the value at p in a document of type root, nil if the types do not define it.
func typeAt(root reflect.Type, p *Path) reflect.Type {
	if p == nil || root == nil {
		return root
	}
	t := typeAt(root, p.Parent)
	switch {
	case t == nil:
		return nil
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Map:
		return indirect(t.Elem())
	case t.Kind() == reflect.Struct:
		for _, f := range FieldsOf(t) {
			if f.Name == p.Part {
				return indirect(t.Field(f.Index).Type)
			}
		}
	}
	return nil
}

// indirect returns the type that t points to, t itself if it is no pointer.
func indirect(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// isWithin reports whether the text path is above or the path of a value below it.
func isWithin(path, above string) bool {
	remainder, found := strings.CutPrefix(path, above)
	return found && (remainder == "" || above == "" || remainder[0] == '.' || remainder[0] == '[')
}

// locatePath returns the location below l of a path in the form of [Problem].Path, or the deepest one that exists and the
// rest of the path.
func (l Location) locatePath(path string) (deepest Location, remainder string) {
	for path != "" {
		child, remainder, ok := l.stepInto(path)
		if !ok {
			break
		}
		l, path = child, strings.TrimPrefix(remainder, ".")
	}
	return l, path
}

// stepInto returns the location of the first part of a path and the rest of the path. Names may contain dots: of
// several keys that match, the longest is meant.
func (l Location) stepInto(path string) (child Location, remainder string, ok bool) {
	if l.Value == nil {
		return l, "", false
	}
	if text, after, found := strings.Cut(strings.TrimPrefix(path, "["), "]"); l.Value.Kind == yaml.SequenceNode && found {
		i, err := strconv.Atoi(text)
		return l.Item(i), after, err == nil && i < len(l.Value.Content)
	}
	longest := -1
	for _, key := range l.Keys() {
		for _, name := range []string{key, QuoteName(key)} {
			after, found := strings.CutPrefix(path, name)
			if found && len(name) > longest && (after == "" || after[0] == '.' || after[0] == '[') {
				child, remainder, longest = l.Child(key), after, len(name)
			}
		}
	}
	return child, remainder, longest >= 0
}
