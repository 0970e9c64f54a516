package surface

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
)

var indexPattern = regexp.MustCompile(`\[\d+\]`)

// locateTypeError returns where in body the value stands that wrong is about, such as items[0].amount.
// In a large body, which would have to be read again for it, it does not count the items of lists.
func locateTypeError(body []byte, wrong *json.UnmarshalTypeError) string {
	if len(body) > maxBody {
		return wrong.Field
	}
	at := pathAtOffset(body, wrong.Offset)
	if !isPathTo(indexPattern.ReplaceAllString(at, ""), wrong.Field) { // it counts within a value that reads itself
		return wrong.Field
	}
	return at
}

// isPathTo reports whether a path is the one to a field, which names the structs that lie embedded on the way as well.
func isPathTo(path, field string) bool {
	names, of := strings.Split(path, "."), strings.Split(field, ".")
	for len(of) > 1 && len(names) > 0 {
		if of[0] == names[0] {
			names = names[1:]
		}
		of = of[1:]
	}
	return slices.Equal(names, of)
}

// pathAtOffset returns the path to the value of a JSON document that ends at offset, or whose first byte does.
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

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// newUnknownFieldError is the error of a document for v with a member that v does not have. It says where that stands, and what was
// probably meant.
func newUnknownFieldError(body []byte, v any, name string) error {
	var doc any
	at, known := name, []string(nil)
	if json.Unmarshal(body, &doc) == nil {
		if found, names := findUnknownField(reflect.TypeOf(v), doc, "", name); found != "" {
			at, known = found, names
		}
	}
	if meant := config.SuggestWord(name, known); meant != "" {
		return agentsvc.NewInvalidError(at, "is not a known field (did you mean %q?)", meant)
	}
	return agentsvc.NewInvalidError(at, "is not a known field")
}

var unmarshalerType = reflect.TypeFor[json.Unmarshaler]()

// findUnknownField returns the path to the first member of that name in x that its type does not have, and what that has, "" where
// there is none. What reads itself is passed over.
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
		for _, f := range reflect.VisibleFields(t) {
			if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" && key != "-" {
				inside[key] = f.Type
			}
		}
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
