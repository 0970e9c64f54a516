package document

import (
	"math"

	"go.yaml.in/yaml/v3"
)

// decodePlain returns the value at s in the types of encoding/json: maps, lists, strings, numbers, booleans and nil.
// For a value that JSON does not have it adds a problem and reports false.
func (doc *Document) decodePlain(s Location) (any, bool) {
	switch s.Value.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(s.Value.Content)/2)
		ok := true
		for i := 0; i+1 < len(s.Value.Content); i += 2 {
			key, value := s.Value.Content[i], s.Value.Content[i+1]
			x, fine := doc.decodePlain(Location{s.Path.Name(key.Value), key, value})
			m[key.Value], ok = x, ok && fine
		}
		return m, ok
	case yaml.SequenceNode:
		list := make([]any, len(s.Value.Content))
		ok := true
		for i := range list {
			x, fine := doc.decodePlain(s.Item(i))
			list[i], ok = x, ok && fine
		}
		return list, ok
	}
	return doc.decodePlainScalar(s)
}

// decodePlainScalar is decodePlain for a scalar. NaN and infinities are not JSON.
func (doc *Document) decodePlainScalar(s Location) (any, bool) {
	switch tag := s.Value.ShortTag(); tag {
	case "!!null":
		return nil, true
	case "!!bool", "!!int", "!!float":
		var x any
		ok := decodeAs(s.Value, tag, &x)
		if n, isFloat := x.(float64); isFloat && (math.IsNaN(n) || math.IsInf(n, 0)) {
			ok = false
		}
		if !ok {
			doc.AddProblem(s, "is not a number that JSON knows; put text in quotes")
		}
		return x, ok
	}
	return s.Value.Value, true
}

// Decode returns the document in src, YAML or JSON, in the types of encoding/json, with its variables unreplaced. It
// has the bounds of [Read] and returns an [*Error]. An empty document is an empty map.
func Decode(src []byte) (map[string]any, error) {
	doc := Read(src, nil, "")
	var m map[string]any
	if doc.Root != nil {
		x, _ := doc.decodePlain(Location{Value: doc.Root})
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
