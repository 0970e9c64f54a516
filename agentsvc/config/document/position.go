package document

import (
	"errors"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// AddPositions adds line and column to the problems of err that have a path only, because they were found when the
// parsed document src was built. It returns any other error unchanged.
func AddPositions(err error, file string, src []byte) error {
	var configErr *Error
	if !errors.As(err, &configErr) {
		return err
	}
	root := Location{Value: Read(src, nil, "").Root}
	var placed problems
	for _, p := range configErr.Problems {
		if p.Line == 0 && p.Path != "" && root.Value != nil {
			p.Line, p.Column = root.locatePath(p.Path).position()
		}
		placed.addProblem(p)
	}
	return placed.asError(file)
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
