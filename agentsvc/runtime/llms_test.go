package runtime_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/llm/llmtest"
	"stoa/agentsvc/runtime"
	"stoa/tenancy/db/dbtest"
)

// newModelApp builds an app whose agent helper uses the model default of llms, and which may call private addresses.
func newModelApp(t *testing.T, llms string, o config.Options) *runtime.Runtime {
	t.Helper()
	src := "llms:\n" + llms + "\ntools: {calc: {type: function, handler: calculator}}\nagents: {helper: {tools: [calc]}}\n"
	tenant := runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, PrivateNetwork: true}
	return newAppWith(t, dbtest.NewSQLite(t), mustParse(t, src, o), tenant, slog.New(slog.DiscardHandler))
}

// TestModels calls a model of each provider and checks its settings in the request.
func TestModels(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, settings string
		path           string
		body           map[string]any
		model          string
	}{
		{"openai", "{provider: openai, api_key: KEY, base_url: URL/v1}", "/v1/chat/completions",
			map[string]any{"model": "gpt-4o", "temperature": 0.7, "max_tokens": nil}, "gpt-4o"},
		{"openai, responses", "{provider: openai, api: responses, api_key: KEY, base_url: URL/v1, max_tokens: 50, temperature: 0}", "/v1/responses",
			map[string]any{"model": "gpt-4o", "temperature": 0.0, "max_output_tokens": 50.0}, "gpt-4o"},
		{"openai by its model", "{model: o3-mini, api_key: KEY, base_url: URL/v1, max_tokens: 50}", "/v1/chat/completions",
			map[string]any{"model": "o3-mini", "temperature": nil, "max_completion_tokens": 50.0, "max_tokens": nil}, "o3-mini"},
		{"anthropic", "{provider: anthropic, api_key: KEY, base_url: URL}", "/v1/messages",
			map[string]any{"model": "claude-haiku-4-5", "temperature": 0.7, "max_tokens": 8192.0, "thinking": nil}, "claude-haiku-4-5"},
		{"anthropic, thinking", "{model: claude-sonnet-4-5, api_key: KEY, base_url: URL, thinking: {enabled: true, budget_tokens: 2048}}", "/v1/messages",
			map[string]any{"temperature": nil, "max_tokens": 10240.0, "thinking": map[string]any{"type": "enabled", "budget_tokens": 2048.0}}, "claude-sonnet-4-5"},
		{"anthropic, thinking off", "{model: claude-sonnet-4-5, api_key: KEY, base_url: URL, max_tokens: 9, thinking: {enabled: false}}", "/v1/messages",
			map[string]any{"temperature": 0.7, "max_tokens": 9.0, "thinking": nil}, "claude-sonnet-4-5"},
		{"gemini", "{provider: gemini, api_key: KEY, base_url: URL, max_tokens: 9, temperature: 2}", "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
			map[string]any{"generationConfig": map[string]any{"temperature": 2.0, "maxOutputTokens": 9.0}}, "gemini-2.5-pro"},
		{"ollama", "{provider: ollama, base_url: URL, max_tokens: 9}", "/api/chat",
			map[string]any{"model": "qwen3", "options": map[string]any{"temperature": 0.7, "num_predict": 9.0}}, "qwen3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv := llmtest.NewServer(t, []llmtest.Reply{{UserText: "hi", Pieces: []string{"Hello."}, Usage: agentsvc.Usage{InputTokens: 7, OutputTokens: 3}}})
			a := newModelApp(t, "  default: "+strings.NewReplacer("KEY", llmtest.Key, "URL", srv.URL).Replace(c.settings), config.Options{})
			outcome, _ := runTurn(t, a, newSubmission("hi"))
			if outcome.Status.State != agentsvc.Completed || outcome.Status.Message.Text() != "Hello." {
				t.Fatalf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
			}
			if got := outcome.Status.Message.Metadata["model"]; got != c.model {
				t.Errorf("the model is %v, want %s", got, c.model)
			}
			sent := srv.Requests()[0]
			var body map[string]any
			if err := json.Unmarshal(sent.Body, &body); err != nil {
				t.Fatal(err)
			}
			got := map[string]any{}
			for key := range maps.Keys(c.body) {
				got[key] = body[key]
			}
			if diff := cmp.Diff(c.body, got); diff != "" || sent.URL != c.path {
				t.Errorf("asked %s, want %s; body -want +got:\n%s", sent.URL, c.path, diff)
			}
		})
	}
}

// TestStructuredOutputMode checks that a fallback of another kind gets the format in its own way: the first model in the
// vendor's mode, the second in the system prompt.
func TestStructuredOutputMode(t *testing.T) {
	t.Parallel()
	srv := llmtest.NewServer(t, []llmtest.Reply{{UserText: "hi", Pieces: []string{`{"city": "Rome"}`}}})
	src := fmt.Sprintf(`llms:
  default: {provider: openai, api_key: wrong, base_url: %[1]s/v1, fallbacks: [other]}
  other: {provider: openai, api_key: %[2]s, base_url: %[1]s/v1, model: llama-3.3-70b}
agents:
  helper:
    instruction: Where?
    structured_output: {name: place, schema: {type: object, properties: {city: {type: string}}}}
`, srv.URL, llmtest.Key)
	tenant := runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, PrivateNetwork: true}
	a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, src, config.Options{}), tenant, slog.New(slog.DiscardHandler))
	outcome, _ := runTurn(t, a, newSubmission("hi"))
	if outcome.Status.State != agentsvc.Completed || outcome.Status.Message.Text() != `{"city": "Rome"}` {
		t.Fatalf("%s %q", outcome.Status.State, outcome.Status.Message.Text())
	}
	var got []string
	for _, r := range srv.Requests() {
		var body struct {
			ResponseFormat json.RawMessage `json:"response_format"`
			Messages       []struct{ Content string }
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		got = append(got, string(body.ResponseFormat)+" "+body.Messages[0].Content)
	}
	schema := `{"properties":{"city":{"type":"string"}},"type":"object"}`
	want := []string{
		`{"type":"json_schema","json_schema":{"name":"place","schema":` + schema + `,"strict":false}} Where?`,
		" Where?\n\nGive your final answer as one JSON value, \"place\", that fits this JSON Schema, without any words around it:\n" + schema,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestFallbacks checks the fallbacks of a model and their own, each called once.
func TestFallbacks(t *testing.T) {
	t.Parallel()
	srv := llmtest.NewServer(t, []llmtest.Reply{{UserText: "hi", Pieces: []string{"Hello."}}})
	down := "{provider: openai, api_key: wrong, base_url: " + srv.URL + "/v1, model: %s, fallbacks: [%s]}\n"
	llms := "  default: " + fmt.Sprintf(down, "first", "second, last") + "  second: " + fmt.Sprintf(down, "second", "third") +
		"  third: " + fmt.Sprintf(down, "third", "last") + "  last: {provider: ollama, model: last, base_url: " + srv.URL + "}\n"
	a := newModelApp(t, llms, config.Options{})
	outcome, _ := runTurn(t, a, newSubmission("hi"))
	if outcome.Status.State != agentsvc.Completed || outcome.Status.Message.Metadata["model"] != "last" {
		t.Errorf("%s %+v", outcome.Status.State, outcome.Status.Message)
	}
	var requested []string
	for _, r := range srv.Requests() {
		var body struct{ Model string }
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		requested = append(requested, body.Model)
	}
	if want := []string{"first", "second", "third", "last"}; !slices.Equal(requested, want) {
		t.Errorf("asked %v, want %v", requested, want)
	}
}

// TestRetries checks that a model is retried before its fallback is called.
func TestRetries(t *testing.T) {
	t.Parallel()
	srv := llmtest.NewServer(t, []llmtest.Reply{{UserText: "hi", Status: 503}})
	a := newModelApp(t, "  default: {provider: ollama, base_url: "+srv.URL+", fallbacks: [other]}\n  other: {provider: scripted}\n", config.Options{})
	outcome, _ := runTurn(t, a, newSubmission("hi"))
	if tries := len(srv.Requests()); outcome.Status.State != agentsvc.Completed || tries != 3 {
		t.Errorf("%s after %d tries, want three and the fallback's answer", outcome.Status.State, tries)
	}
}

// TestFileRefused sends a file that the model does not accept: the caller gets the error before the model is called.
func TestFileRefused(t *testing.T) {
	t.Parallel()
	srv := llmtest.NewServer(t, nil)
	a := newModelApp(t, "  default: {provider: anthropic, api_key: k, base_url: "+srv.URL+"}", config.Options{})
	sub := newSubmission("look")
	sub.Message.Parts = append(sub.Message.Parts, agentsvc.Part{File: &agentsvc.File{Name: "a.png", MediaType: "image/png", URI: "https://example.com/a.png"}})
	outcome, _ := runTurn(t, a, sub)
	want := `file "a.png": is an address; this model takes files by value only, as base64`
	if outcome.Status.State != agentsvc.Failed || outcome.Status.Message.Text() != want || len(srv.Requests()) != 0 {
		t.Errorf("%s %q after %d requests", outcome.Status.State, outcome.Status.Message.Text(), len(srv.Requests()))
	}
}

// TestMaxToolOutputLength checks that a result is cut to the configured number of characters.
func TestMaxToolOutputLength(t *testing.T) {
	t.Parallel()
	a := newModelApp(t, `  default:
    provider: scripted
    max_tool_output_length: 3
    script:
      - when: {tool_result: calc}
        then: [{say: "{{result}}"}]
      - then: [{call: {tool: calc, arguments: {expression: "111 * 1111"}}}]
`, config.Options{})
	outcome, _ := runTurn(t, a, newSubmission("go"))
	if got := outcome.Status.Message.Text(); got != "123\n[cut here: these are the first 3 of 6 characters]" {
		t.Errorf("the model read %q", got)
	}
}
