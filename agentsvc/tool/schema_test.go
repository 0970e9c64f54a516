package tool_test

import (
	"context"
	"encoding/json"
	"errors"
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
	// chain applies d20 to the value 8^20 times.
	chain := func(d20 string) string {
		defs := ""
		for i := range 20 {
			defs += fmt.Sprintf(`"d%d": {"allOf": [%s{"$ref": "#/$defs/d%d"}]},`, i, strings.Repeat(fmt.Sprintf(`{"$ref": "#/$defs/d%d"},`, i+1), 7), i+1)
		}
		return `{"$defs": {` + defs + `"d20": ` + d20 + `}, "$ref": "#/$defs/d0"}`
	}
	numbers := "[[" + strings.Repeat("1.5,", 15_000) + "1.5]]"
	for name, c := range map[string]struct{ schema, value, want string }{
		"a text, often":            {chain(`{"type": "string"}`), `"` + letters(400_000) + `"`, costs},
		"the length of a text":     {chain(`{"maxLength": 1000000}`), `"` + letters(400_000) + `"`, costs},
		"a nested constant, often": {chain(`{"const": ` + numbers + `}`), numbers, costs},
		"nested choices, often":    {chain(`{"enum": [1, ` + numbers + `]}`), numbers, costs},
		"nested items, often":      {chain(`{"uniqueItems": true}`), "[1," + numbers + "]", costs},
		"names of members, often":  {chain(`{"additionalProperties": true}`), `{"a": 1` + manyMembers(20_000) + `}`, costs},
		"a nested constant":        {`{"const": ` + numbers + `}`, numbers, ""},
		"as many integers as fit":  {`{"items": {"type": "integer", "minimum": 0}}`, `[` + strings.Repeat("0,", 99_998) + `0]`, ""},
		"unique texts":             {`{"uniqueItems": true, "items": {"type": "string", "maxLength": 10}}`, `[` + uniqueTexts(20_000) + `"last"]`, ""},
		"pattern":                  {`{"pattern": "(a|b|c|d|e){300,600}Z"}`, `"` + letters(1<<20) + `"`, costs},
		"many patterns":            {`{"items": {"pattern": "[a-e]{200,300}Z"}}`, `[` + strings.Repeat(`"`+letters(1000)+`",`, 300) + `""]`, costs},
		"not a pattern":            {`{"not": {"pattern": "(a|b|c|d|e){300,600}Z"}}`, `"` + letters(1<<20) + `"`, costs},
		"names":                    {`{"patternProperties": {"(a|b|c|d|e){300,600}Z": true}}`, `{"` + letters(1<<20) + `": 1}`, costs},
		"references":               {`{"$defs": {` + defs + `"d40": {"type": "integer"}}, "$ref": "#/$defs/d0"}`, `1`, costs},
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

// manyMembers returns n members of a JSON object, each after a comma.
func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `, "m%d": 1`, i)
	}
	return b.String()
}

// uniqueTexts returns n JSON texts, each before a comma.
func uniqueTexts(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"t%d",`, i)
	}
	return b.String()
}

// TestSchemaWorkEnds checks that a validation ends with its context, long before its budget.
func TestSchemaWorkEnds(t *testing.T) {
	t.Parallel()
	defs := ""
	for i := range 40 {
		defs += fmt.Sprintf(`"d%d": {"allOf": [{"$ref": "#/$defs/d%d"}, {"$ref": "#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	s, err := tool.NewSchema("", json.RawMessage(`{"$defs": {`+defs+`"d40": {"type": "string"}}, "$ref": "#/$defs/d0"}`))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ValidateJSON(ctx, json.RawMessage(`"a"`)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that the context has ended", err)
	}
}
