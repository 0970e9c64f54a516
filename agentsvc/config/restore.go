package config

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// RestoreSecrets returns a copy of doc in which each mask is replaced by what old has in the same place. In lists of
// mappings the same id or name is the same place, else the same index. A mask without a counterpart stays, and
// [Parse] refuses it; so does the mask of a secret whose destination is another one than in old: otherwise whoever may write
// the document could have a secret that they cannot read sent to a host, or into a program, of theirs.
func RestoreSecrets(doc, old map[string]any) map[string]any {
	restored, _ := restoreValue(doc, old, reflect.TypeFor[Config](), false).(map[string]any)
	return restored
}

// restoreValue restores v, which stands where the vocabulary has type t; nil is where it has none. With moved, secrets in it
// went elsewhere.
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

// restoreAddress puts the masked secrets of an address back from an old one that leads to the same place.
func restoreAddress(v string, old any) string {
	before, _ := old.(string)
	now, ok := parseAddress(v)
	was, wasOne := parseAddress(before)
	if !ok || !wasOne || !now.hasMask() || now.origin() != was.origin() {
		return v
	}
	return now.restoreSecrets(was).String()
}

// movesSecret reports whether the secrets at key of v, which has type t, go elsewhere than those of old. A field that does not say
// where its secrets go is as what it stands in.
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

// secretDestination returns what the field to of v says about where secrets go. The vendor of a model may follow from its name.
func secretDestination(t reflect.Type, to string, v map[string]any) any {
	if name, _ := v["model"].(string); t == reflect.TypeFor[LLM]() && to == "provider" && v[to] == nil {
		return inferProvider(name, nil)
	}
	if v[to] == "" {
		return nil
	}
	return v[to]
}

// sameDestination compares where secrets go: of addresses scheme, host and port, of mappings and lists all entries. v may be masked,
// as a whole or in parts.
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

// findCounterpart finds in old what item i of a list was.
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

// RestoreSecretsInText is [RestoreSecrets] for a document as text: it keeps the order of names and the comments. A document
// without a mask is returned as it is. What cannot be read is an [*Error].
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
		if strings.Contains(n.Value, mask) && v != any(n.Value) {
			_ = n.Encode(v)
		}
	}
}
