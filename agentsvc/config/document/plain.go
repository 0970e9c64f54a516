package config

import (
	"math"

	"go.yaml.in/yaml/v3"
)

// decodePlain returns the value at s in the types of encoding/json: maps, lists, strings, numbers, booleans and nil.
// For a value that JSON does not have it adds a problem and reports false.
func (doc *document) decodePlain(s location) (any, bool) {
	switch s.value.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(s.value.Content)/2)
		ok := true
		for i := 0; i+1 < len(s.value.Content); i += 2 {
			key, value := s.value.Content[i], s.value.Content[i+1]
			x, fine := doc.decodePlain(location{&path{s.path, key.Value, namePart}, key, value})
			m[key.Value], ok = x, ok && fine
		}
		return m, ok
	case yaml.SequenceNode:
		list := make([]any, len(s.value.Content))
		ok := true
		for i := range list {
			x, fine := doc.decodePlain(s.item(i))
			list[i], ok = x, ok && fine
		}
		return list, ok
	}
	return doc.decodePlainScalar(s)
}

// decodePlainScalar is decodePlain for a scalar. NaN and infinities are not JSON.
func (doc *document) decodePlainScalar(s location) (any, bool) {
	switch tag := s.value.ShortTag(); tag {
	case "!!null":
		return nil, true
	case "!!bool", "!!int", "!!float":
		var x any
		ok := decodeAs(s.value, tag, &x)
		if n, isFloat := x.(float64); isFloat && (math.IsNaN(n) || math.IsInf(n, 0)) {
			ok = false
		}
		if !ok {
			doc.addProblem(s, "is not a number that JSON knows; put text in quotes")
		}
		return x, ok
	}
	return s.value.Value, true
}

// Decode returns the document in src, YAML or JSON, in the types of encoding/json, with its variables unreplaced. It
// has the same bounds as [Parse] and returns an [*Error] like it, but does not check the meaning of the document.
func Decode(src []byte) (map[string]any, error) {
	return readDocument(src, nil, "").decodeDocument()
}

// decodeDocument returns the whole document in the types of encoding/json, an empty map for an empty document.
func (doc *document) decodeDocument() (map[string]any, error) {
	var m map[string]any
	if doc.root != nil {
		x, _ := doc.decodePlain(location{value: doc.root})
		m, _ = x.(map[string]any)
	}
	if err := doc.problems.asError(""); err != nil {
		return nil, err
	}
	if m == nil {
		m = map[string]any{}
	}
	return m, nil
}
