package config

import (
	"reflect"
	"strconv"
)

// LeafValues returns the values of a decoded document by their paths, in the form of [Problem].Path. It descends as
// far as the document's types do: what is free below a key, such as a schema, headers or a list of words, is one
// value. A path therefore contains only known keys and the names of entries. The audit trail compares two documents
// with it.
func LeafValues(doc map[string]any) map[string]any {
	leaves := map[string]any{}
	addLeaves(leaves, doc, reflect.TypeFor[Config](), nil)
	return leaves
}

// addLeaves adds the leaves of v, which is at p and has type t in the document's types.
func addLeaves(leaves map[string]any, v any, t reflect.Type, p *path) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case map[string]any:
		switch {
		case len(v) == 0:
		case t.Kind() == reflect.Struct:
			addFieldLeaves(leaves, v, t, p)
			return
		case t.Kind() == reflect.Map && isStructured(t.Elem()):
			for key, x := range v {
				addLeaves(leaves, x, t.Elem(), &path{p, key, namePart})
			}
			return
		}
	case []any:
		if t.Kind() == reflect.Slice && isStructured(t.Elem()) {
			for i, x := range v {
				addLeaves(leaves, x, t.Elem(), &path{p, strconv.Itoa(i), itemPart})
			}
			return
		}
	}
	if p != nil {
		leaves[p.String()] = v
	}
}

// addFieldLeaves adds the leaves of a struct. The values of all unknown keys are one leaf under "?", because an
// unknown key may be a mistyped secret.
func addFieldLeaves(leaves map[string]any, v map[string]any, t reflect.Type, p *path) {
	unknown := map[string]any{}
	for key, x := range v {
		unknown[key] = x
	}
	for _, f := range fieldsOf(t) {
		if x, ok := v[f.name]; ok {
			delete(unknown, f.name)
			addLeaves(leaves, x, t.Field(f.index).Type, &path{p, f.name, fieldPart})
		}
	}
	if len(unknown) > 0 {
		leaves[(&path{p, "?", fieldPart}).String()] = unknown
	}
}

// isStructured reports whether t is a struct of the document, or a pointer to one.
func isStructured(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}
