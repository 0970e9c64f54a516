package config

import (
	"errors"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// AddPositions adds lines and columns to the problems of err that have but a path, because they came to light when the
// document src had been read and was built. Any other error is returned as it is.
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

// locatePath follows a path as [Problem] shows it, as far as there is something.
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

// stepInto follows the first part of a path. Of several keys that it may begin with it is the longest.
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
