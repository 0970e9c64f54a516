package llmtest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// testText checks that text is streamed and complete.
func testText(t *testing.T, s Subject) {
	a := CollectAnswer(t.Context(), t, s.Provider, UserConversation("hello"))
	if a.Err != nil || a.Text != "Hello to you." || a.Stop != llm.StopEnd || len(a.Calls) != 0 {
		t.Errorf("answer = %+v", a)
	}
	// A provider that collects the answer before it yields would show nothing for seconds.
	if a.Pieces < 3 {
		t.Errorf("the text came in %d pieces, want it streamed", a.Pieces)
	}
}

// testCall checks a tool call with non-ASCII and nested arguments.
func testCall(t *testing.T, s Subject) {
	a := CollectAnswer(t.Context(), t, s.Provider, UserConversation("weather"))
	if a.Err != nil || a.Stop != llm.StopTools {
		t.Fatalf("answer = %+v", a)
	}
	requireCalls(t, a.Calls, "get_weather", `{"city":"Köln","days":[1,2]}`)
}

// testParallelCalls checks several calls in one answer, after text, without the thought.
func testParallelCalls(t *testing.T, s Subject) {
	a := CollectAnswer(t.Context(), t, s.Provider, UserConversation("two"))
	if a.Err != nil || a.Stop != llm.StopTools || a.Text != "Let me look." {
		t.Fatalf("answer = %+v", a)
	}
	requireCalls(t, a.Calls, "get_weather", `{"city":"Rome"}`, "get_time", `{}`)
}

// requireCalls compares calls with pairs of name and arguments, and requires unique ids.
func requireCalls(t *testing.T, calls []agentsvc.ToolCall, want ...string) {
	t.Helper()
	if len(calls) != len(want)/2 {
		t.Fatalf("%d calls, want %d", len(calls), len(want)/2)
	}
	seen := map[agentsvc.CallID]bool{"": true}
	for i, call := range calls {
		if seen[call.ID] {
			t.Errorf("call %d has the id %q, which is empty or taken", i, call.ID)
		}
		seen[call.ID] = true
		if call.Name != want[2*i] {
			t.Errorf("call %d is of %q, want %q", i, call.Name, want[2*i])
		}
		var got, wanted any
		if err := json.Unmarshal(call.Arguments, &got); err != nil {
			t.Errorf("arguments %q: %v", call.Arguments, err)
		}
		_ = json.Unmarshal([]byte(want[2*i+1]), &wanted)
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("arguments of call %d (-want +got):\n%s", i, diff)
		}
	}
}

// testResults sends the results of parallel calls back, which the server accepts only if they match the calls.
func testResults(t *testing.T, s Subject) {
	conversation := UserConversation("two")
	first := CollectAnswer(t.Context(), t, s.Provider, conversation)
	if first.Err != nil {
		t.Fatal(first.Err)
	}
	agentMessage := newMessage(agentsvc.RoleAgent, first.Text)
	agentMessage.Message.ToolCalls = first.Calls
	conversation = append(conversation, agentMessage)
	for i, text := range []string{"sunny", "noon"} {
		call := first.Calls[i]
		conversation = append(conversation, agentsvc.Entry{Result: &agentsvc.ToolResult{Call: call.ID, Name: call.Name, Text: text}})
	}
	a := CollectAnswer(t.Context(), t, s.Provider, conversation)
	if a.Err != nil || a.Text != "It is noon." || a.Stop != llm.StopEnd {
		t.Errorf("answer = %+v", a)
	}
}

// testUsage checks the reported tokens.
func testUsage(t *testing.T, s Subject) {
	a := CollectAnswer(t.Context(), t, s.Provider, UserConversation("hello"))
	if a.Usage == nil {
		t.Fatal("no usage")
	}
	if a.Usage.InputTokens != 7 || a.Usage.OutputTokens != 3 {
		t.Errorf("usage = %+v, want 7 in, 3 out", a.Usage)
	}
	if a.Usage.Provider == "" || a.Usage.Model == "" {
		t.Errorf("usage = %+v, want it to name provider and model", a.Usage)
	}
}

// testRefusal checks that a refusal is shown, and reported where the protocol can.
func testRefusal(t *testing.T, s Subject) {
	want := llm.StopEnd
	if s.ReportsRefusal {
		want = llm.StopRefusal
	}
	a := CollectAnswer(t.Context(), t, s.Provider, UserConversation("may I"))
	if a.Err != nil || a.Text != "I may not." || a.Stop != want {
		t.Errorf("answer = %+v", a)
	}
}

// testErrors checks status and retryability, and that the upstream body is not quoted.
func testErrors(t *testing.T, s Subject) {
	tests := []struct {
		text      string
		status    int
		retryable bool
	}{{"key", 401, false}, {"malformed", 400, false}, {"busy", 429, true}, {"broken", 500, true}}
	for _, tt := range tests {
		a := CollectAnswer(t.Context(), t, s.Provider, UserConversation(tt.text))
		var e *llm.Error
		if !errors.As(a.Err, &e) {
			t.Errorf("%s: error = %v, want an llm.Error", tt.text, a.Err)
			continue
		}
		if e.Status != tt.status || e.Retryable != tt.retryable || e.Provider == "" {
			t.Errorf("%s: error = %+v, want status %d, retryable %v", tt.text, e, tt.status, tt.retryable)
		}
		// The upstream body may hold prompts and keys.
		if strings.Contains(e.Error(), Canary) {
			t.Errorf("%s: %q shows the upstream body", tt.text, e)
		}
	}
}

// testCancel cancels the context in the middle of an answer.
func testCancel(t *testing.T, s Subject) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for c, err := range s.Provider.Stream(ctx, llm.Request{Conversation: UserConversation("hang")}) {
		if c.Text != "" {
			cancel()
		}
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("error = %v, want context.Canceled", last)
	}
	requireClosed(t, s)
}

// testBreak stops the iteration in the middle of an answer.
func testBreak(t *testing.T, s Subject) {
	for _, err := range s.Provider.Stream(t.Context(), llm.Request{Conversation: UserConversation("hang")}) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	requireClosed(t, s)
}

// testCancelledBefore calls with an ended context.
func testCancelledBefore(t *testing.T, s Subject) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a := CollectAnswer(ctx, t, s.Provider, UserConversation("hello")); !errors.Is(a.Err, context.Canceled) || a.Text != "" {
		t.Errorf("answer = %+v, want context.Canceled", a)
	}
	requireClosed(t, s)
}

// testConcurrent makes several calls of one provider at the same time.
func testConcurrent(t *testing.T, s Subject) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if a := CollectAnswer(t.Context(), t, s.Provider, UserConversation("hello")); a.Err != nil || a.Text != "Hello to you." {
				t.Errorf("answer = %+v", a)
			}
		})
	}
	wg.Wait()
}
