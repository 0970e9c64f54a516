package anthropic_test

import (
	"encoding/json"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/anthropic"
	"stoa/agentsvc/llm/llmtest"
)

// TestOutputFormat checks that a format is sent in the API's own mode where the model has one and the schema can be
// expressed, else in the system prompt.
func TestOutputFormat(t *testing.T) {
	t.Parallel()
	schema := func(text string) *llm.OutputFormat {
		f := *llmtest.CityFormat
		f.Schema = nil
		if err := json.Unmarshal([]byte(text), &f.Schema); err != nil {
			t.Fatal(err)
		}
		return &f
	}
	system := func(text string) string {
		return `"system": [{"type": "text", "text": "` + text + `", "cache_control": {"type": "ephemeral"}}]`
	}
	native := func(schema string) string {
		return `{"output_config": {"format": {"type": "json_schema", "schema": ` + schema + `}}, ` + system("Be kind.") + `}`
	}
	prompt := `{` + system(`Be kind.\n\nAnswer as JSON with a city.`) + `}`
	city := `{"type": "object", "required": ["city"], "additionalProperties": false, "properties": {"city": {"type": "string"}}}`
	for _, tt := range []struct {
		name, model string
		format      *llm.OutputFormat
		want        string
	}{
		{"default model", "", llmtest.CityFormat, native(city)},
		{"gateway", "us.anthropic.claude-opus-4-6-v1", llmtest.CityFormat, native(city)},
		{"a model without version", "claude-mythos-preview", llmtest.CityFormat, native(city)},
		{"older model", "claude-sonnet-4-20250514", llmtest.CityFormat, prompt},
		{"another vendor's model", "deepseek-chat", llmtest.CityFormat, prompt},
		{"bounds are dropped, objects closed", "", schema(`{"$schema": "x", "type": "object", "properties": {
			"n": {"type": "integer", "minimum": 1}, "s": {"type": ["string", "null"], "maxLength": 3}, "e": {"type": ["string", "null"], "enum": ["a", null]},
			"l": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/p"}}, "o": {"oneOf": [{"type": "string"}, {"const": 1}]}},
			"$defs": {"p": {"type": "object", "description": "d", "properties": {"x": {"type": "number"}}}}}`),
			native(`{"type": "object", "additionalProperties": false, "properties": {
			"n": {"type": "integer"}, "s": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "e": {"enum": ["a", null]},
			"l": {"type": "array", "items": {"$ref": "#/$defs/p"}}, "o": {"anyOf": [{"type": "string"}, {"const": 1}]}},
			"$defs": {"p": {"type": "object", "description": "d", "additionalProperties": false, "properties": {"x": {"type": "number"}}}}}`)},
		{"any properties", "", schema(`{"type": "object", "additionalProperties": {"type": "string"}}`), prompt},
		{"no properties", "", schema(`{"type": "object", "properties": {"a": {"type": "object"}}}`), prompt},
		{"any value", "", schema(`{"type": "object", "properties": {"a": {}}}`), prompt},
		{"any items", "", schema(`{"type": "object", "properties": {"a": {"type": "array"}}}`), prompt},
		{"boolean schema", "", schema(`{"type": "object", "properties": {"a": true}}`), prompt},
		{"another keyword", "", schema(`{"type": "object", "properties": {"a": {"type": "string"}}, "not": {"required": ["b"]}}`), prompt},
		{"a list", "", schema(`{"type": "array", "items": {"type": "string"}}`), prompt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := llmtest.SendFormat(t, func(url string) llm.Provider {
				return newProvider(t, anthropic.Options{BaseURL: url, Model: tt.model})
			}, tt.format, []agentsvc.ToolSpec{{Name: "get", Parameters: []byte(`{"type": "object"}`)}}, "output_config", "system")
			llmtest.RequireSameJSON(t, tt.want, []byte(got))
		})
	}
}

// TestOutputFormatRefused checks the error for a schema that the API does not take.
func TestOutputFormatRefused(t *testing.T) {
	t.Parallel()
	llmtest.RequireFormatRefusal(t, func(url string) llm.Provider { return newProvider(t, anthropic.Options{BaseURL: url}) },
		400, `{"type":"error","error":{"type":"invalid_request_error","message":"output_config.format.schema: secret"}}`, llm.ReasonFormatRefused)
}
