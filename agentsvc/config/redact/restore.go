package redact

import (
	"maps"
	"reflect"
	"slices"

	"stoa/agentsvc/config"
	"stoa/agentsvc/config/document"
)

// RestoreSecrets returns a copy of doc in which each mask is replaced by the value at the same path in old. In lists of
// mappings the entry with the same id or name corresponds, else the one with the same index. A mask without a
// counterpart stays, and [config.Parse] refuses it. The same holds for a secret whose destination (tag to) differs from
// old: otherwise a user who may edit the document but not read its secrets could have them sent to a host or program of
// their own.
func RestoreSecrets(doc, old map[string]any) map[string]any {
	restored, _ := restoreValue(doc, old, reflect.TypeFor[config.Config](), false).(map[string]any)
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
		case v == document.Mask && old != nil:
			return old
		}
		return restoreURL(v, old)
	}
	return v
}

// restoreURL restores the masked parts of the URL v from old, if both have the same origin.
func restoreURL(v string, old any) string {
	before, _ := old.(string)
	now, ok := document.ParseAddress(v)
	was, wasOne := document.ParseAddress(before)
	if !ok || !wasOne || !now.HasMask() || origin(now) != origin(was) {
		return v
	}
	return restoreAddress(now, was).String()
}

// movesSecret reports whether the secrets at key of v, which has type t, have another destination than in old. A
// field without the tag to inherits moved from what contains it.
func movesSecret(t reflect.Type, key string, v, old map[string]any, moved bool) bool {
	if t == nil || t.Kind() != reflect.Struct {
		return moved
	}
	for _, f := range document.FieldsOf(t) {
		if f.Name == key && len(f.Destinations) > 0 {
			return slices.ContainsFunc(f.Destinations, func(to string) bool {
				return !sameDestination(secretDestination(t, to, v), secretDestination(t, to, old))
			})
		}
	}
	return moved
}

// secretDestination returns the value of the field to of v, which decides where secrets are sent. A model's provider
// may follow from its name.
func secretDestination(t reflect.Type, to string, v map[string]any) any {
	if name, _ := v["model"].(string); t == reflect.TypeFor[config.LLM]() && to == "provider" && v[to] == nil {
		return config.InferProvider(name)
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
			if !there || x != document.Mask && !sameDestination(x, was) {
				return false
			}
		}
		return len(v) == len(before)
	case []any:
		before, _ := old.([]any)
		return slices.EqualFunc(v, before, func(x, was any) bool { return x == document.Mask || sameDestination(x, was) })
	}
	if text, ok := v.(string); ok {
		before, _ := old.(string)
		now, isOne := document.ParseAddress(text)
		if was, wasOne := document.ParseAddress(before); isOne && wasOne {
			return origin(now) == origin(was)
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
