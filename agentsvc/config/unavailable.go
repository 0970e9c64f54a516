package config

import (
	"fmt"
	"reflect"
	"slices"

	"stoa/agentsvc/config/document"
)

// unavailableKeys are the keys that the document may have but that Stoa does not implement yet. Such a key is
// accepted if it is turned off or has its default, else [Parse] refuses it: a document never requests something that
// is silently ignored. Delete a row when its feature is implemented.
var unavailableKeys = []struct {
	pattern string   // path with * for names
	values  []string // values that are not available; empty = all but the default
}{}

// checkAvailable notes the value v at s if it requests something that is not available. parent is the struct that it
// is a field of, the zero Value if none.
func (val *validation) checkAvailable(s document.Location, v, parent reflect.Value) {
	for _, row := range unavailableKeys {
		if !s.Path.Matches(row.pattern) || !requestsValue(v, parent, s.Path.Part, row.values) {
			continue
		}
		message := "not available yet"
		if len(row.values) > 0 && v.Kind() == reflect.String && !val.doc.IsFromVariable(s.Value) {
			message = fmt.Sprintf("%s is not available yet", v)
		}
		val.unavailable = append(val.unavailable, unavailableRequest{s, message})
	}
}

// unavailableRequest is a problem that reportUnavailable may add.
type unavailableRequest struct {
	location document.Location
	message  string
}

// reportUnavailable adds the noted problems, except for entries that lack a grant: the missing grant is the problem
// that the author can act on.
func (val *validation) reportUnavailable() {
	for _, w := range val.unavailable {
		if !val.refusedEntries[w.location.Path.Entry()] {
			val.addProblem(w.location, w.message)
		}
	}
}

// requestsValue reports whether v is one of values or, without values, turned on and different from its default.
func requestsValue(v, parent reflect.Value, name string, values []string) bool {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return false
		}
		v = v.Elem()
	}
	switch {
	case len(values) > 0:
		return slices.Contains(values, fmt.Sprint(v))
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			if !isDisabled(v.Index(i)) {
				return true
			}
		}
		return false
	case v.Kind() == reflect.Struct:
		return !isDisabled(v) && !reflect.DeepEqual(v.Interface(), document.NewDefault(v.Type()).Elem().Interface())
	}
	defaults := document.NewDefault(parent.Type()).Elem()
	for _, f := range document.FieldsOf(parent.Type()) {
		if f.Name == name {
			return !v.Equal(defaults.Field(f.Index))
		}
	}
	return true
}
