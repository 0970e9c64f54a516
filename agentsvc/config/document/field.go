package document

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"stoa/agentsvc/duration"
)

// Field is what the tags of a struct field define for the key of a document.
//
//	yaml:"name"            its key
//	jsonschema:"..."       required, enum, minimum, maximum, default: as in the schema made from them
//	only:"type=mcp|x"      allowed only if the sibling key has one of these values
//	ref:"llms"             its value names an entry of this top-level key
//	grant:"filesystem"     a host power: a tenant needs this grant
//	secret:"true"          never shown
//	acts:"always"          acts also if the struct has enabled: false
//	to:"url"               the sibling fields that decide where its secrets are sent; a mapping or list of secrets
//	                       names itself, since one entry may decide where the others are sent
type Field struct {
	Name         string
	Index        int // of the struct field
	Required     bool
	Enum         []string
	Min, Max     *float64 // nil = no bound
	Defaults     []string // several for a list
	OnlyKey      string
	OnlyValues   []string
	Ref          string
	Grant        string
	Secret       bool
	ActsAlways   bool
	Destinations []string // from the tag to
}

// durationType distinguishes durations from other int64 values.
var durationType = reflect.TypeFor[time.Duration]()

// fieldCache keeps the parsed tags by type, since parsing them is slow and types never change.
var fieldCache sync.Map // reflect.Type to []Field

// FieldsOf returns the exported fields of a struct type in their order.
func FieldsOf(t reflect.Type) []Field {
	if known, ok := fieldCache.Load(t); ok {
		return known.([]Field)
	}
	var fields []Field
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() {
			fields = append(fields, parseField(f, i))
		}
	}
	fieldCache.Store(t, fields)
	return fields
}

// parseField parses the tags of a struct field.
func parseField(f reflect.StructField, index int) Field {
	x := Field{
		Name: f.Tag.Get("yaml"), Index: index,
		Ref: f.Tag.Get("ref"), Grant: f.Tag.Get("grant"), Secret: f.Tag.Get("secret") == "true",
		ActsAlways: f.Tag.Get("acts") == "always",
	}
	if to := f.Tag.Get("to"); to != "" {
		x.Destinations = strings.Split(to, ",")
	}
	if key, values, ok := strings.Cut(f.Tag.Get("only"), "="); ok {
		x.OnlyKey, x.OnlyValues = key, strings.Split(values, "|")
	}
	for _, tag := range strings.Split(f.Tag.Get("jsonschema"), ",") {
		key, value, _ := strings.Cut(tag, "=")
		switch key {
		case "required":
			x.Required = true
		case "enum":
			x.Enum = append(x.Enum, value)
		case "default":
			x.Defaults = append(x.Defaults, value)
		case "minimum":
			x.Min = parseNumber(value)
		case "maximum":
			x.Max = parseNumber(value)
		}
	}
	return x
}

// parseNumber parses a number of a tag; a mistake in a tag panics in the first test.
func parseNumber(text string) *float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic("document: a struct tag holds a number that is none: " + text)
	}
	return &n
}

// IsAllowed reports whether the tag only allows the field in the struct v. A sibling without a value allows it; that
// is another problem.
func (f *Field) IsAllowed(v reflect.Value) bool {
	if f.OnlyKey == "" {
		return true
	}
	for _, sibling := range FieldsOf(v.Type()) {
		if sibling.Name == f.OnlyKey {
			value := v.Field(sibling.Index).String()
			return value == "" || slices.Contains(f.OnlyValues, value)
		}
	}
	return false
}

// setDefaults sets every field of the struct v with a default to it, also in structs that v contains by value.
func setDefaults(v reflect.Value) {
	for _, f := range FieldsOf(v.Type()) {
		x := v.Field(f.Index)
		if x.Kind() == reflect.Struct {
			setDefaults(x)
		}
		if len(f.Defaults) == 0 {
			continue
		}
		switch x.Kind() {
		case reflect.String:
			x.SetString(f.Defaults[0])
		case reflect.Bool:
			x.SetBool(f.Defaults[0] == "true")
		case reflect.Slice:
			x.Set(reflect.ValueOf(slices.Clone(f.Defaults)))
		case reflect.Float64:
			x.SetFloat(*parseNumber(f.Defaults[0]))
		case reflect.Int64:
			d, _ := duration.Parse(f.Defaults[0])
			x.SetInt(int64(d))
		case reflect.Int:
			x.SetInt(int64(*parseNumber(f.Defaults[0])))
		}
	}
}

// New returns a new T with its defaults.
func New[T any]() *T { return NewDefault(reflect.TypeFor[T]()).Interface().(*T) }

// NewDefault returns a pointer to a new value of type t, with defaults if it is a struct.
func NewDefault(t reflect.Type) reflect.Value {
	v := reflect.New(t)
	if t.Kind() == reflect.Struct {
		setDefaults(v.Elem())
	}
	return v
}
