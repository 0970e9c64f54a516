package anthropic_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/anthropic"
	"stoa/agentsvc/llm/llmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newProvider(t *testing.T, opts anthropic.Options) *anthropic.Provider {
	t.Helper()
	if opts.HTTP == nil {
		opts.HTTP = llmtest.NewLocalClient(t)
	}
	if opts.APIKey == "" {
		opts.APIKey = llmtest.Key
	}
	p, err := anthropic.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSuite(t *testing.T) {
	hot := 0.7
	for name, opts := range map[string]anthropic.Options{"plain": {Temperature: &hot}, "thinking": {Temperature: &hot, Thinking: true}} {
		t.Run(name, func(t *testing.T) {
			llmtest.RunSuite(t, func(t *testing.T, script []llmtest.Reply) llmtest.Subject {
				srv := llmtest.NewServer(t, script)
				opts.BaseURL = srv.URL
				return llmtest.Subject{Provider: newProvider(t, opts), OpenRequests: srv.OpenRequests, ReportsRefusal: true}
			})
		})
	}
}

// sseEvent returns the server-sent event of data, which names its type.
func sseEvent(data string) string {
	kind := "content_block_delta"
	if _, after, ok := strings.Cut(data, `{"type":"`); ok {
		kind, _, _ = strings.Cut(after, `"`)
	}
	return "event: " + kind + "\ndata: " + data + "\n\n"
}

func TestHostileServers(t *testing.T) {
	llmtest.RunHostileSuite(t, llmtest.WireFormat{
		Provider: func(t *testing.T, base string, client *http.Client) llm.Provider {
			return newProvider(t, anthropic.Options{BaseURL: base, HTTP: client})
		},
		Begin: sseEvent(`{"type":"message_start","message":{"usage":{"input_tokens":1}}}`),
		Event: sseEvent,
		Text: func(text string) string {
			return sseEvent(fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`, text))
		},
		Call: func(n int, name, text string) string {
			return sseEvent(fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":"%d","name":%q,"input":{}}}`, n, n, name)) +
				sseEvent(fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%q}}`, n, text))
		},
		End:         sseEvent(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}`) + sseEvent(`{"type":"message_stop"}`),
		StreamError: sseEvent(`{"type":"error","error":{"type":"overloaded_error","message":"` + llmtest.Canary + `"}}`),
		Comment:     sseEvent(`{"type":"ping"}`),
	})
}

func TestNothingFromEnvironment(t *testing.T) {
	llmtest.RequireEnvironmentIgnored(t, []string{
		"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_PROFILE",
		"ANTHROPIC_FEDERATION_RULE_ID", "ANTHROPIC_ORGANIZATION_ID", "ANTHROPIC_IDENTITY_TOKEN", "ANTHROPIC_WORKSPACE_ID",
		"ANTHROPIC_SERVICE_ACCOUNT_ID", "ANTHROPIC_CONFIG_DIR", "ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE",
	}, http.StatusUnauthorized, func(url string) llm.Provider {
		p, err := anthropic.New(anthropic.Options{BaseURL: url, HTTP: llmtest.NewLocalClient(t)})
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}

// fullConversation is a conversation with everything that a message may hold.
var fullConversation = []agentsvc.Entry{
	{Message: &agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{
		{Text: "data "}, {Data: &agentsvc.Data{Value: map[string]any{"a": 1.0}}}, {Text: " "},
		{File: &agentsvc.File{MediaType: "image/PNG", Bytes: []byte("hi")}},
	}}},
	{Message: &agentsvc.Message{Role: agentsvc.RoleAgent, Parts: []agentsvc.Part{{Text: "I look"}}, ToolCalls: []agentsvc.ToolCall{
		{ID: "c1", Name: "get", Arguments: []byte(`{"q":1}`), Thought: `anthropic:[{"thinking":"hm","signature":"c2lnbmVk"},{"redacted":"xyz"}]`},
		{ID: "c2", Name: "get"},
	}}},
	{Result: &agentsvc.ToolResult{Call: "c1", Name: "get", Text: "found"}},
	{Result: &agentsvc.ToolResult{Call: "c2", Name: "get", Failed: true}},
	{Message: &agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{{Text: "go on"}}}},
}

func TestRequest(t *testing.T) {
	t.Parallel()
	srv := llmtest.NewServer(t, nil)
	p := newProvider(t, anthropic.Options{BaseURL: srv.URL, Model: "m", MaxTokens: 5000, Thinking: true, ThinkingBudget: 2000})
	for range p.Stream(t.Context(), llm.Request{
		System: "Be kind.", Conversation: fullConversation,
		Tools: []agentsvc.ToolSpec{
			{Name: "bare"},
			{Name: "get", Description: "gets", Parameters: []byte(`{"type":"object","properties":{"q":{"type":"number"}},"required":["q"],"additionalProperties":false}`)},
		},
	}) {
		continue
	}
	llmtest.RequireSameJSON(t, `{
		"model": "m", "max_tokens": 5000, "stream": true, "thinking": {"type": "enabled", "budget_tokens": 2000},
		"system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
		"tools": [
			{"name": "bare", "input_schema": {"type": "object", "properties": {}}},
			{"name": "get", "description": "gets", "cache_control": {"type": "ephemeral"},
				"input_schema": {"type": "object", "properties": {"q": {"type": "number"}}, "required": ["q"], "additionalProperties": false}}
		],
		"messages": [
			{"role": "user", "content": [
				{"type": "text", "text": "data "}, {"type": "text", "text": "{\"a\":1}"},
				{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
			]},
			{"role": "assistant", "content": [
				{"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"}, {"type": "redacted_thinking", "data": "xyz"},
				{"type": "text", "text": "I look"},
				{"type": "tool_use", "id": "c1", "name": "get", "input": {"q": 1}},
				{"type": "tool_use", "id": "c2", "name": "get", "input": {}}
			]},
			{"role": "user", "content": [
				{"type": "tool_result", "tool_use_id": "c1", "is_error": false, "content": [{"type": "text", "text": "found"}]},
				{"type": "tool_result", "tool_use_id": "c2", "is_error": true},
				{"type": "text", "text": "go on"}
			]}
		]
	}`, srv.Requests()[0].Body)
}

func TestAdaptiveThinking(t *testing.T) {
	t.Parallel()
	hot := 0.7
	for _, tt := range []struct {
		o      anthropic.Options
		effort any
		tokens float64
	}{
		{anthropic.Options{Model: "claude-opus-5"}, nil, 32_000},
		{anthropic.Options{Model: "claude-opus-4-6", Temperature: &hot}, nil, 32_000},
		{anthropic.Options{Model: "claude-opus-5", ThinkingBudget: 2000}, map[string]any{"effort": "low"}, 32_000},
		{anthropic.Options{Model: "claude-sonnet-5-5", ThinkingBudget: 8000, MaxTokens: 9000}, map[string]any{"effort": "medium"}, 9000},
		{anthropic.Options{Model: "claude-mythos-preview", ThinkingBudget: 30_000}, map[string]any{"effort": "high"}, 38_192},
	} {
		srv := llmtest.NewServer(t, []llmtest.Reply{{UserText: "x", Pieces: []string{"ok"}}})
		tt.o.BaseURL, tt.o.Thinking = srv.URL, true
		if a := llmtest.CollectAnswer(t.Context(), t, newProvider(t, tt.o), llmtest.UserConversation("x")); a.Err != nil {
			t.Error(a.Err)
		}
		var sent map[string]any
		if err := json.Unmarshal(srv.Requests()[0].Body, &sent); err != nil {
			t.Fatal(err)
		}
		got := []any{sent["thinking"], sent["output_config"], sent["max_tokens"], sent["temperature"]}
		if diff := cmp.Diff([]any{map[string]any{"type": "adaptive"}, tt.effort, tt.tokens, nil}, got); diff != "" {
			t.Errorf("%s: want -, sent +\n%s", tt.o.Model, diff)
		}
	}
}

// TestRefusedSettings checks that settings which a model refuses are named in a text of our own.
func TestRefusedSettings(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"`temperature` is deprecated for this model.":                                  "it takes no such temperature: leave temperature out",
		"\"thinking.type.enabled\" is not supported for this model. " + llmtest.Canary: "it cannot think as it was told to: leave thinking out",
		"prompt is too long: 1 tokens > 0 maximum":                                     "the conversation is longer than the model can read",
		llmtest.Canary: "the request was refused as invalid",
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "error", "error": map[string]any{"type": "invalid_request_error", "message": message}})
		}))
		t.Cleanup(srv.Close)
		a := llmtest.CollectAnswer(t.Context(), t, newProvider(t, anthropic.Options{BaseURL: srv.URL}), llmtest.UserConversation("x"))
		var e *llm.Error
		if !errors.As(a.Err, &e) || e.Status != 400 || e.Reason != want || e.Retryable {
			t.Errorf("%s: %v, want %q", message, a.Err, want)
		}
	}
}

// TestForeignCalls continues a turn whose calls another model made: thinking is off for the rest of it, as the API
// requires.
func TestForeignCalls(t *testing.T) {
	t.Parallel()
	srv := llmtest.NewServer(t, []llmtest.Reply{{ToolName: "get", Pieces: []string{"ok"}}})
	p := newProvider(t, anthropic.Options{BaseURL: srv.URL, Thinking: true})
	foreign := *fullConversation[1].Message
	foreign.ToolCalls = []agentsvc.ToolCall{{ID: "c1", Name: "get", Thought: "gemini:c2lnbmVk"}}
	a := llmtest.CollectAnswer(t.Context(), t, p, []agentsvc.Entry{fullConversation[0], {Message: &foreign}, fullConversation[2]})
	if a.Err != nil || a.Text != "ok" || strings.Contains(string(srv.Requests()[0].Body), `"thinking"`) {
		t.Errorf("answer %+v to %s", a, srv.Requests()[0].Body)
	}
}

func TestUsageClasses(t *testing.T) {
	t.Parallel()
	usage := agentsvc.Usage{InputTokens: 100, OutputTokens: 50, CacheReadTokens: 60, CacheWriteTokens: 30, ReasoningTokens: 40}
	srv := llmtest.NewServer(t, []llmtest.Reply{{UserText: "x", Pieces: []string{"y"}, Usage: usage, Stop: llm.StopLength}})
	a := llmtest.CollectAnswer(t.Context(), t, newProvider(t, anthropic.Options{Name: "mine", BaseURL: srv.URL}), llmtest.UserConversation("x"))
	usage.Provider, usage.Model = "mine", "claude-haiku-4-5"
	if diff := cmp.Diff(&usage, a.Usage); diff != "" || a.Stop != llm.StopLength {
		t.Errorf("stop %q, usage (-want +got):\n%s", a.Stop, diff)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status int
		body   string
		want   llm.Error
	}{
		{529, `{"type":"error","error":{"type":"overloaded_error","message":"secret"}}`, llm.Error{Status: 529, Retryable: true, Reason: "the model's server is overloaded"}},
		{400, `{"error":{"message":"prompt is too long: 200001 tokens"}}`, llm.Error{Status: 400, Reason: "the conversation is longer than the model can read"}},
		{400, `{"error":{"message":"Your credit balance is too low"}}`, llm.Error{Status: 400, Reason: "the account has no credit left"}},
		{502, `<html>secret</html>`, llm.Error{Status: 502, Retryable: true, Reason: "the model's server failed"}},
	}
	for _, tt := range tests {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.body))
		}))
		t.Cleanup(srv.Close)
		a := llmtest.CollectAnswer(t.Context(), t, newProvider(t, anthropic.Options{BaseURL: srv.URL}), llmtest.UserConversation("x"))
		var e *llm.Error
		if !errors.As(a.Err, &e) {
			t.Fatalf("error = %v", a.Err)
		}
		tt.want.Provider = "anthropic"
		if diff := cmp.Diff(&tt.want, e); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.body, diff)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	out := llmtest.NewLocalClient(t)
	for field, opts := range map[string]anthropic.Options{
		"base_url":               {HTTP: out, BaseURL: "ftp://x"},
		"thinking.budget_tokens": {HTTP: out, Thinking: true, ThinkingBudget: 1000},
	} {
		var invalid *agentsvc.Error
		if _, err := anthropic.New(opts); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := anthropic.New(anthropic.Options{HTTP: out, Thinking: true, ThinkingBudget: 5000, MaxTokens: 5000}); err == nil {
		t.Error("a budget that leaves nothing for the answer is accepted")
	}
	if _, err := anthropic.New(anthropic.Options{}); err == nil {
		t.Error("no HTTP client is accepted")
	}
}
