package openai_test

import (
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/llmtest"
	"stoa/agentsvc/llm/openai"
)

const citySchema = `{"type": "object", "required": ["city"], "additionalProperties": false, "properties": {"city": {"type": "string"}}}`

// TestOutputFormat checks that a format is sent in the protocol's own mode where the model has one, else in the system
// prompt.
func TestOutputFormat(t *testing.T) {
	t.Parallel()
	user := `{"role": "user", "content": "where"}`
	native := `{"response_format": {"type": "json_schema", "json_schema": {"name": "the_place", "strict": true, "schema": ` + citySchema + `}},
		"messages": [{"role": "system", "content": "Be kind."}, ` + user + `]}`
	prompt := `{"messages": [{"role": "system", "content": "Be kind.\n\nAnswer as JSON with a city."}, ` + user + `]}`
	list := &llm.OutputFormat{Prompt: llmtest.CityFormat.Prompt, Schema: map[string]any{"type": "array"}}
	for _, tt := range []struct {
		model  string
		format *llm.OutputFormat
		want   string
	}{
		{"gpt-4o", llmtest.CityFormat, native}, {"gpt-5.1-mini", llmtest.CityFormat, native}, {"openai/o4-mini", llmtest.CityFormat, native},
		{"gpt-4-turbo", llmtest.CityFormat, prompt}, {"gpt-3.5-turbo", llmtest.CityFormat, prompt}, {"o1-mini", llmtest.CityFormat, prompt},
		{"llama-3.3-70b", llmtest.CityFormat, prompt}, {"gpt-4o", list, prompt},
	} {
		got := llmtest.SendFormat(t, func(url string) llm.Provider {
			return newProvider(t, openai.Options{BaseURL: url + "/v1", Model: tt.model})
		}, tt.format, []agentsvc.ToolSpec{{Name: "get", Parameters: []byte(`{"type": "object"}`)}}, "response_format", "messages")
		t.Log(tt.model)
		llmtest.RequireSameJSON(t, tt.want, []byte(got))
	}
	got := llmtest.SendFormat(t, func(url string) llm.Provider {
		return newProvider(t, openai.Options{BaseURL: url + "/v1", Responses: true})
	}, llmtest.CityFormat, nil, "text", "instructions")
	llmtest.RequireSameJSON(t, `{"instructions": "Be kind.", "text": {"format": {"type": "json_schema", "name": "the_place", "strict": true, "schema": `+citySchema+`}}}`, []byte(got))
}

// TestOutputFormatRefused checks the error for a schema that the server does not take, in the forms of both protocols.
func TestOutputFormatRefused(t *testing.T) {
	t.Parallel()
	reason := "it refuses the schema of structured_output: simplify the schema, or leave strict out"
	for body, responses := range map[string]bool{
		`{"error":{"message":"Invalid schema for response_format 'x': secret","param":"response_format","code":null}}`:                      false,
		`{"error":{"message":"Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.","param":null}}`: false,
		`{"error":{"message":"secret","param":"text.format.schema","code":"invalid_json_schema"}}`:                                          true,
	} {
		llmtest.RequireFormatRefusal(t, func(url string) llm.Provider {
			return newProvider(t, openai.Options{BaseURL: url + "/v1", Responses: responses})
		}, 400, body, reason)
	}
}
