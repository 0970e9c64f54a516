package decode

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// maxReread is the size of the largest document, in bytes, that is read a second time to find out where it is wrong.
const maxReread = 1 << 20

// step is one step of a path into a JSON document: item i of a list, or the member key of an object.
type step struct {
	list bool
	i    int
	key  string
	// read reports that key is the name of the member whose value comes next. Only findSteps uses it.
	read bool
}

// formatPath returns the path of steps, such as items[0].amount.
func formatPath(steps []step) string {
	path := ""
	for _, s := range steps {
		if s.list {
			path += "[" + strconv.Itoa(s.i) + "]"
		} else {
			path = joinPath(path, s.key)
		}
	}
	return path
}

// locateTypeError returns the path, such as items[0].amount, of the value in body that wrong is about; body was decoded
// into v. encoding/json reports only names of fields, without indexes and without keys of maps; the path is found by
// reading body again up to the error's offset. For a large body the names must do.
func locateTypeError(body []byte, v any, wrong *json.UnmarshalTypeError) string {
	t := reflect.TypeOf(v)
	field := dropEmbedded(t, wrong.Field)
	if len(body) > maxReread {
		return field
	}
	at := findSteps(body, wrong.Offset)
	// A type with an UnmarshalJSON of its own decodes a part of the body, and its offsets count from there.
	if findField(t, at) != field {
		return field
	}
	return formatPath(at)
}

// dropEmbedded returns the path field, which encoding/json has reported for a t, without the names of embedded structs:
// these are names of Go types, and bodies do not have them.
func dropEmbedded(t reflect.Type, field string) string {
	path := ""
	for name := range strings.SplitSeq(field, ".") {
		t = elementType(t)
		if t.Kind() == reflect.Struct {
			if inside, ok := jsonFields(t)[name]; ok {
				t = inside
			} else if embedded, ok := t.FieldByName(name); ok && embedded.Anonymous {
				continue // jsonFields has its members as members of t
			}
		}
		path = joinPath(path, name)
	}
	return path
}

// findField returns the path that encoding/json reports for the value at steps in a t, without the names of embedded
// structs. It returns "" if steps lead out of the type, or into one with an UnmarshalJSON of its own.
func findField(t reflect.Type, steps []step) string {
	field := ""
	for _, s := range steps {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch kind := t.Kind(); {
		case reflect.PointerTo(t).Implements(unmarshalerType):
			return ""
		case kind == reflect.Struct && !s.list:
			inside, ok := jsonFields(t)[s.key]
			if !ok {
				return ""
			}
			t, field = inside, joinPath(field, s.key)
		case kind == reflect.Map && !s.list, (kind == reflect.Slice || kind == reflect.Array) && s.list:
			t = t.Elem()
		default:
			return ""
		}
	}
	return field
}

// elementType returns what t points to or consists of, through all lists and maps.
func elementType(t reflect.Type) reflect.Type {
	for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Map, reflect.Slice, reflect.Array}, t.Kind()) {
		t = t.Elem()
	}
	return t
}

// findSteps returns the steps to the value of a JSON document that ends at offset or begins there, nil if there is
// none.
func findSteps(body []byte, offset int64) []step {
	var at []step
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		token, err := d.Token()
		if err != nil {
			return nil
		}
		if token == json.Delim(']') || token == json.Delim('}') {
			at = at[:len(at)-1]
			continue
		}
		if n := len(at) - 1; n >= 0 {
			switch top := &at[n]; {
			case top.list:
				top.i++
			case !top.read:
				top.key, top.read = token.(string), true
				continue
			default:
				top.read = false
			}
		}
		if d.InputOffset() >= offset {
			return at
		}
		if open, ok := token.(json.Delim); ok {
			at = append(at, step{list: open == '[', i: -1})
		}
	}
}

// joinPath returns path.name, or name if path is "".
func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// newUnknownFieldError returns the error for the unknown member name in body, which was decoded into v: with its path
// and the known name that it resembles most, if any. encoding/json reports only the name.
func newUnknownFieldError(body []byte, v any, name string) error {
	var doc any
	at, known := name, []string(nil)
	if json.Unmarshal(body, &doc) == nil {
		if found, names := findUnknownField(reflect.TypeOf(v), doc, "", name); found != "" {
			at, known = found, names
		}
	}
	return newUnknownMemberError(at, name, known)
}

// unmarshalerType is the interface of types that decode themselves.
var unmarshalerType = reflect.TypeFor[json.Unmarshaler]()

// findUnknownField returns the path to the first member name in the decoded value x that the type t does not have, and
// the names that t has at that place. It returns "" if there is none. Types with an UnmarshalJSON of their own are
// skipped.
func findUnknownField(t reflect.Type, x any, path, name string) (string, []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshalerType) {
		return "", nil
	}
	inside := map[string]reflect.Type{}
	switch t.Kind() {
	case reflect.Struct:
		inside = jsonFields(t)
	case reflect.Map, reflect.Slice, reflect.Array:
	default:
		return "", nil
	}
	switch x := x.(type) {
	case []any:
		for i, item := range x {
			if t.Kind() == reflect.Struct || t.Kind() == reflect.Map {
				break
			}
			if at, known := findUnknownField(t.Elem(), item, path+"["+strconv.Itoa(i)+"]", name); at != "" {
				return at, known
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(x)) {
			of, ok := inside[key]
			switch {
			case t.Kind() == reflect.Map:
				of = t.Elem()
			case t.Kind() != reflect.Struct:
				continue
			case !ok && key == name:
				return joinPath(path, key), slices.Sorted(maps.Keys(inside))
			case !ok:
				continue
			}
			if at, known := findUnknownField(of, x[key], joinPath(path, key), name); at != "" {
				return at, known
			}
		}
	}
	return "", nil
}
