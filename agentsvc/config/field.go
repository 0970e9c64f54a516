package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// field is what the tags of a struct's field say about the key of a document.
//
//	yaml:"name"            its key
//	jsonschema:"..."       required, enum, minimum, maximum, default: as in the schema made from them
//	only:"type=mcp|x"      it may stand only where its sibling has one of these values
//	ref:"llms"             its value names an entry of this top-level key
//	grant:"filesystem"     a host power: an app needs this grant
//	secret:"true"          never shown
//	to:"url"               its secrets go where these fields beside it say; a mapping or list of secrets names itself, for one
//	                       entry may say where the others go
type field struct {
	name         string
	index        int
	required     bool
	enum         []string
	min, max     *float64
	defaults     []string
	onlyKey      string
	onlyValues   []string
	ref          string
	grant        string
	secret       bool
	destinations []string
}

var durationType = reflect.TypeFor[time.Duration]()

var fieldCache sync.Map // reflect.Type to []field

// fieldsOf returns the fields of a struct type in their order.
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

func parseNumber(text string) *float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic("config: a struct tag holds a number that is none: " + text)
	}
	return &n
}

// isAllowed reports whether the field may stand in the struct v.
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

// setDefaults gives every field of the struct v its default, also in the structs it holds by value.
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

// newDefault returns a new value of type t, with defaults if it is a struct.
func newDefault(t reflect.Type) reflect.Value {
	v := reflect.New(t)
	if t.Kind() == reflect.Struct {
		setDefaults(v.Elem())
	}
	return v
}
