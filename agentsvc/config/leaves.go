package config

import (
	"reflect"
	"strconv"
)

// LeafValues returns the values of a decoded document by their paths, as [Problem] shows those. It goes as deep as the
// vocabulary does: what is free text below a field, such as a schema, headers or a list of words, is one value, so that a
// path holds names of the vocabulary and the names that the document gives its entries, and nothing else of the document.
func LeafValues(doc map[string]any) map[string]any {
	leaves := map[string]any{}
	addLeaves(leaves, doc, reflect.TypeFor[Config](), nil)
	return leaves
}

// addLeaves adds the leaves of v, which stands at p, where the vocabulary has type t.
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

// addFieldLeaves adds the leaves of a struct. A key that the vocabulary does not have is not named: the values of all such keys
// are one.
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

// isStructured reports whether values of type t have fields of the vocabulary.
func isStructured(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}
