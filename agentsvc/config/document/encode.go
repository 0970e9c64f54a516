package document

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// EncodeJSON returns a decoded document as JSON. The keys stand in the order of the first of the sources, YAML or JSON,
// that has them; keys that none has come last, sorted.
func EncodeJSON(decoded map[string]any, sources ...[]byte) []byte {
	var order []*yaml.Node
	for _, src := range sources {
		if doc := Read(src, nil, ""); doc.Root != nil {
			order = append(order, doc.Root)
		}
	}
	var out bytes.Buffer
	appendValue(&out, decoded, order)
	return out.Bytes()
}

// appendValue appends v as JSON; order are the nodes at the path of v.
func appendValue(out *bytes.Buffer, v any, order []*yaml.Node) {
	separator := func(i int) {
		if i > 0 {
			out.WriteByte(',')
		}
	}
	switch v := v.(type) {
	case map[string]any:
		out.WriteByte('{')
		keys, children := orderKeys(v, order)
		for i, key := range keys {
			separator(i)
			out.Write(encodeValue(key))
			out.WriteByte(':')
			appendValue(out, v[key], children[key])
		}
		out.WriteByte('}')
	case []any:
		out.WriteByte('[')
		for i, x := range v {
			separator(i)
			appendValue(out, x, itemsAt(order, i))
		}
		out.WriteByte(']')
	default:
		out.Write(encodeValue(v))
	}
}

// orderKeys returns the keys of m, each once, in the order of the nodes, and the nodes at each key.
func orderKeys(m map[string]any, order []*yaml.Node) (keys []string, children map[string][]*yaml.Node) {
	left := maps.Clone(m)
	children = map[string][]*yaml.Node{}
	for _, n := range order {
		if n.Kind != yaml.MappingNode {
			continue
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			children[key] = append(children[key], n.Content[i+1])
			if _, has := left[key]; has {
				keys = append(keys, key)
				delete(left, key)
			}
		}
	}
	return append(keys, slices.Sorted(maps.Keys(left))...), children
}

// itemsAt returns item i of those nodes that are lists and have one.
func itemsAt(order []*yaml.Node, i int) (items []*yaml.Node) {
	for _, n := range order {
		if item := (Location{Value: n}).Item(i).Value; item != nil {
			items = append(items, item)
		}
	}
	return items
}

// encodeValue returns a value of a decoded document as JSON, with <, > and & as they are.
func encodeValue(v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // Decode returns the types of encoding/json only
	}
	return bytes.TrimSpace(out.Bytes())
}
