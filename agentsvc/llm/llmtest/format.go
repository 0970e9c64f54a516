package llmtest

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// CityFormat is an output format with a schema that every vendor's mode takes.
var CityFormat = &llm.OutputFormat{
	Name: "the place", Strict: true, Prompt: "Answer as JSON with a city.",
	Schema: map[string]any{
		"type": "object", "required": []any{"city"}, "additionalProperties": false,
		"properties": map[string]any{"city": map[string]any{"type": "string"}},
	},
}

// SendFormat makes a call with an output format and the system prompt "Be kind." to a server that newProvider gets the
// address of, and returns the members of the request's body that keys name.
func SendFormat(t *testing.T, newProvider func(url string) llm.Provider, f *llm.OutputFormat, tools []agentsvc.ToolSpec, keys ...string) string {
	t.Helper()
	srv := NewServer(t, []Reply{{UserText: "where", Pieces: []string{`{"city":`, `"Rome"}`}}})
	var text string
	for c, err := range newProvider(srv.URL).Stream(t.Context(), llm.Request{System: "Be kind.", Conversation: []agentsvc.Entry{newMessage(agentsvc.RoleUser, "where")}, Output: f, Tools: tools}) {
		if err != nil {
			t.Error(err)
		}
		text += c.Text
	}
	if text != `{"city":"Rome"}` {
		t.Errorf("text = %q", text)
	}
	var body map[string]any
	if err := json.Unmarshal(srv.Requests()[0].Body, &body); err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	for _, key := range keys {
		if body[key] != nil {
			got[key] = body[key]
		}
	}
	out, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// RequireFormatRefusal checks that an answer of the vendor's server that refuses an output format becomes an error with
// the given reason that is not retried and quotes nothing.
func RequireFormatRefusal(t *testing.T, newProvider func(url string) llm.Provider, status int, body, reason string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(srv.Close)
	var last error
	for _, err := range newProvider(srv.URL).Stream(t.Context(), llm.Request{Conversation: UserConversation("where"), Output: CityFormat}) {
		last = err
	}
	var e *llm.Error
	if !errors.As(last, &e) || e.Reason != reason || e.Retryable || e.Provider == "" {
		t.Errorf("%d %s: error = %v, want %q", status, body, last, reason)
	}
}
