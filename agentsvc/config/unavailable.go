package config

import (
	"fmt"
	"reflect"
	"slices"
)

// unavailableKeys lists what the vocabulary knows but Stoa cannot do yet. It loads where it is turned off or says
// only what holds by default; else [Parse] refuses it, so that nothing a document asks for is silently left
// undone. A row is deleted when what it names is built.
var unavailableKeys = []struct {
	pattern string   // path with * for names
	values  []string // what is not available; empty: anything but the default
}{
	{"agents.*.document_stores", nil},
	{"agents.*.include_context", nil},
	{"agents.*.include_context_limit", nil},
	{"agents.*.include_context_max_length", nil},

	{"databases.*.driver", []string{"mysql"}},
	{"vector_stores.*", nil},
	{"document_stores.*", nil},

	{"server.studio", nil},
}

// checkAvailable refuses what stands at s if it asks for something that is pending. V is its value and parent the
// struct it is a field of, if it is one.
func (c *validation) checkAvailable(s location, v, parent reflect.Value) {
	for _, row := range unavailableKeys {
		if !s.path.matchesPattern(row.pattern) || !requestsValue(v, parent, s.path.part, row.values) {
			continue
		}
		message := "not available yet"
		if len(row.values) > 0 && v.Kind() == reflect.String && !c.doc.fromVariable[s.value] {
			message = fmt.Sprintf("%s is not available yet", v)
		}
		c.unavailable = append(c.unavailable, unavailableRequest{s, message})
	}
}

// unavailableRequest is a request for what is not available yet.
type unavailableRequest struct {
	location location
	message  string
}

// reportUnavailable makes problems of all such requests, but for entries that lack a grant: what an app may not
// have, it need not wait for.
func (c *validation) reportUnavailable() {
	for _, w := range c.unavailable {
		if !c.refusedEntries[w.location.path.entryPath()] {
			c.addProblem(w.location, w.message)
		}
	}
}

// requestsValue reports whether v is one of values or, without any, something that is turned on and not the default.
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
		return !isDisabled(v) && !reflect.DeepEqual(v.Interface(), newDefault(v.Type()).Elem().Interface())
	}
	defaults := newDefault(parent.Type()).Elem()
	for _, f := range fieldsOf(parent.Type()) {
		if f.name == name {
			return !v.Equal(defaults.Field(f.index))
		}
	}
	return true
}
