package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// field is what the tags of a struct field define for the key of a document.
//
//	yaml:"name"            its key
//	jsonschema:"..."       required, enum, minimum, maximum, default: as in the schema made from them
//	only:"type=mcp|x"      allowed only if the sibling key has one of these values
//	ref:"llms"             its value names an entry of this top-level key
//	grant:"filesystem"     a host power: a tenant needs this grant
//	secret:"true"          never shown
//	to:"url"               the sibling fields that decide where its secrets are sent (RestoreSecrets); a mapping or list of
//	                       secrets names itself, since one entry may decide where the others are sent
type field struct {
	name         string
	index        int // of the struct field
	required     bool
	enum         []string
	min, max     *float64 // nil = no bound
	defaults     []string // several for a list
	onlyKey      string
	onlyValues   []string
	ref          string
	grant        string
	secret       bool
	destinations []string // from the tag to
}

// durationType distinguishes durations from other int64 values.
var durationType = reflect.TypeFor[time.Duration]()

// fieldCache keeps the parsed tags by type, since parsing them is slow and types never change.
var fieldCache sync.Map // reflect.Type to []field

// fieldsOf returns the exported fields of a struct type in their order.
func fieldsOf(t reflect.Type) []field {
	if known, ok := fieldCache.Load(t); ok {
		return known.([]field)
	}
	var fields []field
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() {
			fields = append(fields, parseField(f, i))
		}
	}
	fieldCache.Store(t, fields)
	return fields
}

// parseField parses the tags of a struct field.
func parseField(f reflect.StructField, index int) field {
	x := field{
		name: f.Tag.Get("yaml"), index: index,
		ref: f.Tag.Get("ref"), grant: f.Tag.Get("grant"), secret: f.Tag.Get("secret") == "true",
	}
	if to := f.Tag.Get("to"); to != "" {
		x.destinations = strings.Split(to, ",")
	}
	if key, values, ok := strings.Cut(f.Tag.Get("only"), "="); ok {
		x.onlyKey, x.onlyValues = key, strings.Split(values, "|")
	}
	for _, tag := range strings.Split(f.Tag.Get("jsonschema"), ",") {
		key, value, _ := strings.Cut(tag, "=")
		switch key {
		case "required":
			x.required = true
		case "enum":
			x.enum = append(x.enum, value)
		case "default":
			x.defaults = append(x.defaults, value)
		case "minimum":
			x.min = parseNumber(value)
		case "maximum":
			x.max = parseNumber(value)
		}
	}
	return x
}

// parseNumber parses a number of a tag; a mistake in a tag panics in the first test.
func parseNumber(text string) *float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic("config: a struct tag holds a number that is none: " + text)
	}
	return &n
}

// isAllowed reports whether the tag only allows the field in the struct v. A sibling without a value allows it; that
// is another problem.
func (f *field) isAllowed(v reflect.Value) bool {
	if f.onlyKey == "" {
		return true
	}
	for _, sibling := range fieldsOf(v.Type()) {
		if sibling.name == f.onlyKey {
			value := v.Field(sibling.index).String()
			return value == "" || slices.Contains(f.onlyValues, value)
		}
	}
	return false
}

// setDefaults sets every field of the struct v with a default to it, also in structs that v contains by value.
func setDefaults(v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		x := v.Field(f.index)
		if x.Kind() == reflect.Struct {
			setDefaults(x)
		}
		if len(f.defaults) == 0 {
			continue
		}
		switch x.Kind() {
		case reflect.String:
			x.SetString(f.defaults[0])
		case reflect.Bool:
			x.SetBool(f.defaults[0] == "true")
		case reflect.Slice:
			x.Set(reflect.ValueOf(slices.Clone(f.defaults)))
		case reflect.Float64:
			x.SetFloat(*parseNumber(f.defaults[0]))
		case reflect.Int64:
			d, _ := time.ParseDuration(f.defaults[0])
			x.SetInt(int64(d))
		case reflect.Int:
			x.SetInt(int64(*parseNumber(f.defaults[0])))
		}
	}
}

// newDefault returns a pointer to a new value of type t, with defaults if it is a struct.
func newDefault(t reflect.Type) reflect.Value {
	v := reflect.New(t)
	if t.Kind() == reflect.Struct {
		setDefaults(v.Elem())
	}
	return v
}
