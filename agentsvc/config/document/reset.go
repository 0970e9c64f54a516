package document

import (
	"reflect"
	"slices"
	"strconv"
)

// ResetUnsound replaces each value of v, which the root of doc was decoded into, whose meaning cannot be used by its
// default, so that it cannot act when v is built. Blocks stay, since what is wrong with them as a whole says nothing of
// their other values. Values of the types in kept stay too. Lists keep their lengths, which the paths of later problems
// depend on.
func ResetUnsound(doc *Document, v reflect.Value, kept ...reflect.Type) {
	for _, p := range doc.unsound {
		resetValue(v, p.parts(), kept)
	}
}

// resetValue resets the value that parts lead to from v, or the deepest one that is no block.
func resetValue(v reflect.Value, parts []*Path, kept []reflect.Type) {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if len(parts) == 0 || slices.Contains(kept, v.Type()) {
		return
	}
	part, below := parts[0].Part, parts[1:]
	switch v.Kind() {
	case reflect.Struct:
		for _, f := range FieldsOf(v.Type()) {
			if f.Name != part {
				continue
			}
			x := v.Field(f.Index)
			t := indirect(x.Type())
			switch isList := t.Kind() == reflect.Slice || t.Kind() == reflect.Map; {
			case t.Kind() == reflect.Struct, isList && len(below) > 0, isList && indirect(t.Elem()).Kind() == reflect.Struct:
				resetValue(x, below, kept)
			default:
				x.Set(NewDefault(v.Type()).Elem().Field(f.Index))
			}
		}
	case reflect.Slice:
		if i, err := strconv.Atoi(part); err == nil && i < v.Len() {
			if x := v.Index(i); indirect(x.Type()).Kind() == reflect.Struct {
				resetValue(x, below, kept)
			} else {
				x.SetZero()
			}
		}
	case reflect.Map:
		key := reflect.ValueOf(part)
		if x := v.MapIndex(key); x.IsValid() && indirect(x.Type()).Kind() == reflect.Struct {
			resetValue(x, below, kept)
		} else {
			v.SetMapIndex(key, reflect.Value{}) // removes it
		}
	}
}
