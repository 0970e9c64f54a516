package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/config/document"
)

const referenceFile = "../../docs/configuration.md"

// TestReference compares docs/configuration.md with the structs. Its hand-written part is in testdata.
func TestReference(t *testing.T) {
	t.Parallel()
	intro, err := os.ReadFile("testdata/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	r := &reference{comments: newReflector(t).CommentMap}
	r.WriteString(string(intro))
	r.writeTable("Top level", "", reflect.TypeFor[Config]())
	want := strings.TrimRight(r.String(), "\n") + "\n"
	if *update {
		if err := os.WriteFile(referenceFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/configuration.md is stale; run go generate (-want +got):\n%s", diff)
	}
}

// TestEveryFieldIsDocumented checks that every field has a comment for the schema and the reference.
func TestEveryFieldIsDocumented(t *testing.T) {
	t.Parallel()
	comments := newReflector(t).CommentMap
	for _, typ := range collectStructs(reflect.TypeFor[Config](), nil) {
		for _, f := range document.FieldsOf(typ) {
			name := typ.Name() + "." + typ.Field(f.Index).Name
			if f.Name == "" {
				t.Errorf("%s has no key", name)
			}
			if !strings.HasPrefix(comments["stoa/agentsvc/config."+name], "`"+f.Name+"` ") {
				t.Errorf("the comment of %s does not begin with its name: %q", name, comments["stoa/agentsvc/config."+name])
			}
		}
	}
}

func collectStructs(t reflect.Type, known []reflect.Type) []reflect.Type {
	t = elementType(t)
	if t.Kind() != reflect.Struct || slices.Contains(known, t) {
		return known
	}
	known = append(known, t)
	for _, f := range document.FieldsOf(t) {
		known = collectStructs(t.Field(f.Index).Type, known)
	}
	return known
}

// elementType returns the type inside all pointers, lists and maps of t.
func elementType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

// reference writes the tables of docs/configuration.md.
type reference struct {
	strings.Builder
	comments map[string]string
}

// writeTable writes the fields of t, which is at path, and then the tables of the structs below.
func (r *reference) writeTable(title, path string, t reflect.Type) {
	level := "###"
	if strings.Contains(strings.TrimSuffix(path, ".<name>"), ".") {
		level = "####"
	}
	fmt.Fprintf(r, "%s %s\n\n", level, title)
	if about := r.comments["stoa/agentsvc/config."+t.Name()]; path != "" {
		fmt.Fprintf(r, "%s\n\n", toSentence(about, t.Name()))
	}
	r.WriteString("| Field | Type | Default | Meaning |\n|---|---|---|---|\n")
	for _, f := range document.FieldsOf(t) {
		r.writeRow(path, t, f)
	}
	r.WriteString("\n")
	for _, f := range document.FieldsOf(t) {
		field := t.Field(f.Index).Type
		if child := elementType(field); child.Kind() == reflect.Struct {
			at := joinPath(path, f.Name)
			switch field.Kind() {
			case reflect.Map:
				at += ".<name>"
			case reflect.Slice:
				at += "[]"
			}
			r.writeTable("`"+at+"`", at, child)
		}
	}
}

func (r *reference) writeRow(path string, t reflect.Type, f document.Field) {
	field := t.Field(f.Index)
	fmt.Fprintf(r, "| `%s` | %s | %s | %s |\n", f.Name, typeName(field.Type), formatDefault(f), r.describeField(path, t, f))
}

func (r *reference) describeField(path string, t reflect.Type, f document.Field) string {
	field := t.Field(f.Index)
	meaning := toSentence(r.comments["stoa/agentsvc/config."+t.Name()+"."+field.Name], "`"+f.Name+"`")
	if len(f.Enum) > 0 {
		meaning += " One of `" + strings.Join(f.Enum, "`, `") + "`."
	}
	switch {
	case f.Min != nil && f.Max != nil:
		meaning += fmt.Sprintf(" From %s to %s.", formatNumber(*f.Min), formatNumber(*f.Max))
	case f.Min != nil && *f.Min > 0:
		meaning += fmt.Sprintf(" At least %s.", formatNumber(*f.Min))
	}
	if f.Ref != "" {
		meaning += fmt.Sprintf(" Names an entry of `%s`.", f.Ref)
	}
	if f.OnlyValues != nil {
		meaning += fmt.Sprintf(" Only where `%s` is `%s`.", f.OnlyKey, strings.Join(f.OnlyValues, "` or `"))
	}
	if f.Grant != "" {
		meaning += fmt.Sprintf(" An app needs the grant `%s`.", f.Grant)
	}
	if f.Secret {
		meaning += " Secret: shown as a mask."
	}
	return strings.ReplaceAll(meaning, "|", "\\|")
}

// toSentence returns a comment without the name it begins with: "Name is the login." becomes "The login."
func toSentence(comment, name string) string {
	remainder := strings.TrimPrefix(comment, name+" ")
	for _, verb := range []string{"is ", "are "} {
		remainder = strings.TrimPrefix(remainder, verb)
	}
	return strings.ToUpper(remainder[:1]) + remainder[1:]
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func typeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t.Kind() == reflect.Pointer:
		return typeName(t.Elem())
	}
	switch t.Kind() {
	case reflect.Struct:
		return "mapping"
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return "any mapping"
		}
		return "names to " + typeName(t.Elem()) + pluralSuffix(t.Elem())
	case reflect.Slice:
		return "list of " + typeName(t.Elem()) + pluralSuffix(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "whole number"
	case reflect.Float64:
		return "number"
	}
	return "text"
}

func pluralSuffix(t reflect.Type) string {
	return map[bool]string{true: "s"}[elementType(t).Kind() == reflect.Struct]
}

func formatDefault(f document.Field) string {
	switch {
	case f.Required:
		return "*needed*"
	case len(f.Defaults) == 0:
		return ""
	}
	return "`" + strings.Join(f.Defaults, "`, `") + "`"
}

// formatNumber returns n without an exponent.
func formatNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
