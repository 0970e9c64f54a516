package document

import (
	"go.yaml.in/yaml/v3"
)

// FindDifference compares the value of a top-level key in two documents. It returns the location in after of the first
// value that differs, at or below the key, and whether there is one. Comments, the order of keys and the way in which
// a value is written do not count; variables are compared as they are written, not by their values. In an after that
// cannot be read nothing differs: its syntax is the problem.
func FindDifference(before, after []byte, key string) (Location, bool) {
	was := Location{Value: Read(before, nil, "").Root}.Child(key)
	doc := Read(after, nil, "")
	is := Location{Value: doc.Root}.Child(key)
	if doc.Err("") != nil {
		return Location{}, false
	}
	return findDifference(was, is)
}

// findDifference returns the first location at or below is that differs from was. A key that is missing in is has the
// location of its mapping.
func findDifference(was, is Location) (Location, bool) {
	if IsNull(was.Value) && IsNull(is.Value) {
		return Location{}, false
	}
	if IsNull(was.Value) || IsNull(is.Value) || was.Value.Kind != is.Value.Kind {
		return is, true
	}
	switch is.Value.Kind {
	case yaml.MappingNode:
		// Keys of both: one that was removed differs as well.
		for _, mapping := range []*yaml.Node{is.Value, was.Value} {
			for i := 0; i+1 < len(mapping.Content); i += 2 {
				name := mapping.Content[i].Value
				if at, differs := findDifference(was.Child(name), is.Child(name)); differs {
					return at, true
				}
			}
		}
		return Location{}, false
	case yaml.SequenceNode:
		for i := range max(len(was.Value.Content), len(is.Value.Content)) {
			if at, differs := findDifference(was.Item(i), is.Item(i)); differs {
				return at, true
			}
		}
		return Location{}, false
	}
	return is, was.Value.Value != is.Value.Value || was.Value.ShortTag() != is.Value.ShortTag()
}
