package runtime_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/runtime"
	"stoa/tenancy/db/dbtest"
)

// openAIDelta returns a chunk of a response in OpenAI's protocol. Both arguments are JSON.
func openAIDelta(piece, finish string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n", piece, finish)
}

// openAIToolCall returns a response with a tool call.
func openAIToolCall(name, arguments string) string {
	return openAIDelta(fmt.Sprintf(`{"tool_calls":[{"index":0,"id":"c","function":{"name":%q,"arguments":%q}}]}`, name, arguments), "null") +
		openAIDelta("{}", `"tool_calls"`) + "data: [DONE]\n\n"
}

// TestBadModels checks that the turn ends whatever a model's server does: with an answer if the model can correct its
// mistake, else as failed, with a message of our own.
func TestBadModels(t *testing.T) {
	t.Parallel()
	const canary = "canary-of-the-upstream"
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	hello := openAIDelta(`{"content":"Hello"}`, "null")
	for name, c := range map[string]struct {
		status      int
		first       string // the first response; the next ones are "Sorry."
		again       bool   // the first response is repeated
		state       agentsvc.State
		says        string
		wantRequest string // what the second request must contain
	}{
		"down":              {state: agentsvc.Failed, says: "model provider openai: the connection was refused"},
		"out of order":      {status: 500, first: canary, again: true, state: agentsvc.Failed, says: "model provider openai answered 500: the model's server failed"},
		"out of order once": {status: 500, first: canary, state: agentsvc.Completed, says: "Sorry."},
		"garbage":           {first: "<html>" + canary + "</html>", again: true, state: agentsvc.Failed, says: "model provider openai: the answer broke off"},
		"no JSON":           {first: hello + "data: {{{" + canary + "\n\n", again: true, state: agentsvc.Failed, says: "model provider openai: the answer is malformed"},
		"half a stream":     {first: hello, again: true, state: agentsvc.Failed, says: "model provider openai: the answer broke off"},
		"an unknown tool":   {first: openAIToolCall("wipe", "{}"), state: agentsvc.Completed, says: "Sorry.", wantRequest: `there is no tool \"wipe\"; the tools are calc`},
		"half an argument":  {first: openAIToolCall("calc", `{"expression":`), again: true, state: agentsvc.Failed, says: "model provider openai: the model made a malformed tool call"},
		"another schema":    {first: openAIToolCall("calc", `{"expression":7}`), state: agentsvc.Completed, says: "Sorry.", wantRequest: "the arguments of calc do not fit its schema: at /expression: got number, want string"},
		"no object":         {first: openAIToolCall("calc", `["1+1"]`), state: agentsvc.Completed, says: "Sorry.", wantRequest: "the arguments of calc must be a JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requested atomic.Int64
			var outcome atomic.Value
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				outcome.Store(string(body))
				w.Header().Set("Content-Type", "text/event-stream")
				switch {
				case requested.Add(1) > 1 && !c.again:
					_, _ = io.WriteString(w, openAIDelta(`{"content":"Sorry."}`, `"stop"`)+"data: [DONE]\n\n")
				case c.status != 0:
					http.Error(w, c.first, c.status)
				default:
					_, _ = io.WriteString(w, c.first)
				}
			}))
			t.Cleanup(srv.Close)
			url := srv.URL
			if name == "down" {
				url = closed.URL
			}
			got, lines := runTurn(t, newModelApp(t, "  default: {provider: openai, api_key: k, base_url: "+url+"}", config.Options{}), newSubmission("hi"))
			if got.Status.State != c.state || got.Status.Message.Text() != c.says {
				t.Errorf("%s %q, want %s %q", got.Status.State, got.Status.Message.Text(), c.state, c.says)
			}
			if last, _ := outcome.Load().(string); c.wantRequest != "" && !strings.Contains(last, c.wantRequest) {
				t.Errorf("the model got %s", last)
			}
			if shown := strings.Join(lines, "\n"); strings.Contains(shown, canary) {
				t.Errorf("shown %q", shown)
			}
		})
	}
}

// TestLongInstruction checks an instruction of 200 pages: the model receives all of it, the card none.
func TestLongInstruction(t *testing.T) {
	t.Parallel()
	var pages strings.Builder
	for n := range 200 {
		fmt.Fprintf(&pages, "Page %d. %s\n", n+1, strings.Repeat("It is a rule of this house. ", 100))
	}
	h := startRecordingModel(t)
	a := newMemoryApp(t, dbtest.NewSQLite(t), h, "  long:\n    context: {strategy: token_window}\n    instruction: |\n      "+strings.ReplaceAll(strings.TrimSpace(pages.String()), "\n", "\n      "))
	outcome, _ := runTurn(t, a, newSubmissionFor("long", "hi"))
	system, conversation, _ := h.lastRequest()
	if outcome.Status.State != agentsvc.Completed || strings.TrimSpace(system) != strings.TrimSpace(pages.String()) || len(conversation) != 1 || conversation[0] != "user: hi" {
		t.Errorf("%s; the model read %d of %d bytes, then %q", outcome.Status.State, len(system), pages.Len(), conversation)
	}
	if c, _ := a.Card("long"); len(fmt.Sprint(c)) > 1000 {
		t.Error("the card is as long as the instruction")
	}
}

// TestExplodingExpressions checks that expressions that take exponential time in backtracking engines take time in
// proportion to the text.
func TestExplodingExpressions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	long := strings.Repeat("a", 100_000)
	if err := os.WriteFile(filepath.Join(dir, "long.txt"), []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	a := newAppWith(t, dbtest.NewSQLite(t), mustParse(t, fmt.Sprintf(`
llms:
  default:
    provider: scripted
    script:
      - when: {tool_result: look}
        then: [{say: done}]
      - when: {text: "^(?:(a+)+|(?:a|aa)+|(?:a|a?)+)$"}
        then: [{say: "never"}]
      - then: [{call: {tool: look, arguments: {text: "((a+)+)+b|(a|aa)+c|(a*)*d"}}}]
tools:
  look: {type: function, handler: search_files, working_directory: %q}
agents:
  helper: {tools: [look], guardrails: g}
guardrails:
  g:
    input: {injection: {patterns: ["(a+)+b", "(a|aa)+c", "(?:a*)*d", "(x+x+)+y"]}}
    output: {content: {blocked_patterns: ["(a+)+b", "(a|aa)+c"]}}
`, dir), config.Options{}), runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, DefaultApp: true, PrivateNetwork: true}, slog.New(slog.DiscardHandler))
	began := time.Now()
	outcome, _ := runTurn(t, a, newSubmission(long+"!"))
	if took := time.Since(began); outcome.Status.Message.Text() != "done" || took > 20*time.Second {
		t.Errorf("%s %.100q after %v", outcome.Status.State, outcome.Status.Message.Text(), took)
	}
}
