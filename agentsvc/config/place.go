package config

import (
	"errors"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Place adds lines and columns to the problems of err that have but a path, because they came to light when the
// document src had been read and was built. Any other error is returned as it is.
func Place(err error, file string, src []byte) error {
	var wrong *Error
	if !errors.As(err, &wrong) {
		return err
	}
	root := spot{value: read(src, nil, "").root}
	var placed problems
	for _, p := range wrong.Problems {
		if p.Line == 0 && p.Path != "" && root.value != nil {
			p.Line, p.Column = root.locate(p.Path).position()
		}
		placed.add(p)
	}
	return placed.err(file)
}

// locate follows a path as [Problem] shows it, as far as there is something.
func (s spot) locate(path string) spot {
	for path != "" {
		below, rest, ok := s.step(path)
		if !ok {
			break
		}
		s, path = below, strings.TrimPrefix(rest, ".")
	}
	return s
}

// step follows the first part of a path. Of several keys that it may begin with it is the longest.
func (s spot) step(path string) (below spot, rest string, ok bool) {
	if s.value == nil {
		return s, "", false
	}
	if text, after, found := strings.Cut(strings.TrimPrefix(path, "["), "]"); s.value.Kind == yaml.SequenceNode && found {
		i, err := strconv.Atoi(text)
		return s.item(i), after, err == nil && i < len(s.value.Content)
	}
	longest := -1
	for _, key := range keys(s) {
		for _, name := range []string{key, readable(key)} {
			after, found := strings.CutPrefix(path, name)
			if found && len(name) > longest && (after == "" || after[0] == '.' || after[0] == '[') {
				below, rest, longest = s.child(key), after, len(name)
			}
		}
	}
	return below, rest, longest >= 0
}
