package gemini_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/gemini"
	"stoa/agentsvc/llm/llmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newProvider(t *testing.T, opts gemini.Options) *gemini.Provider {
	t.Helper()
	if opts.HTTP == nil {
		opts.HTTP = llmtest.NewLocalClient(t)
	}
	if opts.APIKey == "" {
		opts.APIKey = llmtest.Key
	}
	p, err := gemini.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSuite(t *testing.T) {
	llmtest.RunSuite(t, func(t *testing.T, script []llmtest.Reply) llmtest.Subject {
		srv := llmtest.NewServer(t, script)
		return llmtest.Subject{Provider: newProvider(t, gemini.Options{BaseURL: srv.URL}), OpenRequests: srv.OpenRequests, ReportsRefusal: true}
	})
}

func sseEvent(data string) string { return "data: " + data + "\n\n" }

// candidateEvent returns the event of one part of an answer.
func candidateEvent(part, finish string) string {
	return sseEvent(fmt.Sprintf(`{"candidates":[{"content":{"role":"model","parts":[%s]}%s}]}`, part, finish))
}

func TestHostileServers(t *testing.T) {
	llmtest.RunHostileSuite(t, llmtest.WireFormat{
		Provider: func(t *testing.T, base string, client *http.Client) llm.Provider {
			return newProvider(t, gemini.Options{BaseURL: base, HTTP: client})
		},
		Event: sseEvent,
		Text:  func(text string) string { return candidateEvent(fmt.Sprintf(`{"text":%q}`, text), "") },
		Call: func(_ int, name, text string) string {
			return candidateEvent(fmt.Sprintf(`{"functionCall":{"name":%q,"args":%s}}`, name, text), "")
		},
		End:         candidateEvent(`{"text":""}`, `,"finishReason":"STOP"`),
		StreamError: sseEvent(`{"error":{"code":503,"message":"` + llmtest.Canary + `"}}`),
	})
}

// TestShapes sends JSON of shapes that the vendor's client does not expect. None may end in a panic.
func TestShapes(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		`{"candidates":"x"}`, `{"candidates":[1]}`, `{"candidates":[null]}`, `{"candidates":[{"content":7}]}`, `{"candidates":[{"content":{"parts":{}}}]}`,
		`{"candidates":[{"content":{"parts":[null]}}]}`, `{"candidates":[{"content":{"parts":[{"functionCall":[]}]}}]}`, `{"usageMetadata":[]}`,
		`{"candidates":[{"content":{"parts":[{"inlineData":"x"}]}}]}`, `{"promptFeedback":3}`, `null`, `{"error":"` + llmtest.Canary + `"}`, `{"error":7}`,
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(sseEvent(data))) }))
		t.Cleanup(srv.Close)
		a := llmtest.CollectAnswer(t.Context(), t, newProvider(t, gemini.Options{BaseURL: srv.URL}), llmtest.UserConversation("x"))
		var e *llm.Error
		if !errors.As(a.Err, &e) || strings.Contains(e.Error(), llmtest.Canary) || e.Reason == "the connection failed" {
			t.Errorf("%s: error = %v", data, a.Err)
		}
	}
}

func TestNothingFromEnvironment(t *testing.T) {
	llmtest.RequireEnvironmentIgnored(t, []string{
		"GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_CLOUD_PROJECT",
		"GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL", "GOOGLE_APPLICATION_CREDENTIALS",
	}, http.StatusUnauthorized, func(url string) llm.Provider {
		p, err := gemini.New(gemini.Options{BaseURL: url, HTTP: llmtest.NewLocalClient(t)})
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}

func TestRequest(t *testing.T) {
	t.Parallel()
	srv := llmtest.NewServer(t, []llmtest.Reply{{UserText: "go on", Pieces: []string{"ok"}}})
	half := 0.5
	p := newProvider(t, gemini.Options{BaseURL: srv.URL, Model: "m", Temperature: &half, MaxTokens: 9})
	for _, err := range p.Stream(t.Context(), llm.Request{
		System: "Be kind.",
		Tools: []agentsvc.ToolSpec{
			{Name: "bare"}, {Name: "get", Description: "gets", Parameters: []byte(`{"type":"object","additionalProperties":false}`)},
		},
		Conversation: []agentsvc.Entry{
			{Message: &agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{
				{Text: "data "}, {Data: &agentsvc.Data{Value: map[string]any{"a": 1.0}}},
				{File: &agentsvc.File{MediaType: "video/mp4", URI: "gs://bucket/a.mp4"}},
				{File: &agentsvc.File{MediaType: "audio/mpeg", Bytes: []byte("hi")}},
			}}},
			{Message: &agentsvc.Message{Role: agentsvc.RoleAgent, ToolCalls: []agentsvc.ToolCall{
				{ID: "c1", Name: "get", Arguments: []byte(`{"q":1}`), Thought: "gemini:c2lnbmVk"}, {ID: "c2", Name: "get", Thought: "anthropic:[]"},
			}}},
			{Result: &agentsvc.ToolResult{Call: "c1", Name: "get", Text: "found"}},
			{Result: &agentsvc.ToolResult{Call: "c2", Name: "get", Text: "lost", Failed: true}},
			{Message: &agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{{Text: "go on"}}}},
		},
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	sent := srv.Requests()[0]
	if sent.URL != "/v1beta/models/m:streamGenerateContent?alt=sse" {
		t.Errorf("asked %s", sent.URL)
	}
	llmtest.RequireSameJSON(t, `{
		"systemInstruction": {"role": "user", "parts": [{"text": "Be kind."}]},
		"generationConfig": {"temperature": 0.5, "maxOutputTokens": 9},
		"tools": [{"functionDeclarations": [
			{"name": "bare", "parametersJsonSchema": {"type": "object", "properties": {}}},
			{"name": "get", "description": "gets", "parametersJsonSchema": {"type": "object", "additionalProperties": false}}
		]}],
		"contents": [
			{"role": "user", "parts": [
				{"text": "data "}, {"text": "{\"a\":1}"},
				{"fileData": {"fileUri": "gs://bucket/a.mp4", "mimeType": "video/mp4"}}, {"inlineData": {"mimeType": "audio/mp3", "data": "aGk="}}
			]},
			{"role": "model", "parts": [
				{"functionCall": {"id": "c1", "name": "get", "args": {"q": 1}}, "thoughtSignature": "c2lnbmVk"},
				{"functionCall": {"id": "c2", "name": "get"}}
			]},
			{"role": "user", "parts": [
				{"functionResponse": {"id": "c1", "name": "get", "response": {"output": "found"}}},
				{"functionResponse": {"id": "c2", "name": "get", "response": {"error": "lost"}}},
				{"text": "go on"}
			]}
		]
	}`, sent.Body)
}

func TestUsageClasses(t *testing.T) {
	t.Parallel()
	usage := agentsvc.Usage{InputTokens: 100, OutputTokens: 50, CacheReadTokens: 60, ReasoningTokens: 40}
	srv := llmtest.NewServer(t, []llmtest.Reply{{UserText: "x", Pieces: []string{"y"}, Usage: usage, Stop: llm.StopLength}})
	a := llmtest.CollectAnswer(t.Context(), t, newProvider(t, gemini.Options{Name: "mine", BaseURL: srv.URL}), llmtest.UserConversation("x"))
	usage.Provider, usage.Model = "mine", "gemini-2.5-pro"
	if diff := cmp.Diff(&usage, a.Usage); diff != "" || a.Stop != llm.StopLength {
		t.Errorf("stop %q, usage (-want +got):\n%s", a.Stop, diff)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		events string
		stop   llm.StopReason
		text   string
		reason string
	}{
		{"blocked prompt", sseEvent(`{"promptFeedback":{"blockReason":"SAFETY"}}`), llm.StopRefusal, "The model's content filter stopped the answer.", ""},
		{"recitation", candidateEvent(`{"text":"a"}`, `,"finishReason":"RECITATION"`), llm.StopRefusal, "a", ""},
		{"malformed call", candidateEvent(`{"text":"a"}`, `,"finishReason":"MALFORMED_FUNCTION_CALL"`), "", "a", "the model made a malformed tool call"},
		{"thoughts", candidateEvent(`{"text":"hm","thought":true},{"text":"a"}`, `,"finishReason":"STOP"`), llm.StopEnd, "a", ""},
	}
	for _, tt := range tests {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(tt.events)) }))
		t.Cleanup(srv.Close)
		a := llmtest.CollectAnswer(t.Context(), t, newProvider(t, gemini.Options{BaseURL: srv.URL}), llmtest.UserConversation("x"))
		var reason string
		if e := (*llm.Error)(nil); errors.As(a.Err, &e) {
			reason = e.Reason
		}
		if a.Stop != tt.stop || a.Text != tt.text || reason != tt.reason {
			t.Errorf("%s: answer = %+v", tt.name, a)
		}
	}
}

func TestMadeFile(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(candidateEvent(`{"inlineData":{"mimeType":"image/png","data":"aGk="}}`, `,"finishReason":"STOP"`)))
	}))
	t.Cleanup(srv.Close)
	var made []agentsvc.File
	for c, err := range newProvider(t, gemini.Options{BaseURL: srv.URL}).Stream(t.Context(), llm.Request{Conversation: llmtest.UserConversation("x")}) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Artifact != nil {
			made = append(made, *c.Artifact.Artifact.Parts[0].File)
		}
	}
	if diff := cmp.Diff([]agentsvc.File{{MediaType: "image/png", Bytes: []byte("hi")}}, made); diff != "" {
		t.Error(diff)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status int
		body   string
		want   llm.Error
	}{
		{400, `{"error":{"code":400,"message":"secret","details":[{"reason":"API_KEY_INVALID"}]}}`, llm.Error{Status: 400, Reason: "the API key was refused"}},
		{429, `{"error":{"code":429,"details":[{"@type":"x"},{"retryDelay":"13s"}]}}`, llm.Error{Status: 429, Retryable: true, RetryAfter: 13 * time.Second, Reason: "the rate limit is exceeded"}},
		{503, `<html>secret</html>`, llm.Error{Status: 503, Retryable: true, Reason: "the model's server failed"}},
	}
	for _, tt := range tests {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.body))
		}))
		t.Cleanup(srv.Close)
		a := llmtest.CollectAnswer(t.Context(), t, newProvider(t, gemini.Options{BaseURL: srv.URL}), llmtest.UserConversation("x"))
		var e *llm.Error
		if !errors.As(a.Err, &e) {
			t.Fatalf("error = %v", a.Err)
		}
		tt.want.Provider = "gemini"
		if diff := cmp.Diff(&tt.want, e); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.body, diff)
		}
	}
}
