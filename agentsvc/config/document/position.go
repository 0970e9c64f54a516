package config

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
	root := location{value: readDocument(src, nil, "").root}
	var placed problems
	for _, p := range configErr.Problems {
		if p.Line == 0 && p.Path != "" && root.value != nil {
			p.Line, p.Column = root.locatePath(p.Path).position()
		}
		placed.addProblem(p)
	}
	return placed.asError(file)
}

// locatePath returns the location below s of a path in the form of [Problem].Path, or the deepest one that exists.
func (s location) locatePath(path string) location {
	for path != "" {
		child, remainder, ok := s.stepInto(path)
		if !ok {
			break
		}
		s, path = child, strings.TrimPrefix(remainder, ".")
	}
	return s
}

// stepInto returns the location of the first part of a path and the rest of the path. Names may contain dots: of
// several keys that match, the longest is meant.
func (s location) stepInto(path string) (child location, remainder string, ok bool) {
	if s.value == nil {
		return s, "", false
	}
	if text, after, found := strings.Cut(strings.TrimPrefix(path, "["), "]"); s.value.Kind == yaml.SequenceNode && found {
		i, err := strconv.Atoi(text)
		return s.item(i), after, err == nil && i < len(s.value.Content)
	}
	longest := -1
	for _, key := range mappingKeys(s) {
		for _, name := range []string{key, quoteName(key)} {
			after, found := strings.CutPrefix(path, name)
			if found && len(name) > longest && (after == "" || after[0] == '.' || after[0] == '[') {
				child, remainder, longest = s.child(key), after, len(name)
			}
		}
	}
	return child, remainder, longest >= 0
}
