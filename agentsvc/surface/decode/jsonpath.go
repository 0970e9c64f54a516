package decode

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxReread is the size of the largest document, in bytes, that is read a second time to find out where it is wrong.
const maxReread = 1 << 20

// indexPattern matches the index of a list item in a path.
var indexPattern = regexp.MustCompile(`\[\d+\]`)

// locateTypeError returns the path, such as items[0].amount, of the value in body that wrong is about. encoding/json
// reports only the field's name, without indexes; the path is found by reading body again up to the error's offset. For
// a large body the name must do.
func locateTypeError(body []byte, wrong *json.UnmarshalTypeError) string {
	if len(body) > maxReread {
		return wrong.Field
	}
	at := pathAtOffset(body, wrong.Offset)
	// A type with an UnmarshalJSON of its own decodes a part of the body, and its offsets count from there.
	if !isPathTo(indexPattern.ReplaceAllString(at, ""), wrong.Field) {
		return wrong.Field
	}
	return at
}

// isPathTo reports whether path leads to field. In field, encoding/json also names embedded structs, which path does not
// have, and leaves out the keys of maps, which path has.
func isPathTo(path, field string) bool {
	names, passed, found := strings.Split(path, "."), 0, false
	for name := range strings.SplitSeq(field, ".") {
		i := slices.Index(names[passed:], name)
		// Nothing precedes the first name: the body is no map.
		if found = i == 0 || i > 0 && passed > 0; found {
			passed += i + 1
		}
	}
	return found
}

// pathAtOffset returns the path to the value of a JSON document that ends at offset or begins there, "" if there is
// none.
func pathAtOffset(body []byte, offset int64) string {
	type level struct {
		list bool
		i    int
		key  string
		read bool // the key
	}
	var at []level
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		token, err := d.Token()
		if err != nil {
			return ""
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
			break
		}
		if open, ok := token.(json.Delim); ok {
			at = append(at, level{list: open == '[', i: -1})
		}
	}
	path := ""
	for _, l := range at {
		if l.list {
			path += "[" + strconv.Itoa(l.i) + "]"
		} else {
			path = joinPath(path, l.key)
		}
	}
	return path
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
