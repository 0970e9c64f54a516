package config

import (
	"bytes"
	"maps"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// Restore returns a copy of doc in which each mask is replaced by what old has in the same place. In lists of
// mappings the same id or name is the same place, else the same index. A mask without a counterpart stays, and
// [Parse] refuses it.
func Restore(doc, old map[string]any) map[string]any {
	restored, _ := restoreValue(doc, old).(map[string]any)
	return restored
}

func restoreValue(v, old any) any {
	switch v := v.(type) {
	case map[string]any:
		before, _ := old.(map[string]any)
		m := maps.Clone(v)
		for key, x := range v {
			m[key] = restoreValue(x, before[key])
		}
		return m
	case []any:
		before, _ := old.([]any)
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = restoreValue(x, counterpart(x, i, before))
		}
		return list
	case string:
		if v == mask && old != nil {
			return old
		}
	}
	return v
}

// counterpart finds in old what item i of a list was.
func counterpart(item any, i int, old []any) any {
	if m, ok := item.(map[string]any); ok {
		for _, key := range []string{"id", "name"} {
			if m[key] == nil {
				continue
			}
			for _, x := range old {
				if before, ok := x.(map[string]any); ok && reflect.DeepEqual(before[key], m[key]) {
					return before
				}
			}
			return nil
		}
	}
	if i < len(old) {
		return old[i]
	}
	return nil
}

// Unmask is [Restore] for a document as text: it keeps the order of names and the comments. A document
// without a mask is returned as it is. What cannot be read is an [*Error].
func Unmask(src []byte, old map[string]any) ([]byte, error) {
	if !bytes.Contains(src, []byte(mask)) {
		return src, nil
	}
	doc := read(src, nil, "")
	m, err := doc.decoded()
	if err != nil || doc.root == nil {
		return src, err
	}
	fillNode(doc.root, restoreValue(m, old))
	return yaml.Marshal(doc.root)
}

// fillNode puts into the masked scalars of n what the restored value v has there.
func fillNode(n *yaml.Node, v any) {
	switch v := v.(type) {
	case map[string]any:
		for i := 0; i+1 < len(n.Content); i += 2 {
			fillNode(n.Content[i+1], v[n.Content[i].Value])
		}
	case []any:
		for i, item := range n.Content {
			fillNode(item, v[i])
		}
	default:
		if n.Value == mask && v != mask {
			_ = n.Encode(v)
		}
	}
}
