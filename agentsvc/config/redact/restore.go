package config

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// RestoreSecrets returns a copy of doc in which each mask is replaced by the value at the same path in old. In lists
// of mappings the entry with the same id or name corresponds, else the one with the same index. A mask without a
// counterpart stays, and [Parse] refuses it. The same holds for a secret whose destination (tag to) differs from old:
// otherwise a user who may edit the document but not read its secrets could have them sent to a host or program of
// their own.
func RestoreSecrets(doc, old map[string]any) map[string]any {
	restored, _ := restoreValue(doc, old, reflect.TypeFor[Config](), false).(map[string]any)
	return restored
}

// restoreValue restores v, which has type t in the document's types, nil if they do not know it. moved means that the
// destination of the secrets in v has changed: none is restored.
func restoreValue(v, old any, t reflect.Type, moved bool) any {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case map[string]any:
		before, _ := old.(map[string]any)
		m := maps.Clone(v)
		for key, x := range v {
			child, _ := childType(t, key, x)
			m[key] = restoreValue(x, before[key], child, movesSecret(t, key, v, before, moved))
		}
		return m
	case []any:
		before, _ := old.([]any)
		var item reflect.Type
		if t != nil && t.Kind() == reflect.Slice {
			item = t.Elem()
		}
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = restoreValue(x, findCounterpart(x, i, before), item, moved)
		}
		return list
	case string:
		switch {
		case moved:
			return v
		case v == mask && old != nil:
			return old
		}
		return restoreAddress(v, old)
	}
	return v
}

// restoreAddress restores the masked parts of the URL v from old, if both have the same origin.
func restoreAddress(v string, old any) string {
	before, _ := old.(string)
	now, ok := parseAddress(v)
	was, wasOne := parseAddress(before)
	if !ok || !wasOne || !now.hasMask() || now.origin() != was.origin() {
		return v
	}
	return now.restoreSecrets(was).String()
}

// movesSecret reports whether the secrets at key of v, which has type t, have another destination than in old. A
// field without the tag to inherits moved from what contains it.
func movesSecret(t reflect.Type, key string, v, old map[string]any, moved bool) bool {
	if t == nil || t.Kind() != reflect.Struct {
		return moved
	}
	for _, f := range fieldsOf(t) {
		if f.name == key && len(f.destinations) > 0 {
			return slices.ContainsFunc(f.destinations, func(to string) bool {
				return !sameDestination(secretDestination(t, to, v), secretDestination(t, to, old))
			})
		}
	}
	return moved
}

// secretDestination returns the value of the field to of v, which decides where secrets are sent. A model's provider
// may follow from its name.
func secretDestination(t reflect.Type, to string, v map[string]any) any {
	if name, _ := v["model"].(string); t == reflect.TypeFor[LLM]() && to == "provider" && v[to] == nil {
		return inferProvider(name, nil)
	}
	if v[to] == "" {
		return nil
	}
	return v[to]
}

// sameDestination compares two destinations: URLs by scheme, host and port, mappings and lists by all entries, other
// values as they are. v may be masked, as a whole or in parts.
func sameDestination(v, old any) bool {
	switch v := v.(type) {
	case map[string]any:
		before, _ := old.(map[string]any)
		for key, x := range v {
			was, there := before[key]
			if !there || x != mask && !sameDestination(x, was) {
				return false
			}
		}
		return len(v) == len(before)
	case []any:
		before, _ := old.([]any)
		return slices.EqualFunc(v, before, func(x, was any) bool { return x == mask || sameDestination(x, was) })
	}
	if text, ok := v.(string); ok {
		before, _ := old.(string)
		now, isOne := parseAddress(text)
		if was, wasOne := parseAddress(before); isOne && wasOne {
			return now.origin() == was.origin()
		}
	}
	return reflect.DeepEqual(v, old) || reflect.DeepEqual(v, maskValue(old, nil, false))
}

// findCounterpart returns the entry of the list old that corresponds to item i of the new list, nil if there is none.
func findCounterpart(item any, i int, old []any) any {
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

// RestoreSecretsInText is [RestoreSecrets] for a document as text. It keeps the order of keys and the comments. A
// document without a mask is returned unchanged. Text that cannot be parsed is an [*Error].
func RestoreSecretsInText(src []byte, old map[string]any) ([]byte, error) {
	if !bytes.Contains(src, []byte(mask)) {
		return src, nil
	}
	doc := readDocument(src, nil, "")
	m, err := doc.decodeDocument()
	if err != nil || doc.root == nil {
		return src, err
	}
	fillNode(doc.root, RestoreSecrets(m, old))
	return yaml.Marshal(doc.root)
}

// fillNode replaces the masked scalars of n by the values at the same place in v, the restored document.
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
		if strings.Contains(n.Value, mask) && v != any(n.Value) {
			_ = n.Encode(v)
		}
	}
}
