package gemini_test

import (
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/gemini"
	"stoa/agentsvc/llm/llmtest"
)

// TestOutputFormat checks that a format is sent as a response schema where the model has one and no functions are
// declared, else in the system prompt.
func TestOutputFormat(t *testing.T) {
	t.Parallel()
	native := `{"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema":
		{"type": "object", "required": ["city"], "additionalProperties": false, "properties": {"city": {"type": "string"}}}},
		"systemInstruction": {"role": "user", "parts": [{"text": "Be kind."}]}}`
	prompt := `{"generationConfig": {}, "systemInstruction": {"role": "user", "parts": [{"text": "Be kind.\n\nAnswer as JSON with a city."}]}}`
	for _, tt := range []struct {
		model string
		tools []agentsvc.ToolSpec
		want  string
	}{
		{"", nil, native}, {"gemini-3-flash", nil, native}, {"", []agentsvc.ToolSpec{{Name: "get", Parameters: []byte(`{"type": "object"}`)}}, prompt}, {"gemma-3-27b-it", nil, prompt},
	} {
		got := llmtest.SendFormat(t, func(url string) llm.Provider { return newProvider(t, gemini.Options{BaseURL: url, Model: tt.model}) },
			llmtest.CityFormat, tt.tools, "generationConfig", "systemInstruction")
		t.Log(tt.model, tt.tools)
		llmtest.RequireSameJSON(t, tt.want, []byte(got))
	}
}

// TestOutputFormatRefused checks the error for a schema that the API does not take.
func TestOutputFormatRefused(t *testing.T) {
	t.Parallel()
	for _, message := range []string{
		"Invalid JSON payload received. Unknown name secret at 'generation_config.response_json_schema'",
		"The specified schema produces a constraint that has too many states for serving.",
		"Function calling with a response mime type: 'application/json' is unsupported",
	} {
		llmtest.RequireFormatRefusal(t, func(url string) llm.Provider { return newProvider(t, gemini.Options{BaseURL: url}) },
			400, `{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"`+message+`"}}`, llm.ReasonFormatRefused)
	}
}
