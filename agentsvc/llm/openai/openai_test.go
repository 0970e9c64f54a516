package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/llmtest"
	"stoa/agentsvc/llm/openai"
)

func TestNothingFromEnvironment(t *testing.T) {
	variables := []string{
		"OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_WEBHOOK_SECRET", "OPENAI_ORGANIZATION",
		"OPENAI_BASE_URL", "OPENAI_CUSTOM_HEADERS",
	}
	for name, responses := range apiVariants {
		t.Run(name, func(t *testing.T) {
			llmtest.RequireEnvironmentIgnored(t, variables, http.StatusUnauthorized, func(url string) llm.Provider {
				p, err := openai.New(openai.Options{BaseURL: url + "/v1", HTTP: llmtest.NewLocalClient(t), Responses: responses})
				if err != nil {
					t.Fatal(err)
				}
				return p
			})
		})
	}
}

// sendWhole sends a request with everything that a request may have. What comes back does not matter.
func sendWhole(t *testing.T, p *openai.Provider) {
	t.Helper()
	conversation := []agentsvc.Entry{
		{Message: &agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{
			{Text: "data "}, {Data: &agentsvc.Data{Value: map[string]any{"a": 1.0}}},
		}}},
		{Message: &agentsvc.Message{Role: agentsvc.RoleAgent, ToolCalls: []agentsvc.ToolCall{{ID: "c1", Name: "get", Arguments: []byte(`{"q":1}`)}}}},
		{Result: &agentsvc.ToolResult{Call: "c1", Name: "get", Text: "found"}},
		{Message: &agentsvc.Message{Role: agentsvc.RoleAgent, Parts: []agentsvc.Part{{File: &agentsvc.File{Name: "made.pdf"}}}}},
		{Message: &agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{
			{Text: "look at this"},
			{File: &agentsvc.File{MediaType: "image/png", Bytes: []byte("hi")}},
			{File: &agentsvc.File{MediaType: "image/jpeg", URI: "https://example.com/a.jpg"}},
		}}},
	}
	for _, err := range p.Stream(t.Context(), llm.Request{
		System: "Be kind.", Conversation: conversation,
		Tools: []agentsvc.ToolSpec{{Name: "get", Description: "gets", Parameters: []byte(`{"type":"object"}`)}, {Name: "bare"}},
	}) {
		if err != nil {
			t.Log(err)
		}
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	srv := llmtest.NewServer(t, []llmtest.Reply{{UserText: "look at this", Pieces: []string{"ok"}}})
	half := 0.5
	p := newProvider(t, openai.Options{BaseURL: srv.URL + "/v1/", Model: "m", Temperature: &half, MaxTokens: 9})
	sendWhole(t, p)
	want := `{
		"model": "m", "temperature": 0.5, "max_tokens": 9, "stream": true, "stream_options": {"include_usage": true},
		"tools": [
			{"type": "function", "function": {"name": "get", "description": "gets", "parameters": {"type": "object"}}},
			{"type": "function", "function": {"name": "bare"}}
		],
		"messages": [
			{"role": "system", "content": "Be kind."},
			{"role": "user", "content": "data {\"a\":1}"},
			{"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get", "arguments": "{\"q\":1}"}}]},
			{"role": "tool", "tool_call_id": "c1", "content": "found"},
			{"role": "user", "content": [
				{"type": "text", "text": "look at this"},
				{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
				{"type": "image_url", "image_url": {"url": "https://example.com/a.jpg"}}
			]}
		]
	}`
	llmtest.RequireSameJSON(t, want, srv.Requests()[0].Body)
}

// TestResponsesRequest is TestRequest of the responses API.
func TestResponsesRequest(t *testing.T) {
	t.Parallel()
	srv := llmtest.NewServer(t, []llmtest.Reply{{UserText: "look at this", Pieces: []string{"ok"}}})
	half := 0.5
	p := newProvider(t, openai.Options{BaseURL: srv.URL + "/v1/", Model: "m", Temperature: &half, MaxTokens: 9, Responses: true})
	sendWhole(t, p)
	want := `{
		"model": "m", "temperature": 0.5, "max_output_tokens": 9, "stream": true, "store": false, "instructions": "Be kind.",
		"tools": [
			{"type": "function", "name": "get", "description": "gets", "parameters": {"type": "object"}, "strict": false},
			{"type": "function", "name": "bare", "parameters": {"type": "object", "properties": {}}, "strict": false}
		],
		"input": [
			{"role": "user", "content": "data {\"a\":1}"},
			{"type": "function_call", "call_id": "c1", "name": "get", "arguments": "{\"q\":1}"},
			{"type": "function_call_output", "call_id": "c1", "output": "found"},
			{"role": "user", "content": [
				{"type": "input_text", "text": "look at this"},
				{"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="},
				{"type": "input_image", "detail": "auto", "image_url": "https://example.com/a.jpg"}
			]}
		]
	}`
	llmtest.RequireSameJSON(t, want, srv.Requests()[0].Body)
}

// roundTripFunc is a transport without a network.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestMaxTokensAtOpenAI(t *testing.T) {
	t.Parallel()
	var body map[string]any
	client := &http.Client{Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
		if r.URL.String() != "https://api.openai.com/v1/chat/completions" {
			t.Errorf("asked %s", r.URL)
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		return nil, errors.New("no network")
	})}
	a := llmtest.CollectAnswer(t.Context(), t, newProvider(t, openai.Options{HTTP: client, MaxTokens: 5}), llmtest.UserConversation("x"))
	if a.Err == nil || body["max_completion_tokens"] != 5.0 || body["max_tokens"] != nil || body["temperature"] != nil || body["model"] != "gpt-4o" {
		t.Errorf("error %v, body %v", a.Err, body)
	}
}

// TestMaxTokensFollowsModel checks the name of the bound: OpenAI's models get the current one, which reasoning models
// require, at every address; others get the one that every compatible server has.
func TestMaxTokensFollowsModel(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]string{
		"gpt-4o": "max_completion_tokens", "chatgpt-4o-latest": "max_completion_tokens", "gpt-5.1-mini": "max_completion_tokens",
		"o3-mini": "max_completion_tokens", "openai/o1": "max_completion_tokens", "ft:gpt-4.1:acme": "max_completion_tokens", "codex-mini-latest": "max_completion_tokens",
		"gpt-oss-120b": "max_tokens", "llama-3.3-70b": "max_tokens", "olmo2": "max_tokens", "qwen/qwen3-32b": "max_tokens",
	} {
		for _, base := range []string{"", "https://models.example.com/v1"} {
			var body map[string]any
			client := &http.Client{Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
				_ = json.NewDecoder(r.Body).Decode(&body)
				return nil, errors.New("no network")
			})}
			p := newProvider(t, openai.Options{HTTP: client, Model: model, BaseURL: base, MaxTokens: 5})
			_ = llmtest.CollectAnswer(t.Context(), t, p, llmtest.UserConversation("x"))
			got := map[string]any{}
			for _, key := range []string{"max_tokens", "max_completion_tokens"} {
				if body[key] != nil {
					got[key] = body[key]
				}
			}
			if diff := cmp.Diff(map[string]any{want: 5.0}, got); diff != "" {
				t.Errorf("%s at %q (-want +got):\n%s", model, base, diff)
			}
		}
	}
}

func TestFilesRefused(t *testing.T) {
	t.Parallel()
	files := map[string]agentsvc.File{
		"media type": {Name: "a.pdf", MediaType: "application/pdf", Bytes: []byte("x")},
		"too large":  {Name: "a.png", MediaType: "image/png", Bytes: make([]byte, 20<<20+1)},
		"scheme":     {Name: "a.png", MediaType: "image/png", URI: "file:///etc/passwd"},
		"video":      {Name: "a.mp4", MediaType: "video/mp4", URI: "https://example.com/a.mp4"},
	}
	for name, f := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := &http.Client{Transport: roundTripFunc(func(*http.Request) (*http.Response, error) {
				t.Error("the server was asked")
				return nil, errors.New("no network")
			})}
			conversation := []agentsvc.Entry{{Message: &agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{{File: &f}}}}}
			a := llmtest.CollectAnswer(t.Context(), t, newProvider(t, openai.Options{HTTP: client}), conversation)
			var e *agentsvc.Error
			if !errors.As(a.Err, &e) || !strings.Contains(e.Field, f.Name) {
				t.Errorf("error = %v", a.Err)
			}
		})
	}
}

func TestUsageClasses(t *testing.T) {
	t.Parallel()
	usage := agentsvc.Usage{InputTokens: 100, OutputTokens: 50, CacheReadTokens: 60, ReasoningTokens: 40}
	srv := llmtest.NewServer(t, []llmtest.Reply{{UserText: "x", Pieces: []string{"y"}, Usage: usage, Stop: llm.StopLength}})
	a := llmtest.CollectAnswer(t.Context(), t, newProvider(t, openai.Options{Name: "mine", BaseURL: srv.URL + "/v1"}), llmtest.UserConversation("x"))
	usage.Provider, usage.Model = "mine", "gpt-4o"
	if diff := cmp.Diff(&usage, a.Usage); diff != "" || a.Stop != llm.StopLength {
		t.Errorf("stop %q, usage (-want +got):\n%s", a.Stop, diff)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	date := time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat)
	tests := []struct {
		name   string
		status int
		header string
		value  string
		body   string
		want   llm.Error
		slack  time.Duration
	}{
		{"unauthorized", 401, "", "", `{"error":{"message":"secret"}}`, llm.Error{Status: 401, Reason: "the API key was refused"}, 0},
		{"seconds", 429, "Retry-After", "7", `{}`, llm.Error{Status: 429, RetryAfter: 7 * time.Second, Retryable: true, Reason: "the rate limit is exceeded"}, 0},
		{"milliseconds", 429, "Retry-After-Ms", "250", ``, llm.Error{Status: 429, RetryAfter: 250 * time.Millisecond, Retryable: true, Reason: "the rate limit is exceeded"}, 0},
		{"date", 503, "Retry-After", date, ``, llm.Error{Status: 503, RetryAfter: 90 * time.Second, Retryable: true, Reason: "the model's server failed"}, 3 * time.Second},
		{"nonsense", 503, "Retry-After", "NaN", ``, llm.Error{Status: 503, Retryable: true, Reason: "the model's server failed"}, 0},
		{"for ever", 503, "Retry-After", "1e300", ``, llm.Error{Status: 503, RetryAfter: 24 * time.Hour, Retryable: true, Reason: "the model's server failed"}, 0},
		{"quota", 429, "", "", `{"error":{"code":"insufficient_quota"}}`, llm.Error{Status: 429, Reason: "the account's quota is used up"}, 0},
		{"context", 400, "", "", `{"error":{"code":"context_length_exceeded","message":"secret"}}`, llm.Error{Status: 400, Reason: "the conversation is longer than the model can read"}, 0},
		{"temperature", 400, "", "", `{"error":{"code":"unsupported_value","param":"temperature","message":"secret"}}`, llm.Error{Status: 400, Reason: "it takes no such temperature: leave temperature out"}, 0},
		{"tools", 400, "", "", `{"error":{"code":null,"param":"reasoning_effort","message":"secret"}}`, llm.Error{Status: 400, Reason: "it takes tools in another protocol only: set api: responses"}, 0},
		{"HTML", 502, "", "", `<html>secret</html>`, llm.Error{Status: 502, Retryable: true, Reason: "the model's server failed"}, 0},
		{"teapot", 418, "", "", `{"error":{"code":418}}`, llm.Error{Status: 418, Reason: "the request was refused"}, 0},
		{"no content", 204, "", "", ``, llm.Error{Status: 204, Reason: "the request was refused"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newProviderFor(t, func(w http.ResponseWriter, _ *http.Request) {
				if tt.header != "" {
					w.Header().Set(tt.header, tt.value)
				}
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body))
			})
			a := llmtest.CollectAnswer(t.Context(), t, p, llmtest.UserConversation("x"))
			var e *llm.Error
			if !errors.As(a.Err, &e) {
				t.Fatalf("error = %v", a.Err)
			}
			if d := tt.want.RetryAfter - e.RetryAfter; d >= 0 && d <= tt.slack {
				e.RetryAfter = tt.want.RetryAfter
			}
			tt.want.Provider = "openai"
			if diff := cmp.Diff(&tt.want, e); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	a := llmtest.CollectAnswer(t.Context(), t, newProvider(t, openai.Options{BaseURL: srv.URL}), llmtest.UserConversation("x"))
	var e *llm.Error
	if !errors.As(a.Err, &e) || !e.Retryable || e.Status != 0 || e.Reason != "the connection was refused" {
		t.Errorf("closed port: %v", a.Err)
	}
	guarded := egress.New(egress.Options{})
	t.Cleanup(guarded.Close)
	a = llmtest.CollectAnswer(t.Context(), t, newProvider(t, openai.Options{BaseURL: srv.URL, HTTP: guarded.HTTP()}), llmtest.UserConversation("x"))
	if !errors.As(a.Err, &e) || e.Retryable || !strings.Contains(e.Reason, "not allowed") {
		t.Errorf("inside address: %v", a.Err)
	}
}

func TestConnectionIsReused(t *testing.T) {
	t.Parallel()
	var conns atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeEvents(w, deltaEvent(`{"content":"hi"}`, `"stop"`), "data: [DONE]\n\n")
		time.Sleep(5 * time.Millisecond) // the body ends shortly after its last event
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	p := newProvider(t, openai.Options{BaseURL: srv.URL})
	for range 5 {
		if a := llmtest.CollectAnswer(t.Context(), t, p, llmtest.UserConversation("x")); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	if conns.Load() != 1 {
		t.Errorf("%d connections for five calls, want 1", conns.Load())
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	p := newProviderFor(t, func(w http.ResponseWriter, r *http.Request) {
		writeEvents(w, deltaEvent(`{"content":"hi"}`, `null`))
		<-r.Context().Done()
	})
	if a := llmtest.CollectAnswer(ctx, t, p, llmtest.UserConversation("x")); !errors.Is(a.Err, context.DeadlineExceeded) || a.Text != "hi" {
		t.Errorf("answer = %+v", a)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	if _, err := openai.New(openai.Options{}); err == nil {
		t.Error("no HTTP client is accepted")
	}
	for _, base := range []string{"ftp://x", "/v1", "http://", ":"} {
		var invalid *agentsvc.Error
		if _, err := openai.New(openai.Options{HTTP: llmtest.NewLocalClient(t), BaseURL: base}); !errors.As(err, &invalid) || invalid.Field != "base_url" {
			t.Errorf("base URL %q: %v", base, err)
		}
	}
}
