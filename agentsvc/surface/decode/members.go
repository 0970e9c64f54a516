package decode

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"stoa/agentsvc"
	"stoa/agentsvc/config/document"
)

// CheckMembers returns an error for a member of a JSON object that the struct which v points to does not have. It also
// looks into the members nested, which are structs, and into no others: they may be messages, which clients of other
// versions of a protocol extend. What is no object is for [JSON] to refuse.
func CheckMembers(object []byte, v any, nested ...string) error {
	return checkMembers(object, reflect.TypeOf(v), "", nested)
}

func checkMembers(object []byte, t reflect.Type, path string, nested []string) error {
	var members map[string]AliasedJSON
	if json.Unmarshal(object, &members) != nil {
		return nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	known := jsonFields(t)
	var unknown []string
	for name := range members {
		if _, ok := known[name]; !ok {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		first := slices.Min(unknown)
		return newUnknownMemberError(joinPath(path, first), first, slices.Sorted(maps.Keys(known)))
	}
	for _, name := range nested {
		if member, ok := members[name]; ok {
			if err := checkMembers(member, known[name], joinPath(path, name), nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// newUnknownMemberError returns the error for an unknown member at a path, with the known name that it resembles most, if
// any.
func newUnknownMemberError(at, name string, known []string) error {
	if meant := document.SuggestWord(name, known); meant != "" {
		return agentsvc.NewInvalidError(at, "is not a known field (did you mean %q?)", meant)
	}
	return agentsvc.NewInvalidError(at, "is not a known field")
}

// fieldsByType has what jsonFields has returned: each call of a method asks for the same few types.
var fieldsByType sync.Map // map[string]reflect.Type by reflect.Type

// jsonFields returns the types of a struct's fields by their names in JSON. The caller must not change the map.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	if fields, ok := fieldsByType.Load(t); ok {
		return fields.(map[string]reflect.Type)
	}
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" && key != "-" {
			fields[key] = f.Type
		}
	}
	fieldsByType.Store(t, fields)
	return fields
}
