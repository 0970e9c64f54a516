package tool_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"stoa/agentsvc/tool"
)

// TestSchemaWork checks that the cost of a validation is bounded, for costly patterns and for parts that refer to each
// other, and that a large usual value fits a usual schema.
func TestSchemaWork(t *testing.T) {
	t.Parallel()
	const costs = "it takes more work to check than is allowed"
	letters := func(n int) string { return strings.Repeat("abcde", n/5) }
	defs := ""
	for i := range 40 {
		defs += fmt.Sprintf(`"d%d": {"allOf": [{"$ref": "#/$defs/d%d"}, {"$ref": "#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	var items []string
	for i := range 5000 {
		items = append(items, fmt.Sprintf(`{"id": "a-%d", "name": "item number %d", "n": %d}`, i, i, i))
	}
	for name, c := range map[string]struct{ schema, value, want string }{
		"pattern":       {`{"pattern": "(a|b|c|d|e){300,600}Z"}`, `"` + letters(1<<20) + `"`, costs},
		"many patterns": {`{"items": {"pattern": "[a-e]{200,300}Z"}}`, `[` + strings.Repeat(`"`+letters(1000)+`",`, 300) + `""]`, costs},
		"not a pattern": {`{"not": {"pattern": "(a|b|c|d|e){300,600}Z"}}`, `"` + letters(1<<20) + `"`, costs},
		"names":         {`{"patternProperties": {"(a|b|c|d|e){300,600}Z": true}}`, `{"` + letters(1<<20) + `": 1}`, costs},
		"references":    {`{"$defs": {` + defs + `"d40": {"type": "integer"}}, "$ref": "#/$defs/d0"}`, `1`, costs},
		"levels": {`{"$defs": {"a": {"allOf": [{"properties": {"x": {"$ref": "#/$defs/a"}}}, {"properties": {"x": {"$ref": "#/$defs/a"}}}]}}, "$ref": "#/$defs/a"}`,
			strings.Repeat(`{"x":`, 60) + "1" + strings.Repeat("}", 60), costs},
		"levels of an old draft": {`{"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"allOf": [{"properties": {"x": {"$ref": "#/definitions/a"}}}, {"properties": {"x": {"$ref": "#/definitions/a"}}}]}}, "$ref": "#/definitions/a"}`,
			strings.Repeat(`{"x":`, 60) + "1" + strings.Repeat("}", 60), costs},
		"many choices": {`{"items": {"anyOf": [` + strings.Repeat(`{"type": "string"},`, 5000) + `{"type": "integer"}]}}`, `[` + strings.Repeat("1,", 20_000) + `1]`, costs},
		"usual": {`{"type": "array", "items": {"type": "object", "properties": {"id": {"type": "string", "pattern": "^[a-z]-[0-9]+$"}, "name": {"type": "string", "minLength": 1}, "n": {"type": "integer"}},
			"required": ["id", "name", "n"], "additionalProperties": false}}`, "[" + strings.Join(items, ",") + "]", ""},
		"a large number":      {`{"items": {"type": "integer"}}`, `[1e999999]`, "the number 1e999999 is out of range"},
		"a small number":      {`{"items": {"minimum": 0}}`, `[1e-999999]`, "the number 1e-999999 is out of range"},
		"a long number":       {`{"multipleOf": 7}`, strings.Repeat("7", 1000), "is out of range"},
		"a usual number":      {`{"items": {"multipleOf": 0.5}}`, `[1e300, -2.5e-1, 123456789012345678901234567890]`, "multipleOf"},
		"many values":         {`{}`, `[` + strings.Repeat("{},", 100_000) + `{}]`, "more than 100000 values"},
		"as many as may come": {`{}`, `[` + strings.Repeat("0,", 99_998) + `0]`, ""},
		"complaint":           {`{"type": "object", "properties": {"id": {"pattern": "^a$"}}}`, `{"id": "b"}`, "does not match pattern '^a$'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := tool.NewSchema("", json.RawMessage(c.schema))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := s.ValidateJSON(t.Context(), json.RawMessage(c.value)); fmt.Sprint(err) != "<nil>" != (c.want != "") || !strings.Contains(fmt.Sprint(err), c.want) {
					t.Errorf("%.300v, want %s", err, c.want)
				}
			}
		})
	}
	for name, schema := range map[string]string{
		"a large number":  `{"minimum": 1e999999}`,
		"a large pattern": `{"pattern": "(ab){1000}c{500}"}`,
		"large together":  `{"anyOf": [{"pattern": "a{1000}"}, {"pattern": "b{1000}"}, {"pattern": "c{1000}"}, {"pattern": "d{1000}"}, {"pattern": "e{1000}"}, {"pattern": "f{1000}"}]}`,
	} {
		if _, err := tool.NewSchema("", json.RawMessage(schema)); err == nil {
			t.Errorf("a schema with %s is taken", name)
		}
	}
}
