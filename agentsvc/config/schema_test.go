package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"stoa/agentsvc/config/document"
)

var update = flag.Bool("update", false, "write schema.json, the tables of docs and the golden files again")

const (
	variable = `\$\{`
	days     = `[0-9]+(\.[0-9]+)?d`
	duration = `^(` + days + `)?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^` + days + `$|` + variable
)

// generateSchema returns the schema made from the structs and their doc comments.
func generateSchema(t *testing.T) []byte {
	t.Helper()
	r := newReflector(t)
	s := r.Reflect(&Config{})
	s.Version, s.ID = "http://json-schema.org/draft-07/schema#", "urn:stoa:configuration:2"
	s.Title = "Stoa configuration"
	s.Description = "The agents of a Stoa server or of one of its apps: their models, tools, storage and limits."
	s.AdditionalProperties = jsonschema.FalseSchema
	for _, d := range s.Definitions {
		allowVariables(d)
		allowOff(d)
	}
	allowVariables(s)
	src, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	src = bytes.ReplaceAll(src, []byte(`"$defs"`), []byte(`"definitions"`))
	return append(bytes.ReplaceAll(src, []byte(`"#/$defs/`), []byte(`"#/definitions/`)), '\n')
}

func newReflector(t *testing.T) *jsonschema.Reflector {
	t.Helper()
	r := &jsonschema.Reflector{
		FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true, ExpandedStruct: true,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			if t == reflect.TypeFor[time.Duration]() {
				return &jsonschema.Schema{Type: "string", Pattern: duration}
			}
			return nil
		},
	}
	if err := r.AddGoComments("stoa/agentsvc/config", ".", jsonschema.WithFullComment()); err != nil {
		t.Fatal(err)
	}
	for key, text := range r.CommentMap {
		r.CommentMap[key] = strings.Join(strings.Fields(text), " ")
	}
	useKeyNames(r.CommentMap, reflect.TypeFor[Config](), map[reflect.Type]bool{})
	return r
}

// useKeyNames makes the comments of fields begin with the key of the document instead of the Go name.
func useKeyNames(comments map[string]string, t reflect.Type, seen map[reflect.Type]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Map || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return
	}
	seen[t] = true
	for _, f := range document.FieldsOf(t) {
		field := t.Field(f.Index)
		key := t.PkgPath() + "." + t.Name() + "." + field.Name
		if remainder, ok := strings.CutPrefix(comments[key], field.Name+" "); ok {
			comments[key] = "`" + f.Name + "` " + remainder
		}
		useKeyNames(comments, field.Type, seen)
	}
}

// allowOff makes the keys that a block needs optional where it is turned off.
func allowOff(s *jsonschema.Schema) {
	if _, ok := s.Properties.Get("enabled"); ok && len(s.Required) > 0 {
		off := jsonschema.NewProperties()
		off.Set("enabled", &jsonschema.Schema{Const: false})
		s.If = &jsonschema.Schema{Properties: off, Required: []string{"enabled"}}
		s.Else = &jsonschema.Schema{Required: s.Required}
		s.Required = nil
	}
}

// allowVariables allows ${NAME} in place of every value that is not text, and of every enum value.
func allowVariables(s *jsonschema.Schema) {
	for pair := s.Properties.Oldest(); pair != nil; pair = pair.Next() {
		value := pair.Value
		if value.Items != nil {
			value = value.Items
		}
		switch {
		case pair.Key == "version" && len(value.Enum) > 0:
			value.Type, value.Enum = "", []any{2, "2"}
		case len(value.Enum) > 0:
			value.AnyOf = []*jsonschema.Schema{{Enum: value.Enum}, {Pattern: variable}}
			value.Enum = nil
		case value.Type == "integer", value.Type == "number", value.Type == "boolean":
			value.Extras = map[string]any{"type": []string{value.Type, "string"}}
			value.Type, value.Pattern = "", variable
		}
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	want := generateSchema(t)
	if *update {
		if err := os.WriteFile("schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(want), string(Schema())); diff != "" {
		t.Errorf("schema.json is stale; run go generate (-want +got):\n%s", diff)
	}
}

// TestSchemaAccepts checks that the examples load and are valid under the schema.
func TestSchemaAccepts(t *testing.T) {
	t.Parallel()
	schema := compileSchema(t)
	files, _ := filepath.Glob("testdata/valid/*.yaml")
	examples, _ := filepath.Glob("../../examples/*.yaml")
	if len(files) < 3 {
		t.Fatalf("only %d files in testdata/valid", len(files))
	}
	for _, file := range append(files, examples...) {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := document.Decode(src)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if err := schema.Validate(toJSON(t, doc)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestSchemaAgrees gives the schema and Parse the same wrong documents: both must refuse them.
func TestSchemaAgrees(t *testing.T) {
	t.Parallel()
	schema := compileSchema(t)
	for name, src := range map[string]string{
		"unknown key":        "llm: {}",
		"unknown nested key": "agents: {a: {instructions: x}}",
		"not a list":         "agents: {a: {tools: x}}",
		"not a mapping":      "llms: [a]",
		"enum":               "agents: {a: {visibility: hidden}}",
		"enum in list":       "agents: {a: {reasoning: {termination_conditions: [never]}}}",
		"too small":          "server: {port: -1}",
		"too large":          "llms: {default: {temperature: 2.1}}",
		"no number":          "server: {port: http}",
		"no whole number":    "server: {port: 80.5}",
		"no boolean":         "agents: {a: {streaming: maybe}}",
		"no duration":        "llms: {default: {provider: scripted, script: [{then: [{pause: 5}]}]}}",
		"bad duration":       "llms: {default: {provider: scripted, script: [{then: [{pause: soon}]}]}}",
		"too long":           "storage: {retention: {tasks: 30days}}",
		"missing in a block": "agents: {a: {notifications: [{id: x}]}}",
		"missing":            "llms: {default: {provider: scripted, script: [{reply: message}]}}",
		"version":            "version: 3",
		"list":               "[]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var doc any
			if err := yaml.Unmarshal([]byte(src), &doc); err != nil {
				t.Fatal(err)
			}
			if schema.Validate(toJSON(t, doc)) == nil {
				t.Error("the schema accepts it")
			}
			if _, err := Parse([]byte(src), Options{}); err == nil {
				t.Error("Parse accepts it")
			}
		})
	}
}

func TestSchemaHead(t *testing.T) {
	t.Parallel()
	var head map[string]any
	if err := json.Unmarshal(Schema(), &head); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"$id", "$schema", "title", "description", "type", "properties"} {
		if head[key] == nil {
			t.Errorf("no %s", key)
		}
	}
	if head["type"] != "object" {
		t.Errorf("type is %v", head["type"])
	}
	properties, _ := head["properties"].(map[string]any)
	for _, f := range document.FieldsOf(reflect.TypeFor[Config]()) {
		if properties[f.Name] == nil {
			t.Errorf("no property %s", f.Name)
		}
	}
}

func compileSchema(t *testing.T) *validator.Schema {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func toJSON(t *testing.T, doc any) any {
	t.Helper()
	src, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	x, err := validator.UnmarshalJSON(bytes.NewReader(src))
	if err != nil {
		t.Fatal(err)
	}
	return x
}
