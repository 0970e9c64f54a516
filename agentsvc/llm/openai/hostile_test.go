package openai_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/llmtest"
	"stoa/agentsvc/llm/openai"
)

// newProviderFor returns a provider whose server is h.
func newProviderFor(t *testing.T, h http.HandlerFunc) *openai.Provider {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return newProvider(t, openai.Options{BaseURL: srv.URL})
}

// deltaEvent returns the event of one piece of an answer. Both arguments are JSON.
func deltaEvent(piece, finish string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n", piece, finish)
}

// callPieceEvent returns the delta of a piece of a tool call.
func callPieceEvent(index int, id, name, arguments string) string {
	return deltaEvent(fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%q,"function":{"name":%q,"arguments":%q}}]}`, index, id, name, arguments), "null")
}

func writeEvents(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, ev := range events {
		if _, err := io.WriteString(w, ev); err != nil {
			return
		}
	}
	w.(http.Flusher).Flush()
}

// TestHostile sends a provider answers that no server should send. None may end in a tool call, a success or a large
// heap.
func TestHostile(t *testing.T) {
	const done = "data: [DONE]\n\n"
	hi := deltaEvent(`{"content":"hi"}`, "null")
	tests := []struct {
		name   string
		events []string
		reason string
	}{
		{"nothing", nil, "the answer broke off"},
		{"only done", []string{done}, "the answer broke off"},
		{"no finish", []string{hi, done}, "the answer broke off"},
		{"half an event", []string{hi, `data: {"choices":[{"index":0,"del`}, "the answer broke off"},
		{"half a tool call", []string{callPieceEvent(0, "c", "get", `{"a":`)}, "the answer broke off"},
		{"whole tool call without finish", []string{callPieceEvent(0, "c", "get", `{"a":1}`), done}, "the answer broke off"},
		{"cut arguments", []string{callPieceEvent(0, "c", "get", `{"a":`), deltaEvent("{}", `"tool_calls"`), done}, "the model made a malformed tool call"},
		{"nameless tool", []string{callPieceEvent(0, "c", "", `{}`), deltaEvent("{}", `"tool_calls"`), done}, "the model made a malformed tool call"},
		{"garbage", []string{hi, "data: \x00\xff not JSON\n\n"}, "the answer is malformed"},
		{"wrong types", []string{hi, "data: [1]\n\n"}, "the answer is malformed"},
		{"HTML", []string{"<html><body>secret</body></html>"}, "the answer broke off"},
		{"NaN usage", []string{hi, deltaEvent("{}", `"stop"`), `data: {"choices":[],"usage":{"prompt_tokens":NaN}}` + "\n\n"}, "the answer is malformed"},
		{"error in the stream", []string{hi, `data: {"error":{"message":"secret"}}` + "\n\n"}, "the server reported an error in the middle of the answer"},
		{"too many calls", callEvents(200), "the answer is too long"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newProviderFor(t, func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, tt.events...) })
			a := llmtest.CollectAnswer(t.Context(), t, p, llmtest.UserConversation("x"))
			var e *llm.Error
			if !errors.As(a.Err, &e) || e.Reason != tt.reason || strings.Contains(e.Error(), "secret") {
				t.Errorf("error = %v, want %s", a.Err, tt.reason)
			}
			if len(a.Calls) > 0 {
				t.Errorf("calls %+v were yielded", a.Calls)
			}
		})
	}
}

func callEvents(n int) (events []string) {
	for i := range n {
		events = append(events, callPieceEvent(i, fmt.Sprint(i), "get", "{}"))
	}
	return append(events, deltaEvent("{}", `"tool_calls"`))
}

func TestUsageOutOfRange(t *testing.T) {
	t.Parallel()
	p := newProviderFor(t, func(w http.ResponseWriter, _ *http.Request) {
		writeEvents(w, deltaEvent(`{"content":"hi"}`, `"stop"`),
			`data: {"choices":[],"usage":{"prompt_tokens":-5,"completion_tokens":9e18,"prompt_tokens_details":{"cached_tokens":70}}}`+"\n\n")
	})
	a := llmtest.CollectAnswer(t.Context(), t, p, llmtest.UserConversation("x"))
	if a.Err != nil || a.Usage == nil || a.Usage.InputTokens != 0 || a.Usage.OutputTokens != 0 || a.Usage.CacheReadTokens != 0 {
		t.Errorf("usage = %+v, error %v; want no tokens", a.Usage, a.Err)
	}
}

// TestCompatible checks behaviour of servers that are only partly compatible.
func TestCompatible(t *testing.T) {
	t.Parallel()
	earlier := agentsvc.Entry{Message: &agentsvc.Message{Role: agentsvc.RoleAgent, ToolCalls: []agentsvc.ToolCall{{ID: "call_0", Name: "get", Arguments: []byte("{}")}}}}
	answered := agentsvc.Entry{Result: &agentsvc.ToolResult{Call: "call_0", Name: "get", Text: "x"}}
	tests := []struct {
		name   string
		events []string
		stop   llm.StopReason
		calls  []string // names with arguments
	}{
		{"one index for two calls", []string{callPieceEvent(0, "a", "get", "{}"), callPieceEvent(0, "b", "put", "{}"), deltaEvent("{}", `"tool_calls"`)}, llm.StopTools, []string{"get{}", "put{}"}},
		{"no ids", []string{callPieceEvent(0, "", "get", ""), callPieceEvent(1, "", "put", "{}"), deltaEvent("{}", `"tool_calls"`)}, llm.StopTools, []string{"get{}", "put{}"}},
		{"an id that is taken", []string{callPieceEvent(0, "call_0", "get", "{}"), deltaEvent("{}", `"tool_calls"`)}, llm.StopTools, []string{"get{}"}},
		{"id in every piece", []string{callPieceEvent(0, "a", "get", `{"a"`), callPieceEvent(0, "a", "", `:1}`), deltaEvent("{}", `"stop"`)}, llm.StopTools, []string{`get{"a":1}`}},
		{"interleaved", []string{callPieceEvent(0, "a", "get", `{"a"`), callPieceEvent(1, "b", "put", `{"b"`), callPieceEvent(0, "", "", `:1}`), callPieceEvent(1, "", "", `:2}`), deltaEvent("{}", `"tool_calls"`)}, llm.StopTools, []string{`get{"a":1}`, `put{"b":2}`}},
		{"cut by the limit", []string{callPieceEvent(0, "a", "get", `{"a"`), deltaEvent("{}", `"length"`)}, llm.StopLength, nil},
		{"content filter", []string{deltaEvent("{}", `"content_filter"`)}, llm.StopRefusal, nil},
		{"another choice", []string{`data: {"choices":[{"index":1,"delta":{"content":"no"}}]}` + "\n\n", deltaEvent("{}", `"stop"`)}, llm.StopEnd, nil},
		{"comments and no done", []string{": waiting\n\n", deltaEvent("{}", `"stop"`)}, llm.StopEnd, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newProviderFor(t, func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, tt.events...) })
			a := llmtest.CollectAnswer(t.Context(), t, p, append(llmtest.UserConversation("x"), earlier, answered))
			if a.Err != nil || a.Stop != tt.stop || len(a.Calls) != len(tt.calls) {
				t.Fatalf("answer = %+v", a)
			}
			ids := map[agentsvc.CallID]bool{"": true, "call_0": true}
			for i, c := range a.Calls {
				if got := c.Name + string(c.Arguments); got != tt.calls[i] || ids[c.ID] {
					t.Errorf("call %d = %s with id %q, want %s with an id of its own", i, got, c.ID, tt.calls[i])
				}
				ids[c.ID] = true
			}
			if tt.name == "content filter" && a.Text == "" {
				t.Error("the refusal says nothing")
			}
		})
	}
}

func sseEvent(data string) string { return "data: " + data + "\n\n" }

func TestHostileServers(t *testing.T) {
	for name, responses := range apiVariants {
		wire := llmtest.WireFormat{
			Provider: func(t *testing.T, base string, client *http.Client) llm.Provider {
				return newProvider(t, openai.Options{BaseURL: base, HTTP: client, Responses: responses})
			},
			Event:       sseEvent,
			Text:        func(text string) string { return deltaEvent(fmt.Sprintf(`{"content":%q}`, text), "null") },
			Call:        func(n int, name, text string) string { return callPieceEvent(n, fmt.Sprint(n), name, text) },
			End:         deltaEvent("{}", `"stop"`) + "data: [DONE]\n\n",
			StreamError: sseEvent(`{"error":{"message":"` + llmtest.Canary + `"}}`),
			Comment:     ": still here\n\n",
		}
		if responses {
			wire.Text = func(text string) string {
				return sseEvent(fmt.Sprintf(`{"type":"response.output_text.delta","output_index":0,"delta":%q}`, text))
			}
			wire.Call = func(n int, name, text string) string {
				return sseEvent(fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":{"type":"function_call","call_id":"%d","name":%q}}`, n, n, name)) +
					sseEvent(fmt.Sprintf(`{"type":"response.function_call_arguments.delta","output_index":%d,"delta":%q}`, n, text))
			}
			wire.End = sseEvent(`{"type":"response.completed","response":{"status":"completed"}}`)
			wire.StreamError = sseEvent(`{"type":"response.failed","response":{"error":{"message":"` + llmtest.Canary + `"}}}`)
		}
		t.Run(name, func(t *testing.T) { llmtest.RunHostileSuite(t, wire) })
	}
}

// TestOtherTypes sends answers whose fields have other types than OpenAI's, as servers of other vendors do: what has another
// type counts as missing, and numbers may be written as 1.0.
func TestOtherTypes(t *testing.T) {
	p := newProviderFor(t, func(w http.ResponseWriter, _ *http.Request) {
		writeEvents(w,
			"data: {\"choices\":null,\"usage\":null}\n\n",
			deltaEvent(`{"content":[{"type":"thinking"}],"refusal":null,"tool_calls":null}`, "null"),
			deltaEvent(`null`, "null"),
			deltaEvent(`{"content":"hi","tool_calls":{}}`, `{"reason":"stop"}`),
			deltaEvent(`{"tool_calls":[{"index":0.0,"id":"c","function":{"name":"get","arguments":"{}"}}]}`, "null"),
			deltaEvent(`{"tool_calls":[{"index":0,"id":null,"function":{"name":null,"arguments":null}},{"index":0,"function":7}]}`, "null"),
			deltaEvent(`{}`, `"stop"`),
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12.0,\"completion_tokens\":1e300,\"prompt_tokens_details\":{\"cached_tokens\":\"many\"},\"completion_tokens_details\":7}}\n\n",
			"data: [DONE]\n\n")
	})
	a := llmtest.CollectAnswer(t.Context(), t, p, llmtest.UserConversation("x"))
	if a.Err != nil || a.Text != "hi" || len(a.Calls) != 1 || a.Calls[0].Name != "get" || string(a.Calls[0].Arguments) != "{}" {
		t.Errorf("the answer is %+v", a)
	}
	if a.Usage.InputTokens != 12 || a.Usage.CacheReadTokens != 0 {
		t.Errorf("the usage is %+v", a.Usage)
	}
}
