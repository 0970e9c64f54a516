package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/openai"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
	"stoa/tenancy/db/dbtest"
)

// newResponseParams returns a request with a text as its input.
func newResponseParams(input, previous string) responses.ResponseNewParams {
	p := responses.ResponseNewParams{Model: "assistant", Input: responses.ResponseNewParamsInputUnion{OfString: sdk.String(input)}}
	if previous != "" {
		p.PreviousResponseID = sdk.String(previous)
	}
	return p
}

// TestResponseClient calls an agent with the official client, without and with a stream: the answers must be equal, and
// equal to the response that is read later.
func TestResponseClient(t *testing.T) {
	t.Parallel()
	c := newClient(t, newFixture(t), "acme", "ana")
	tests := []struct {
		input, text, status string
		items               []string
		tokens              [2]int64
	}{
		{"hello", "You said: hello", "completed", []string{"message"}, [2]int64{1, 3}},
		{"weather Rome", "Let me see.It is 21 degrees.", "completed", []string{"message", "mcp_call", "message"}, [2]int64{22, 13}},
		{"ask", "Which city?", "completed", []string{"message"}, [2]int64{1, 2}},
		{"sum", "May I calculate?", "completed", []string{"message", "mcp_approval_request"}, [2]int64{1, 4}},
		{"refuse", "I may not do that.", "incomplete", []string{"message"}, [2]int64{1, 5}},
	}
	for _, tt := range tests {
		t.Run(tt.input, func(t *testing.T) {
			t.Parallel()
			whole, err := c.Responses.New(t.Context(), newResponseParams(tt.input, ""))
			if err != nil {
				t.Fatal(err)
			}
			read, err := c.Responses.Get(t.Context(), whole.ID, responses.ResponseGetParams{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(whole.RawJSON(), read.RawJSON()); diff != "" {
				t.Errorf("the response differs when it is read (-created +read):\n%s", diff)
			}
			streamed, text := streamResponse(t, c, newResponseParams(tt.input, ""))
			if text != tt.text {
				t.Errorf("the deltas are %q", text)
			}
			for how, got := range map[string]*responses.Response{"whole": whole, "streamed": streamed} {
				var items []string
				for _, item := range got.Output {
					items = append(items, item.Type)
				}
				if diff := cmp.Diff(tt.items, items); diff != "" || got.OutputText() != tt.text || string(got.Status) != tt.status {
					t.Errorf("%s: %s\n%s", how, got.RawJSON(), diff)
				}
				if u := got.Usage; [2]int64{u.InputTokens, u.OutputTokens} != tt.tokens || u.TotalTokens != tt.tokens[0]+tt.tokens[1] {
					t.Errorf("%s: usage %s", how, u.RawJSON())
				}
			}
		})
	}
}

// streamResponse returns the response that ends a stream, and the text of the deltas. Sequence numbers must count the
// events, and every delta must belong to the item that was added at its index.
func streamResponse(t *testing.T, c sdk.Client, p responses.ResponseNewParams) (last *responses.Response, text string) {
	t.Helper()
	return readResponseStream(t, c.Responses.NewStreaming(t.Context(), p))
}

// readResponseStream is streamResponse for a stream that is open.
func readResponseStream(t *testing.T, s *ssestream.Stream[responses.ResponseStreamEventUnion]) (last *responses.Response, text string) {
	t.Helper()
	defer s.Close()
	items := map[int64]string{}
	for n := int64(0); s.Next(); n++ {
		ev := s.Current()
		if ev.SequenceNumber != n {
			t.Errorf("event %d has the number %d", n, ev.SequenceNumber)
		}
		if last != nil {
			t.Errorf("%s follows the event that ends the response", ev.Type)
		}
		switch ev.Type {
		case "response.output_item.added":
			items[ev.OutputIndex] = ev.Item.ID
		case "response.output_text.delta":
			if text += ev.Delta; items[ev.OutputIndex] != ev.ItemID {
				t.Errorf("a delta of %s belongs to no item", ev.ItemID)
			}
		case "response.completed", "response.incomplete", "response.failed":
			last = &ev.Response
		}
	}
	if s.Err() != nil || last == nil {
		t.Fatalf("the stream ended with %v", s.Err())
	}
	return last, text
}

// TestReadResponseAsStream reads responses as streams with the official client: one that has ended, also where its
// conversation has gone on, one that waited and went on, and one that is being written.
func TestReadResponseAsStream(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	c := newClient(t, h, "acme", "ana")
	// The client writes the parameter into a body, which a GET does not have.
	streamed := option.WithQuery("stream", "true")
	checkSame := func(what, id string) *responses.Response {
		t.Helper()
		read, err := c.Responses.Get(t.Context(), id, responses.ResponseGetParams{})
		if err != nil {
			t.Fatal(err)
		}
		last, text := readResponseStream(t, c.Responses.GetStreaming(t.Context(), id, responses.ResponseGetParams{}, streamed))
		if diff := cmp.Diff(read.RawJSON(), last.RawJSON()); diff != "" || text != read.OutputText() {
			t.Errorf("%s: the stream has %q and ends with (-read +streamed):\n%s", what, text, diff)
		}
		return read
	}
	create := func(input, previous string) *responses.Response {
		t.Helper()
		r, err := c.Responses.New(t.Context(), newResponseParams(input, previous))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, input := range []string{"hello", "weather Rome", "sum", "refuse"} {
		checkSame(input, create(input, "").ID)
	}
	question := create("ask", "")
	create("Rome", question.ID)
	checkSame("a question that was answered", question.ID)

	// It waits for a decision, and goes on when that is made elsewhere.
	waiting := checkSame("a response that waits", create("sum", "").ID)
	operator := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana", Roles: []string{authz.RoleOperator, authz.RoleCaller}})
	if resp, body := h.Do(t, http.MethodPost, "/openai/v1/responses", operator, map[string]any{"model": "assistant", "previous_response_id": waiting.ID, "input": []any{
		map[string]any{"type": "mcp_approval_response", "approval_request_id": waiting.Output[len(waiting.Output)-1].ID, "approve": true},
	}}); resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	dbtest.WaitUntil(t, "the task has gone on", func() bool {
		read, err := c.Responses.Get(t.Context(), waiting.ID, responses.ResponseGetParams{})
		return err == nil && len(read.Output) > len(waiting.Output) && read.Status == "completed"
	})
	checkSame("a response that waited and went on", waiting.ID)

	p := newResponseParams("never", "")
	p.Background = sdk.Bool(true)
	working, err := c.Responses.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	s := c.Responses.GetStreaming(t.Context(), working.ID, responses.ResponseGetParams{}, streamed)
	defer s.Close()
	var seen []string
	for s.Next() {
		ev := s.Current()
		if seen = append(seen, ev.Type); ev.Type == "response.output_text.delta" {
			if _, err := c.Responses.Cancel(t.Context(), working.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s.Err() != nil || len(seen) < 3 || seen[0] != "response.created" || seen[len(seen)-1] != "response.failed" {
		t.Errorf("the stream of a response at work had %v, %v", seen, s.Err())
	}
	for _, tt := range []struct{ path, credential, want string }{
		{working.ID + "?stream=maybe", "ana", `"param":"stream"`},
		{working.ID + "?stream=true", "bob", "no such response"},
		{working.ID + "?stream=true&starting_after=1", "ana", "starting_after"},
	} {
		if resp, body := h.Do(t, http.MethodGet, "/openai/v1/responses/"+tt.path, h.MintToken(t, "acme", authz.TokenSpec{Subject: tt.credential}), nil); resp.StatusCode < 400 || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d %s, want %s", tt.path, resp.StatusCode, body, tt.want)
		}
	}
}

// TestResponseConversation checks what the model receives of a conversation that the server keeps.
func TestResponseConversation(t *testing.T) {
	t.Parallel()
	up := &fakeUpstream{}
	srv := httptest.NewServer(up)
	t.Cleanup(srv.Close)
	h := surfacetest.New(t, surfacetest.Options{Default: `
llms: {m: {provider: openai, model: m, base_url: "` + srv.URL + `", api_key: k}}
agents: {assistant: {llm: m, instruction: Be kind.}}
`}, newRoutes)
	c := sdk.NewClient(option.WithBaseURL(h.URL+"/openai/v1"), option.WithAPIKey(""), option.WithHeaderDel("Authorization"))
	first := newResponseParams("My name is Ana.", "")
	first.Instructions = sdk.String("Answer in French.")
	one, err := c.Responses.New(t.Context(), first)
	if err != nil {
		t.Fatalf("%v\n%s", err, h.Log)
	}
	if _, err := c.Responses.New(t.Context(), newResponseParams("And now?", one.ID)); err != nil {
		t.Fatal(err)
	}
	want := `system "Be kind."
user "Answer in French."
user "My name is Ana."
assistant "Yes."
user "And now?"
`
	up.mu.Lock()
	defer up.mu.Unlock()
	if diff := cmp.Diff(want, up.lastMessages); diff != "" {
		t.Errorf("the model got (-want +got):\n%s", diff)
	}
}

// TestResponseLimits uses up a limit by responses and completions together.
func TestResponseLimits(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	h.CreateApp(t, "acme", surfacetest.Script+`rate_limiting: {enabled: true, scope: user, limits: [{type: count, window: day, limit: 2}]}`)
	c := newClient(t, h, "acme", "ana")
	if _, err := c.Chat.Completions.New(t.Context(), newChatParams("assistant", "hello")); err != nil {
		t.Fatal(err)
	}
	one, err := c.Responses.New(t.Context(), newResponseParams("hello", ""))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Responses.New(t.Context(), newResponseParams("hello", one.ID), option.WithMaxRetries(0))
	var got *sdk.Error
	if !errors.As(err, &got) || got.StatusCode != http.StatusTooManyRequests || got.Type != "rate_limit_error" {
		t.Errorf("the third call: %v", err)
	}
	if _, err := c.Responses.Get(t.Context(), one.ID, responses.ResponseGetParams{}); err != nil {
		t.Errorf("reading counts as a call: %v", err)
	}
}

// TestResponseClientDisconnects checks that a client that disconnects cancels its task, and that one in the background
// goes on.
func TestResponseClientDisconnects(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	c := newClient(t, h, "acme", "ana")
	for _, background := range []bool{false, true} {
		ctx, disconnect := context.WithCancel(t.Context())
		p := newResponseParams("never", "")
		p.Background = sdk.Bool(background)
		s := c.Responses.NewStreaming(ctx, p)
		if !s.Next() {
			t.Fatal(s.Err())
		}
		id := s.Current().Response.ID
		disconnect()
		_ = s.Close()
		if background {
			dbtest.WaitUntil(t, "the stream is closed", func() bool { return h.Server.OpenStreams() == 0 })
			got, err := c.Responses.Cancel(t.Context(), id)
			if err != nil || got.Status != "cancelled" {
				t.Errorf("a response in the background was not at work: %v", err)
			}
			continue
		}
		dbtest.WaitUntil(t, "the response is cancelled", func() bool {
			got, err := c.Responses.Get(t.Context(), id, responses.ResponseGetParams{})
			return err == nil && got.Status == "cancelled"
		})
	}
}

// TestResponseBlockFor checks that a call fails after BlockFor with the id under which the response can be read.
func TestResponseBlockFor(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{Default: surfacetest.Script}, func(*surfacetest.Fixture) []surface.Route {
		return openai.Routes(openai.Options{BlockFor: 20 * time.Millisecond})
	})
	resp, answer := h.Do(t, http.MethodPost, "/openai/v1/responses", "", map[string]any{"model": "assistant", "input": "never"})
	var body struct {
		Error struct {
			Details struct {
				ResponseID string `json:"response_id"`
			}
		}
	}
	if err := json.Unmarshal([]byte(answer), &body); err != nil || resp.StatusCode != http.StatusGatewayTimeout || resp.Header.Get("X-Should-Retry") != "false" {
		t.Fatalf("%d %s", resp.StatusCode, answer)
	}
	if resp, answer := h.Do(t, http.MethodGet, "/openai/v1/responses/"+body.Error.Details.ResponseID, "", nil); !strings.Contains(answer, `"status":"in_progress"`) {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
}

// TestResponseShutdown checks that a stream that the shutdown interrupts ends with an error.
func TestResponseShutdown(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	c := newClient(t, h, "acme", "ana")
	ended := make(chan error)
	go func() {
		s := c.Responses.NewStreaming(t.Context(), newResponseParams("never", ""))
		defer s.Close()
		for s.Next() {
		}
		ended <- s.Err()
	}()
	dbtest.WaitUntil(t, "the stream is open", func() bool { return h.Workers.Inflight() == 1 && h.Server.OpenStreams() == 1 })
	h.Server.EndStreams()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "unavailable") {
		t.Errorf("the stream ended with %v", err)
	}
}

// TestResponseJavaScript runs the official client for JavaScript.
func TestResponseJavaScript(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	token := func(app string, roles ...string) string {
		return h.MintToken(t, app, authz.TokenSpec{Subject: "ana", Roles: roles})
	}
	got := runJavaScript(t, "testdata/responses.mjs", h.URL, token("acme"), token("acme", authz.RoleOperator), token("globex"))
	list := func(items ...any) []any { return items }
	steps := list("message", "mcp_call", "message")
	want := map[string]any{
		"whole": list("Let me see.It is 21 degrees.", "completed", steps, 37.0, map[string]any{"a": "b"}),
		"read":  list(true, "Let me see.It is 21 degrees.", steps),
		"streamed": list("Let me see.It is 21 degrees.", list("response.created", "response.in_progress",
			"response.output_item.added", "response.content_part.added", "response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done",
			"response.output_item.added", "response.mcp_call.in_progress", "response.mcp_call_arguments.done", "response.mcp_call.completed", "response.output_item.done",
			"response.output_item.added", "response.content_part.added", "response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done",
			"response.completed"), 3.0, 35.0),
		"helper":    list("Let me see.It is 21 degrees.", steps),
		"next":      list("You said: and now", true),
		"answer":    list("Which city?", "You said: Rome"),
		"cancelled": list("queued", "cancelled", true),
		"waiting":   list("completed", list("message", "mcp_approval_request"), "adder", `{"expression":"1 + 1"}`, "May I calculate?"),
		"denied":    list("PermissionDeniedError", 403.0, "permission_denied"),
		"approved":  list("completed", list("mcp_call", "message"), true, "It is 2."),
		"chat":      list("tool_calls", "mcp_approval_request", "adder", "It is 2."), "chatStream": list("tool_calls", "mcp_approval_request"),
		"failed": list("failed", "task_failed"), "broken": list("response.failed", "task_failed"),
		"missing":  list("NotFoundError", 404.0, "not_found"),
		"strange":  list("NotFoundError", 404.0, "previous_response_id"),
		"stranger": list("NotFoundError", 404.0, "not_found"),
		"tools":    list("BadRequestError", 400.0, "tools"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the client saw (-want +got):\n%s", diff)
	}
}

// runJavaScript runs a script of testdata with the folder of the official clients and args, and returns what it prints.
func runJavaScript(t *testing.T, script string, args ...string) (got map[string]any) {
	t.Helper()
	folder := os.Getenv("STOA_TEST_CLIENT_SDKS")
	if folder == "" {
		dbtest.SkipMissing(t, "without STOA_TEST_CLIENT_SDKS (the folder that .ci/client-sdks prints) the official client for JavaScript is not tested")
	}
	cmd := exec.CommandContext(t.Context(), "node", append([]string{script, folder}, args...)...)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return got
}
