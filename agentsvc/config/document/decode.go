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

// decodeValue sets v to the value at s. A wrong value becomes a problem and leaves v unchanged, so that the rest is
// still decoded and checked. A null value counts as absent.
func (doc *document) decodeValue(s location, v reflect.Value, f *field) {
	if isNull(s.value) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(newDefault(v.Type().Elem()))
		}
		doc.decodeValue(s, v.Elem(), f)
	case reflect.Struct:
		doc.decodeStruct(s, v)
	case reflect.Map:
		doc.decodeMapping(s, v)
	case reflect.Slice:
		doc.decodeList(s, v, f)
	case reflect.Interface:
		if x, ok := doc.decodePlain(s); ok {
			v.Set(reflect.ValueOf(&x).Elem())
		}
	default:
		doc.decodeScalar(s, v, f)
	}
}

// decodeStruct decodes a mapping into a struct. An unknown key is a problem, with the most similar known key as a
// suggestion.
func (doc *document) decodeStruct(s location, v reflect.Value) {
	if s.value.Kind != yaml.MappingNode {
		doc.addProblem(s, "must be a mapping, not "+describeKind(s.value))
		return
	}
	fields := fieldsOf(v.Type())
	for i := 0; i+1 < len(s.value.Content); i += 2 {
		key := s.value.Content[i]
		at := location{&path{s.path, key.Value, fieldPart}, key, s.value.Content[i+1]}
		known := slices.IndexFunc(fields, func(f field) bool { return f.name == key.Value })
		if known < 0 {
			at.value = nil // the problem's position is then the key's
			doc.addSuggestion(at, "is not a known key", key.Value, fieldNames(fields))
			continue
		}
		doc.decodeValue(at, v.Field(fields[known].index), &fields[known])
	}
	doc.checkRequired(s, fields)
}

// checkRequired reports the required keys that the mapping at s does not have.
func (doc *document) checkRequired(s location, fields []field) {
	for _, f := range fields {
		if f.required && !doc.hasValue(s.value, f.name) {
			doc.addProblem(s, f.name+" is needed")
		}
	}
}

// fieldNames returns the keys of fields.
func fieldNames(fields []field) []string {
	var known []string
	for _, f := range fields {
		known = append(known, f.name)
	}
	return known
}

// decodeMapping decodes a mapping whose keys are names that the document chooses. Every entry gets its defaults, also
// an empty one.
func (doc *document) decodeMapping(s location, v reflect.Value) {
	if s.value.Kind != yaml.MappingNode {
		doc.addProblem(s, "must be a mapping, not "+describeKind(s.value))
		return
	}
	m := reflect.MakeMap(v.Type())
	for i := 0; i+1 < len(s.value.Content); i += 2 {
		key, value := s.value.Content[i], s.value.Content[i+1]
		at := location{&path{s.path, key.Value, namePart}, key, value}
		if key.Value == "" {
			doc.addProblem(at, "must have a name")
			continue
		}
		item := reflect.New(v.Type().Elem()).Elem()
		if item.Kind() == reflect.Pointer {
			item.Set(newDefault(item.Type().Elem()))
			if isNull(value) {
				doc.checkRequired(at, fieldsOf(item.Type().Elem()))
			}
		}
		doc.decodeValue(at, item, &field{})
		m.SetMapIndex(reflect.ValueOf(key.Value), item)
	}
	v.Set(m)
}

// decodeList decodes a sequence. An empty item is a problem unless a missing variable, which was reported before,
// made it empty.
func (doc *document) decodeList(s location, v reflect.Value, f *field) {
	if s.value.Kind != yaml.SequenceNode {
		doc.addProblem(s, "must be a list, not "+describeKind(s.value))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(s.value.Content), len(s.value.Content))
	for i := range s.value.Content {
		at := s.item(i)
		if isNull(at.value) && !doc.missingVariable[at.value] {
			doc.addProblem(at, "is empty")
		}
		if item := list.Index(i); item.Kind() == reflect.Pointer {
			item.Set(newDefault(item.Type().Elem()))
		}
		doc.decodeValue(at, list.Index(i), f)
	}
	v.Set(list)
}

// decodeScalar decodes a scalar. Types are strict: a quoted number is text, except where a variable supplied it.
func (doc *document) decodeScalar(s location, v reflect.Value, f *field) {
	if s.value.Kind != yaml.ScalarNode {
		doc.addProblem(s, "must be "+describeWanted(v)+", not "+describeKind(s.value))
		return
	}
	tag := s.value.ShortTag()
	if doc.fromVariable[s.value] && v.Kind() != reflect.String {
		tag = plainTag(s.value.Value) // in JSON, "${PORT}" can only be written in quotes
	}
	ok := false
	switch {
	case v.Type() == durationType:
		ok = doc.decodeDuration(s, v)
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
		doc.addProblem(s, "must be "+describeWanted(v)+doc.describeMismatch(s.value, v))
	}
}

// decodeAs decodes a scalar as the YAML type tag and reports whether it is one.
func decodeAs(n *yaml.Node, tag string, into any) bool {
	plain := yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: n.Value}
	return plain.Decode(into) == nil
}

// decodeDuration decodes a duration in Go's format. Negative ones are refused.
func (doc *document) decodeDuration(s location, v reflect.Value) bool {
	d, err := time.ParseDuration(s.value.Value)
	if err != nil || d < 0 {
		return false
	}
	v.SetInt(int64(d))
	return true
}

// checkEnum reports a value that is not in the field's enum. A value from a variable is not used for a suggestion,
// which would reveal it.
func (doc *document) checkEnum(s location, f *field) {
	if len(f.enum) == 0 || slices.Contains(f.enum, s.value.Value) {
		return
	}
	word := s.value.Value
	if doc.fromVariable[s.value] {
		word = ""
	}
	message := "must be one of " + strings.Join(f.enum, ", ")
	if len(f.enum) == 1 {
		message = "must be " + f.enum[0]
	}
	doc.addSuggestion(s, message, word, f.enum)
}

// checkRange reports a number outside the field's minimum and maximum.
func (doc *document) checkRange(s location, n float64, f *field) {
	switch {
	case f.min != nil && f.max != nil && (n < *f.min || n > *f.max):
		doc.addProblem(s, fmt.Sprintf("must be from %s to %s", formatNumber(*f.min), formatNumber(*f.max)))
	case f.min != nil && n < *f.min:
		doc.addProblem(s, "must be at least "+formatNumber(*f.min))
	}
}

// formatNumber returns n without an exponent.
func formatNumber(n float64) string {
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// describeMismatch returns the end of a message: what kind of value is at n. It is "" if the kind is right and only
// the value is wrong, and it does not describe the value of a variable.
func (doc *document) describeMismatch(n *yaml.Node, v reflect.Value) string {
	kind := describeKind(n)
	switch {
	case doc.fromVariable[n]:
		return "; the value of its variable is not"
	case kind == "text" && v.Type() == durationType, kind == "a number" && (v.Kind() == reflect.Int || v.Kind() == reflect.Float64):
		return ""
	}
	return ", not " + kind
}

// describeWanted returns how a message names the type of v.
func describeWanted(v reflect.Value) string {
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
