package ollama_test

import (
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/llmtest"
	"stoa/agentsvc/llm/ollama"
)

// TestOutputFormat checks that a format is sent as such unless the model may call tools, which it could not then. The
// system prompt describes it in both cases.
func TestOutputFormat(t *testing.T) {
	t.Parallel()
	messages := `"messages": [{"role": "system", "content": "Be kind.\n\nAnswer as JSON with a city."}, {"role": "user", "content": "where"}]`
	native := `{"format": {"type": "object", "required": ["city"], "additionalProperties": false, "properties": {"city": {"type": "string"}}}, ` + messages + `}`
	for _, tt := range []struct {
		tools []agentsvc.ToolSpec
		want  string
	}{{nil, native}, {[]agentsvc.ToolSpec{{Name: "get", Parameters: []byte(`{"type": "object"}`)}}, `{` + messages + `}`}} {
		got := llmtest.SendFormat(t, func(url string) llm.Provider { return newProvider(t, ollama.Options{BaseURL: url}) },
			llmtest.CityFormat, tt.tools, "format", "messages")
		llmtest.RequireSameJSON(t, tt.want, []byte(got))
	}
}

// TestOutputFormatRefused checks the error for a schema that the server does not take, before and within the answer.
func TestOutputFormatRefused(t *testing.T) {
	t.Parallel()
	newProviderAt := func(url string) llm.Provider { return newProvider(t, ollama.Options{BaseURL: url}) }
	llmtest.RequireFormatRefusal(t, newProviderAt, 500, `{"error":"invalid JSON schema in format: secret"}`, llm.ReasonFormatRefused)
	llmtest.RequireFormatRefusal(t, newProviderAt, 400, `{"error":"invalid format: secret"}`, llm.ReasonFormatRefused)
	llmtest.RequireFormatRefusal(t, newProviderAt, 200, `{"error":"failed to load model vocabulary required for format"}`, llm.ReasonFormatRefused)
}
