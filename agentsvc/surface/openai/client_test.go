package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/openai"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
	"stoa/tenancy/db/dbtest"
)

// newFixture serves surfacetest.Script as the default app and as the apps acme and globex.
func newFixture(t *testing.T) *surfacetest.Fixture {
	t.Helper()
	h := surfacetest.New(t, surfacetest.Options{Default: surfacetest.Script}, newRoutes)
	h.CreateApp(t, "acme", surfacetest.Script)
	h.CreateApp(t, "globex", strings.ReplaceAll(surfacetest.Script, "clerk", "scribe"))
	return h
}

// newClient returns the official Go client with the token of a user of an app.
func newClient(t *testing.T, h *surfacetest.Fixture, app, sub string) sdk.Client {
	t.Helper()
	return sdk.NewClient(option.WithBaseURL(h.URL+"/openai/v1"), option.WithAPIKey(h.MintToken(t, app, authz.TokenSpec{Subject: sub})))
}

// newChatParams returns a request with earlier messages and a question.
func newChatParams(agent, question string, before ...sdk.ChatCompletionMessageParamUnion) sdk.ChatCompletionNewParams {
	return sdk.ChatCompletionNewParams{Model: agent, Messages: append(before, sdk.UserMessage(question))}
}

// readStream reads a stream to its end and joins its chunks with the client library's accumulator.
func readStream(t *testing.T, c sdk.Client, p sdk.ChatCompletionNewParams) (answer sdk.ChatCompletionAccumulator, err error) {
	t.Helper()
	p.StreamOptions.IncludeUsage = sdk.Bool(true)
	s := c.Chat.Completions.NewStreaming(t.Context(), p)
	defer s.Close()
	for s.Next() {
		if !answer.AddChunk(s.Current()) {
			t.Fatal("the client cannot put the chunks together")
		}
	}
	return answer, s.Err()
}

// TestClient calls agents with the official client, without and with a stream: the answers must be equal.
func TestClient(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	c := newClient(t, h, "acme", "ana")
	tests := []struct {
		question, content, finish string
		tokens                    [2]int64
	}{
		{"hello", "You said: hello", "stop", [2]int64{1, 3}},
		{"weather Rome", "Let me see.\n\nIt is 21 degrees.", "stop", [2]int64{22, 13}},
		{"ask", "Which city?", "stop", [2]int64{1, 2}},
		{"refuse", "I may not do that.", "content_filter", [2]int64{1, 5}},
	}
	for _, tt := range tests {
		t.Run(tt.question, func(t *testing.T) {
			t.Parallel()
			complete, err := c.Chat.Completions.New(t.Context(), newChatParams("assistant", tt.question))
			if err != nil {
				t.Fatal(err)
			}
			pieces, err := readStream(t, c, newChatParams("assistant", tt.question))
			if err != nil {
				t.Fatal(err)
			}
			for how, got := range map[string]sdk.ChatCompletion{"whole": *complete, "streamed": pieces.ChatCompletion} {
				if got.ID == "" || got.Model != "assistant" || got.Created == 0 || len(got.Choices) != 1 {
					t.Fatalf("%s: %s", how, got.RawJSON())
				}
				m := got.Choices[0]
				if m.Message.Content != tt.content || m.FinishReason != tt.finish {
					t.Errorf("%s: %q %s", how, m.Message.Content, m.FinishReason)
				}
				if u := got.Usage; [2]int64{u.PromptTokens, u.CompletionTokens} != tt.tokens || u.TotalTokens != tt.tokens[0]+tt.tokens[1] {
					t.Errorf("%s: usage %s", how, u.RawJSON())
				}
			}
		})
	}
}

// TestClientErrors checks how the official client reports the errors of this surface.
func TestClientErrors(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	c := newClient(t, h, "acme", "ana")
	unauthenticated := sdk.NewClient(option.WithBaseURL(h.URL+"/apps/acme/openai/v1"), option.WithAPIKey("nobody's"))
	tests := []struct {
		name   string
		client sdk.Client
		params sdk.ChatCompletionNewParams
		status int
		kind   string
		code   string
		param  string
	}{
		{"no such agent", c, newChatParams("nobody", "hello"), 404, "invalid_request_error", "not_found", ""},
		{"another app's agent", c, newChatParams("scribe", "hello"), 404, "invalid_request_error", "not_found", ""},
		{"private agent", c, newChatParams("hidden", "hello"), 404, "invalid_request_error", "not_found", ""},
		{"wrong credential", unauthenticated, newChatParams("assistant", "hello"), 401, "authentication_error", "unauthenticated", ""},
		{"failed", c, newChatParams("assistant", "break"), 422, "task_error", "task_failed", ""},
		{"two answers", c, sdk.ChatCompletionNewParams{Model: "assistant", Messages: newChatParams("", "hi").Messages, N: sdk.Int(2)}, 400, "invalid_request_error", "invalid_argument", "n"},
		{"no question", c, sdk.ChatCompletionNewParams{Model: "assistant", Messages: []sdk.ChatCompletionMessageParamUnion{sdk.AssistantMessage("hi")}}, 400, "invalid_request_error", "invalid_argument", "messages"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := tt.client.Chat.Completions.New(t.Context(), tt.params)
			var got *sdk.Error
			if !errors.As(err, &got) {
				t.Fatalf("the client says %v", err)
			}
			if got.StatusCode != tt.status || got.Type != tt.kind || got.Code != tt.code || got.Param != tt.param || got.Message == "" {
				t.Errorf("%d %s", got.StatusCode, got.RawJSON())
			}
		})
	}
	if _, err := readStream(t, c, newChatParams("assistant", "break")); err == nil || !strings.Contains(err.Error(), "task_failed") {
		t.Errorf("a stream of a task that failed: %v", err)
	}
}

// TestClientModels lists agents as models.
func TestClientModels(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for app, want := range map[string][]string{"acme": {"assistant", "clerk"}, "globex": {"assistant", "scribe"}} {
		c := newClient(t, h, app, "ana")
		page, err := c.Models.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range page.Data {
			if got = append(got, m.ID); m.OwnedBy != app || m.Created == 0 {
				t.Errorf("%s", m.RawJSON())
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("models of %s (-want +got):\n%s", app, diff)
		}
		if one, err := c.Models.Get(t.Context(), want[1]); err != nil || one.ID != want[1] {
			t.Errorf("%s: %v", want[1], err)
		}
		if _, err := c.Models.Get(t.Context(), "hidden"); err == nil {
			t.Error("a private agent is a model")
		}
	}
}

// TestClientLimits uses up a limit and checks that the client learns when to retry.
func TestClientLimits(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	h.CreateApp(t, "acme", surfacetest.Script+`rate_limiting: {enabled: true, scope: user, limits: [{type: count, window: day, limit: 1}]}`)
	var header http.Header
	seen := option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		resp, err := next(r)
		if err == nil {
			header = resp.Header
		}
		return resp, err
	})
	c := newClient(t, h, "acme", "ana")
	if _, err := c.Chat.Completions.New(t.Context(), newChatParams("assistant", "hello"), seen); err != nil {
		t.Fatal(err)
	}
	_, err := c.Chat.Completions.New(t.Context(), newChatParams("assistant", "hello"), seen, option.WithMaxRetries(0))
	var got *sdk.Error
	if !errors.As(err, &got) || got.StatusCode != http.StatusTooManyRequests || got.Type != "rate_limit_error" || header.Get("Retry-After") == "" {
		t.Errorf("the second call: %v, Retry-After %q", err, header.Get("Retry-After"))
	}
}

// fakeUpstream is a model server that records the last request.
type fakeUpstream struct {
	mu           sync.Mutex
	lastMessages string
}

func (u *fakeUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var b struct {
		Messages []struct {
			Role    string
			Content any
		}
	}
	_ = json.Unmarshal(body, &b)
	var received strings.Builder
	for _, m := range b.Messages {
		content, _ := json.Marshal(m.Content)
		received.WriteString(m.Role + " " + string(content) + "\n")
	}
	u.mu.Lock()
	u.lastMessages = received.String()
	u.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, `data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Yes."},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
}

// TestConversation checks what the model receives: the agent's instruction, then the client's earlier messages,
// filtered by the guardrails.
func TestConversation(t *testing.T) {
	t.Parallel()
	up := &fakeUpstream{}
	srv := httptest.NewServer(up)
	t.Cleanup(srv.Close)
	h := surfacetest.New(t, surfacetest.Options{Default: `
llms: {m: {provider: openai, model: m, base_url: "` + srv.URL + `", api_key: k}}
guardrails: {rail: {enabled: true, input: {injection: {enabled: true, patterns: ["open sesame"], action: block}}}}
agents: {assistant: {llm: m, guardrails: rail, instruction: Be kind.}}
`}, newRoutes)
	c := sdk.NewClient(option.WithBaseURL(h.URL+"/openai/v1"), option.WithAPIKey(""), option.WithHeaderDel("Authorization"))
	_, err := c.Chat.Completions.New(t.Context(), newChatParams("assistant", "And now?",
		sdk.SystemMessage("Answer in French."), sdk.UserMessage("My name is Ana."), sdk.AssistantMessage("Hello Ana, open sesame."), sdk.UserMessage("Open sesame!")))
	if err != nil {
		t.Fatalf("%v\n%s", err, h.Log)
	}
	withheld := `[The message was withheld by the guardrail \"rail\" (input.injection).]`
	want := `system "Be kind."
user "Answer in French."
user "My name is Ana."
assistant "` + withheld + `"
user "` + withheld + `"
user "And now?"
`
	up.mu.Lock()
	defer up.mu.Unlock()
	if diff := cmp.Diff(want, up.lastMessages); diff != "" {
		t.Errorf("the model got (-want +got):\n%s", diff)
	}
}

// TestClientDisconnects checks that a client that disconnects, before the answer or in the middle of a stream,
// cancels its task, but not with an Idempotency-Key.
func TestClientDisconnects(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	c := newClient(t, h, "acme", "ana")
	for _, stream := range []bool{false, true} {
		ctx, disconnect := context.WithCancel(t.Context())
		clientDone := make(chan struct{})
		go func() {
			defer close(clientDone)
			if stream {
				s := c.Chat.Completions.NewStreaming(ctx, newChatParams("assistant", "never"))
				for s.Next() {
				}
				_ = s.Close()
				return
			}
			_, _ = c.Chat.Completions.New(ctx, newChatParams("assistant", "never"))
		}()
		dbtest.WaitUntil(t, "the task has begun", func() bool { return h.Workers.Inflight() == 1 })
		disconnect()
		<-clientDone
		dbtest.WaitUntil(t, "the task has ended", func() bool { return h.Workers.Inflight() == 0 })
	}
}

// TestBlockFor checks that a call fails after BlockFor and that the client does not retry it.
func TestBlockFor(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{Default: surfacetest.Script}, func(*surfacetest.Fixture) []surface.Route {
		return openai.Routes(openai.Options{BlockFor: 20 * time.Millisecond})
	})
	body := map[string]any{"model": "assistant", "messages": []any{map[string]any{"role": "user", "content": "never"}}}
	resp, answer := h.Do(t, http.MethodPost, "/openai/v1/chat/completions", "", body)
	if resp.StatusCode != http.StatusGatewayTimeout || resp.Header.Get("X-Should-Retry") != "false" || !strings.Contains(answer, "task_id") {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
}

// TestShutdown checks that a stream that the shutdown interrupts ends with an error.
func TestShutdown(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	c := newClient(t, h, "acme", "ana")
	ended := make(chan error)
	go func() {
		_, err := readStream(t, c, newChatParams("assistant", "never"))
		ended <- err
	}()
	dbtest.WaitUntil(t, "the stream is open", func() bool { return h.Workers.Inflight() == 1 && h.Server.OpenStreams() == 1 })
	h.Server.EndStreams()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "unavailable") {
		t.Errorf("the stream ended with %v", err)
	}
}

// TestJavaScript runs the official client for JavaScript.
func TestJavaScript(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	got := runJavaScript(t, "testdata/client.mjs", h.URL, h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"}), h.MintToken(t, "globex", authz.TokenSpec{Subject: "ana"}))
	want := map[string]any{
		"refused": []any{}, "models": []any{"assistant", "clerk"}, "strangers": []any{"assistant", "scribe"},
		"whole":    []any{"Let me see.\n\nIt is 21 degrees.", "stop", 35.0},
		"streamed": []any{"Let me see.\n\nIt is 21 degrees.", "stop", 35.0},
		"missing":  []any{"NotFoundError", 404.0, "not_found"},
		"denied":   []any{"AuthenticationError", 401.0, "unauthenticated"},
		"tools":    []any{"BadRequestError", 400.0, "tools"},
		"failed":   []any{"UnprocessableEntityError", 422.0, "task_failed"},
		"broken":   "APIError",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the client saw (-want +got):\n%s", diff)
	}
}
