package config

import (
	"math"

	"go.yaml.in/yaml/v3"
)

// decodePlain returns what stands at s as JSON knows it: maps, lists, text, numbers, booleans and nil. It reports
// false, and a problem, for what JSON cannot hold.
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

// Decode returns the document in src, YAML or JSON, as JSON knows it, its variables as they stand. It keeps
// the bounds of [Parse] and like it returns an [*Error]; it does not look at what the document means.
func Decode(src []byte) (map[string]any, error) {
	return readDocument(src, nil, "").decodeDocument()
}

// decodeDocument returns the whole document as JSON knows it.
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
