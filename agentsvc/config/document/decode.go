package document

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"stoa/agentsvc/duration"
)

// decodeValue sets v to the value at s. A wrong value becomes a problem and leaves v unchanged, so that the rest is
// still decoded and checked. A null value counts as absent.
func (doc *Document) decodeValue(s Location, v reflect.Value, f *Field) {
	if IsNull(s.Value) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(NewDefault(v.Type().Elem()))
		}
		doc.decodeValue(s, v.Elem(), f)
	case reflect.Struct:
		doc.DecodeStruct(s, v)
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

// DecodeStruct decodes a mapping into a struct. An unknown key is a problem, with the most similar known key as a
// suggestion.
func (doc *Document) DecodeStruct(s Location, v reflect.Value) {
	if s.Value.Kind != yaml.MappingNode {
		doc.addPlaced(s, "must be a mapping, not "+describeKind(s.Value), "")
		return
	}
	if s.Path == nil {
		doc.rootType = v.Type()
	}
	fields := FieldsOf(v.Type())
	// within is true for a block in another one that is off.
	within := doc.isOff
	off := !within && doc.isTurnedOff(s.Value, fields)
	if off {
		doc.turnOff(s.Value, fields)
	}
	for i := 0; i+1 < len(s.Value.Content); i += 2 {
		key := s.Value.Content[i]
		at := Location{s.Path.Field(key.Value), key, s.Value.Content[i+1]}
		known := slices.IndexFunc(fields, func(f Field) bool { return f.Name == key.Value })
		if known < 0 {
			at.Value = nil // the problem's position is then the key's
			suggestion := ""
			if !doc.problems.isFull() { // 98,000 unknown keys took 373 MiB of tables of distances
				suggestion = SuggestWord(key.Value, fieldNames(fields))
			}
			doc.addPlaced(at, "is not a known key", suggestion)
			continue
		}
		doc.isOff = within || off && fields[known].isInert()
		doc.decodeValue(at, v.Field(fields[known].Index), &fields[known])
	}
	doc.isOff = within || off
	doc.checkRequired(s, fields)
	if doc.isOff = within; off {
		resetInert(v, fields)
	}
}

// checkRequired reports the required keys that the mapping at s does not have.
func (doc *Document) checkRequired(s Location, fields []Field) {
	for _, f := range fields {
		if f.Required && !doc.isOff {
			doc.RequireValue(s, f.Name)
		}
	}
}

// RequireValue reports that the mapping at s does not have key, or has it with an empty text.
func (doc *Document) RequireValue(s Location, key string) {
	at := s.Child(key)
	switch {
	case doc.HasValue(s.Value, key):
	case IsNull(at.Value):
		doc.AddProblem(s, key+" is needed")
	default:
		doc.AddProblem(at, "must not be empty")
	}
}

// fieldNames returns the keys of fields.
func fieldNames(fields []Field) []string {
	var known []string
	for _, f := range fields {
		known = append(known, f.Name)
	}
	return known
}

// maxEntries bounds the entries of a mapping of structs. A few bytes of each become a struct with its defaults, which is
// then looked up by its name: 49,000 agents took 18 s of a processor and 268 MiB.
const maxEntries = 5_000

// decodeMapping decodes a mapping whose keys are names that the document chooses. Every entry gets its defaults, also
// an empty one.
func (doc *Document) decodeMapping(s Location, v reflect.Value) {
	if s.Value.Kind != yaml.MappingNode {
		doc.addPlaced(s, "must be a mapping, not "+describeKind(s.Value), "")
		return
	}
	if n := len(s.Value.Content) / 2; n > maxEntries && v.Type().Elem().Kind() == reflect.Pointer {
		doc.AddProblem(s, fmt.Sprintf("has %d entries, and may have %d", n, maxEntries))
		s.Value.Content = nil // later checks list the names
		return
	}
	m := reflect.MakeMap(v.Type())
	for i := 0; i+1 < len(s.Value.Content); i += 2 {
		key, value := s.Value.Content[i], s.Value.Content[i+1]
		at := Location{s.Path.Name(key.Value), key, value}
		if key.Value == "" {
			doc.AddProblem(at, "must have a name")
			continue
		}
		item := reflect.New(v.Type().Elem()).Elem()
		if item.Kind() == reflect.Pointer {
			item.Set(NewDefault(item.Type().Elem()))
			if IsNull(value) {
				doc.checkRequired(at, FieldsOf(item.Type().Elem()))
			}
		}
		doc.decodeValue(at, item, &Field{})
		m.SetMapIndex(reflect.ValueOf(key.Value), item)
	}
	v.Set(m)
}

// decodeList decodes a sequence. An empty item is a problem unless a missing variable, which was reported before,
// made it empty.
func (doc *Document) decodeList(s Location, v reflect.Value, f *Field) {
	if s.Value.Kind != yaml.SequenceNode {
		doc.addPlaced(s, "must be a list, not "+describeKind(s.Value), "")
		return
	}
	list := reflect.MakeSlice(v.Type(), len(s.Value.Content), len(s.Value.Content))
	for i := range s.Value.Content {
		at := s.Item(i)
		if IsNull(at.Value) && !doc.missingVariable[at.Value] {
			doc.AddProblem(at, "is empty")
		}
		if item := list.Index(i); item.Kind() == reflect.Pointer {
			item.Set(NewDefault(item.Type().Elem()))
		}
		doc.decodeValue(at, list.Index(i), f)
	}
	v.Set(list)
}

// decodeScalar decodes a scalar. Types are strict: a quoted number is text, except where a variable supplied it.
func (doc *Document) decodeScalar(s Location, v reflect.Value, f *Field) {
	if s.Value.Kind != yaml.ScalarNode {
		doc.addPlaced(s, "must be "+describeWanted(v)+", not "+describeKind(s.Value), "")
		return
	}
	tag := doc.scalarTag(s.Value, v.Kind())
	ok := false
	switch {
	case v.Type() == durationType:
		ok = doc.decodeDuration(s, v)
	case v.Kind() == reflect.String:
		v.SetString(s.Value.Value)
		doc.checkEnum(s, f)
		return
	case v.Kind() == reflect.Bool && tag == "!!bool":
		v.SetBool(strings.EqualFold(s.Value.Value, "true"))
		return
	case v.Kind() == reflect.Int && tag == "!!int":
		var n int
		if ok = decodeAs(s.Value, tag, &n); ok && doc.checkRange(s, float64(n), f) {
			v.SetInt(int64(n))
		}
	case v.Kind() == reflect.Float64 && (tag == "!!float" || tag == "!!int"):
		var n float64
		if ok = decodeAs(s.Value, tag, &n) && !math.IsNaN(n) && !math.IsInf(n, 0); ok && doc.checkRange(s, n, f) {
			v.SetFloat(n)
		}
	}
	if !ok {
		doc.addPlaced(s, "must be "+describeWanted(v)+describeMismatch(s.Value, v, doc.fromVariable[s.Value]), "")
	}
}

// scalarTag returns the YAML type of the scalar n for a value of a kind.
func (doc *Document) scalarTag(n *yaml.Node, kind reflect.Kind) string {
	if doc.fromVariable[n] && kind != reflect.String {
		return plainTag(n.Value) // in JSON, "${PORT}" can only be written in quotes
	}
	return n.ShortTag()
}

// decodeAs decodes a scalar as the YAML type tag and reports whether it is one.
func decodeAs(n *yaml.Node, tag string, into any) bool {
	plain := yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: n.Value}
	return plain.Decode(into) == nil
}

// decodeDuration decodes a duration, see [duration.Parse]. Negative ones are refused.
func (doc *Document) decodeDuration(s Location, v reflect.Value) bool {
	d, err := duration.Parse(s.Value.Value)
	if err != nil || d < 0 {
		return false
	}
	v.SetInt(int64(d))
	return true
}

// checkEnum reports a value that is not in the field's enum. A value from a variable is not used for a suggestion,
// which would reveal it.
func (doc *Document) checkEnum(s Location, f *Field) {
	if doc.isOff || len(f.Enum) == 0 || slices.Contains(f.Enum, s.Value.Value) {
		return
	}
	word := s.Value.Value
	if doc.fromVariable[s.Value] {
		word = ""
	}
	message := "must be one of " + strings.Join(f.Enum, ", ")
	if len(f.Enum) == 1 {
		message = "must be " + f.Enum[0]
	}
	doc.AddSuggestion(s, message, word, f.Enum)
}

// checkRange reports a number outside the field's minimum and maximum, and whether it is within them.
func (doc *Document) checkRange(s Location, n float64, f *Field) bool {
	switch {
	case doc.isOff:
		return true
	case f.Min != nil && f.Max != nil && (n < *f.Min || n > *f.Max):
		doc.AddProblem(s, fmt.Sprintf("must be from %s to %s", formatNumber(*f.Min), formatNumber(*f.Max)))
	case f.Min != nil && n < *f.Min:
		doc.AddProblem(s, "must be at least "+formatNumber(*f.Min))
	default:
		return true
	}
	return false
}

// formatNumber returns n without an exponent.
func formatNumber(n float64) string {
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// describeMismatch returns the end of a message: what kind of value is at n. It is "" if the kind is right and only
// the value is wrong, and it does not describe the value of a variable.
func describeMismatch(n *yaml.Node, v reflect.Value, fromVariable bool) string {
	kind := describeKind(n)
	switch {
	case fromVariable:
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
		return "a duration such as 30s, 5m or 30d"
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.Kind() == reflect.Int:
		return "a whole number"
	case v.Kind() == reflect.Float64:
		return "a finite number"
	}
	return "text"
}
