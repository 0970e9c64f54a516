package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// decode sets v to what stands at s. What is wrong becomes a problem and leaves v as it was, so that the
// rest can still be checked. An empty value counts as one that is not there.
func (doc *document) decode(s spot, v reflect.Value, f *field) {
	if isNull(s.value) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(newDefault(v.Type().Elem()))
		}
		doc.decode(s, v.Elem(), f)
	case reflect.Struct:
		doc.structure(s, v)
	case reflect.Map:
		doc.mapping(s, v)
	case reflect.Slice:
		doc.list(s, v, f)
	case reflect.Interface:
		if x, ok := doc.plain(s); ok {
			v.Set(reflect.ValueOf(&x).Elem())
		}
	default:
		doc.scalar(s, v, f)
	}
}

func (doc *document) structure(s spot, v reflect.Value) {
	if s.value.Kind != yaml.MappingNode {
		doc.problem(s, "must be a mapping, not "+kindOf(s.value))
		return
	}
	fields := fieldsOf(v.Type())
	for i := 0; i+1 < len(s.value.Content); i += 2 {
		key := s.value.Content[i]
		at := spot{&path{s.path, key.Value, fieldPart}, key, s.value.Content[i+1]}
		known := slices.IndexFunc(fields, func(f field) bool { return f.name == key.Value })
		if known < 0 {
			at.value = nil
			doc.suggest(at, "is not a known key", key.Value, names(fields))
			continue
		}
		doc.decode(at, v.Field(fields[known].index), &fields[known])
	}
	doc.required(s, fields)
}

// required demands the fields that the mapping at s must have.
func (doc *document) required(s spot, fields []field) {
	for _, f := range fields {
		if f.required && !doc.has(s.value, f.name) {
			doc.problem(s, f.name+" is needed")
		}
	}
}

func names(fields []field) []string {
	var known []string
	for _, f := range fields {
		known = append(known, f.name)
	}
	return known
}

func (doc *document) mapping(s spot, v reflect.Value) {
	if s.value.Kind != yaml.MappingNode {
		doc.problem(s, "must be a mapping, not "+kindOf(s.value))
		return
	}
	m := reflect.MakeMap(v.Type())
	for i := 0; i+1 < len(s.value.Content); i += 2 {
		key, value := s.value.Content[i], s.value.Content[i+1]
		at := spot{&path{s.path, key.Value, namePart}, key, value}
		if key.Value == "" {
			doc.problem(at, "must have a name")
			continue
		}
		item := reflect.New(v.Type().Elem()).Elem()
		if item.Kind() == reflect.Pointer {
			item.Set(newDefault(item.Type().Elem()))
			if isNull(value) {
				doc.required(at, fieldsOf(item.Type().Elem()))
			}
		}
		doc.decode(at, item, &field{})
		m.SetMapIndex(reflect.ValueOf(key.Value), item)
	}
	v.Set(m)
}

func (doc *document) list(s spot, v reflect.Value, f *field) {
	if s.value.Kind != yaml.SequenceNode {
		doc.problem(s, "must be a list, not "+kindOf(s.value))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(s.value.Content), len(s.value.Content))
	for i := range s.value.Content {
		at := s.item(i)
		if isNull(at.value) && !doc.broken[at.value] {
			doc.problem(at, "is empty")
		}
		if item := list.Index(i); item.Kind() == reflect.Pointer {
			item.Set(newDefault(item.Type().Elem()))
		}
		doc.decode(at, list.Index(i), f)
	}
	v.Set(list)
}

func (doc *document) scalar(s spot, v reflect.Value, f *field) {
	if s.value.Kind != yaml.ScalarNode {
		doc.problem(s, "must be "+wanted(v)+", not "+kindOf(s.value))
		return
	}
	tag := s.value.ShortTag()
	if doc.filled[s.value] && v.Kind() != reflect.String {
		tag = plainTag(s.value.Value) // JSON can write "${PORT}" only in quotes
	}
	ok := false
	switch {
	case v.Type() == durationType:
		ok = doc.duration(s, v)
	case v.Kind() == reflect.String:
		v.SetString(s.value.Value)
		doc.checkEnum(s, f)
		return
	case v.Kind() == reflect.Bool && tag == "!!bool":
		v.SetBool(strings.EqualFold(s.value.Value, "true"))
		return
	case v.Kind() == reflect.Int && tag == "!!int":
		var n int
		if ok = decodeAs(s.value, tag, &n); ok {
			v.SetInt(int64(n))
			doc.checkRange(s, float64(n), f)
		}
	case v.Kind() == reflect.Float64 && (tag == "!!float" || tag == "!!int"):
		var n float64
		if ok = decodeAs(s.value, tag, &n) && !math.IsNaN(n) && !math.IsInf(n, 0); ok {
			v.SetFloat(n)
			doc.checkRange(s, n, f)
		}
	}
	if !ok {
		doc.problem(s, "must be "+wanted(v)+doc.instead(s.value, v))
	}
}

func decodeAs(n *yaml.Node, tag string, into any) bool {
	plain := yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: n.Value}
	return plain.Decode(into) == nil
}

func (doc *document) duration(s spot, v reflect.Value) bool {
	d, err := time.ParseDuration(s.value.Value)
	if err != nil || d < 0 {
		return false
	}
	v.SetInt(int64(d))
	return true
}

func (doc *document) checkEnum(s spot, f *field) {
	if len(f.enum) == 0 || slices.Contains(f.enum, s.value.Value) {
		return
	}
	word := s.value.Value
	if doc.filled[s.value] {
		word = ""
	}
	message := "must be one of " + strings.Join(f.enum, ", ")
	if len(f.enum) == 1 {
		message = "must be " + f.enum[0]
	}
	doc.suggest(s, message, word, f.enum)
}

func (doc *document) checkRange(s spot, n float64, f *field) {
	switch {
	case f.min != nil && f.max != nil && (n < *f.min || n > *f.max):
		doc.problem(s, fmt.Sprintf("must be from %s to %s", format(*f.min), format(*f.max)))
	case f.min != nil && n < *f.min:
		doc.problem(s, "must be at least "+format(*f.min))
	}
}

func format(n float64) string {
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// instead says what stands at n, unless that came from a variable or is near to what v wants.
func (doc *document) instead(n *yaml.Node, v reflect.Value) string {
	kind := kindOf(n)
	switch {
	case doc.filled[n]:
		return "; the value of its variable is not"
	case kind == "text" && v.Type() == durationType, kind == "a number" && (v.Kind() == reflect.Int || v.Kind() == reflect.Float64):
		return ""
	}
	return ", not " + kind
}

func wanted(v reflect.Value) string {
	switch {
	case v.Type() == durationType:
		return "a duration such as 30s or 5m"
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.Kind() == reflect.Int:
		return "a whole number"
	case v.Kind() == reflect.Float64:
		return "a finite number"
	}
	return "text"
}
