package config

import (
	"reflect"

	"stoa/agentsvc/config/document"
)

// LeafValues returns the values of a decoded document by their paths, in the form of [document.Problem].Path. It
// descends as far as the document's types do: what is free below a key, such as a schema, headers or a list of words,
// is one value. A path therefore contains only known keys and the names of entries. The audit trail compares two
// documents with it.
func LeafValues(doc map[string]any) map[string]any {
	leaves := map[string]any{}
	addLeaves(leaves, doc, reflect.TypeFor[Config](), nil)
	return leaves
}

// addLeaves adds the leaves of v, which is at p and has type t in the document's types.
func addLeaves(leaves map[string]any, v any, t reflect.Type, p *document.Path) {
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
				addLeaves(leaves, x, t.Elem(), p.Name(key))
			}
			return
		}
	case []any:
		if t.Kind() == reflect.Slice && isStructured(t.Elem()) {
			for i, x := range v {
				addLeaves(leaves, x, t.Elem(), p.Item(i))
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
func addFieldLeaves(leaves map[string]any, v map[string]any, t reflect.Type, p *document.Path) {
	unknown := map[string]any{}
	for key, x := range v {
		unknown[key] = x
	}
	for _, f := range document.FieldsOf(t) {
		if x, ok := v[f.Name]; ok {
			delete(unknown, f.Name)
			addLeaves(leaves, x, t.Field(f.Index).Type, p.Field(f.Name))
		}
	}
	if len(unknown) > 0 {
		leaves[p.Field("?").String()] = unknown
	}
}

// isStructured reports whether t is a struct of the document, or a pointer to one.
func isStructured(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}
