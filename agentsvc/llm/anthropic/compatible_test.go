package anthropic_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/anthropic"
	"stoa/agentsvc/llm/llmtest"
)

// collectEvents returns what a provider makes of an answer of events.
func collectEvents(t *testing.T, events ...string) llmtest.Answer {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, strings.Join(events, ""))
	}))
	t.Cleanup(srv.Close)
	return llmtest.CollectAnswer(t.Context(), t, newProvider(t, anthropic.Options{BaseURL: srv.URL}), llmtest.UserConversation("x"))
}

// TestOtherTypes sends answers whose fields have other types than Anthropic's, as servers of other vendors do: what has
// another type counts as missing, and numbers may be written as 1.0.
func TestOtherTypes(t *testing.T) {
	t.Parallel()
	a := collectEvents(
		t,
		sseEvent(`{"type":"message_start","message":{"usage":{"input_tokens":12.0,"cache_read_input_tokens":null,"cache_creation_input_tokens":"many"}}}`),
		sseEvent(`{"type":"content_block_start","index":0,"content_block":null}`),
		sseEvent(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":null,"citations":[]}}`),
		sseEvent(`{"type":"content_block_delta","index":0,"delta":7}`),
		sseEvent(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":{"a":1}}}`),
		sseEvent(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`),
		sseEvent(`{"type":"content_block_start","index":1.0,"content_block":{"type":"tool_use","id":"c","name":"get","input":[]}}`),
		sseEvent(`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}`),
		sseEvent(`{"type":"message_delta","delta":{"stop_reason":{"a":1}},"usage":null}`),
		sseEvent(`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":3,"output_tokens_details":7}}`),
		sseEvent(`{"type":"a_later_event","delta":{"text":"no"}}`),
		sseEvent(`{"type":"message_stop"}`),
	)
	if a.Err != nil || a.Text != "hi" || len(a.Calls) != 1 || a.Calls[0].Name != "get" || string(a.Calls[0].Arguments) != "{}" || a.Stop != llm.StopTools {
		t.Errorf("the answer is %+v", a)
	}
	want := &agentsvc.Usage{Provider: "anthropic", Model: "claude-haiku-4-5", InputTokens: 12, OutputTokens: 3}
	if diff := cmp.Diff(want, a.Usage); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
}

// TestMalformedEvents checks that an event which is no JSON object ends the answer.
func TestMalformedEvents(t *testing.T) {
	t.Parallel()
	for _, data := range []string{`[1]`, `"x"`, "not JSON", `{"type":`} {
		a := collectEvents(t, sseEvent(`{"type":"message_start","message":{}}`), fmt.Sprintf("event: content_block_delta\ndata: %s\n\n", data))
		if a.Err == nil || !strings.Contains(a.Err.Error(), "the answer is malformed") {
			t.Errorf("%s: %v", data, a.Err)
		}
	}
}

// TestAddress checks what a request is sent to, and with which headers.
func TestAddress(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{"": "/v1/messages", "/": "/v1/messages", "/gateway": "/gateway/v1/messages", "/gateway/": "/gateway/v1/messages"} {
		var got []string
		srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			h := r.Header
			got = []string{r.Method, r.URL.RequestURI(), h.Get("Content-Type"), h.Get("Anthropic-Version"), h.Get("X-Api-Key"), h.Get("Authorization")}
		}))
		t.Cleanup(srv.Close)
		llmtest.CollectAnswer(t.Context(), t, newProvider(t, anthropic.Options{BaseURL: srv.URL + base}), llmtest.UserConversation("x"))
		if diff := cmp.Diff([]string{"POST", want, "application/json", "2023-06-01", llmtest.Key, ""}, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", base, diff)
		}
	}
}
