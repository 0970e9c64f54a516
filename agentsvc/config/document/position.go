package document

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// AddErrors adds the problems of err, which have a path and no position because they were found when the document was
// built. A problem at a known one's path, above or below it may only follow from that one and is left out. AddErrors
// returns an error of any other type.
func (doc *Document) AddErrors(err error) error {
	var configErr *Error
	if !errors.As(err, &configErr) {
		return err
	}
	doc.addMissing()
	known := slices.Clone(doc.problems.list)
	root := Location{Value: doc.Root}
	for _, p := range configErr.Problems {
		if slices.ContainsFunc(known, func(k Problem) bool { return isWithin(p.Path, k.Path) || isWithin(k.Path, p.Path) }) {
			continue
		}
		if p.Line == 0 && p.Path != "" && doc.Root != nil {
			p.Line, p.Column = root.locatePath(p.Path).position()
		}
		doc.problems.addProblem(p)
	}
	return nil
}

// isWithin reports whether the text path is above or the path of a value below it.
func isWithin(path, above string) bool {
	remainder, found := strings.CutPrefix(path, above)
	return found && (remainder == "" || above == "" || remainder[0] == '.' || remainder[0] == '[')
}

// locatePath returns the location below l of a path in the form of [Problem].Path, or the deepest one that exists.
func (l Location) locatePath(path string) Location {
	for path != "" {
		child, remainder, ok := l.stepInto(path)
		if !ok {
			break
		}
		l, path = child, strings.TrimPrefix(remainder, ".")
	}
	return l
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
