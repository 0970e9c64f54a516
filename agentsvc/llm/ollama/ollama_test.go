package ollama_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/llmtest"
	"stoa/agentsvc/llm/ollama"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newProvider(t *testing.T, opts ollama.Options) *ollama.Provider {
	t.Helper()
	if opts.HTTP == nil {
		opts.HTTP = llmtest.NewLocalClient(t)
	}
	p, err := ollama.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSuite(t *testing.T) {
	llmtest.RunSuite(t, func(t *testing.T, script []llmtest.Reply) llmtest.Subject {
		srv := llmtest.NewServer(t, script)
		return llmtest.Subject{Provider: newProvider(t, ollama.Options{BaseURL: srv.URL, APIKey: llmtest.Key}), OpenRequests: srv.OpenRequests}
	})
}

// TestToolSchema checks that the part of a schema that the server reads is sent in the form it reads, that the rest is
// not sent, and that a schema for which the server would refuse the whole request is refused before.
func TestToolSchema(t *testing.T) {
	t.Parallel()
	srv := llmtest.NewServer(t, []llmtest.Reply{{UserText: "hi", Pieces: []string{"ok"}}})
	send := func(schema string) error {
		for _, err := range newProvider(t, ollama.Options{BaseURL: srv.URL}).Stream(t.Context(), llm.Request{
			Tools:        []agentsvc.ToolSpec{{Name: "get", Parameters: []byte(schema)}},
			Conversation: []agentsvc.Entry{{Message: &agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{{Text: "hi"}}}}},
		}) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	for _, schema := range []string{`{"type":"object","required":"q"}`, `{"type":"object","properties":{"q":{"type":7}}}`, `{"type":"object","properties":{"q":{"type":["string",7]}}}`} {
		if err := send(schema); !errors.Is(err, agentsvc.CodeInvalid) {
			t.Errorf("%s: %v", schema, err)
		}
	}
	if err := send(`{"type":"object","title":"T","$defs":{"d":{"type":"string"}},"additionalProperties":false,"properties":{"a":{"anyOf":[{"type":"string"},{"type":["number","null"]}],"default":1},"b":{"type":"array","items":{"$ref":"#/$defs/d"},"enum":[["x"]],"description":"D"}}}`); err != nil {
		t.Fatal(err)
	}
	llmtest.RequireSameJSON(t, `{"model":"qwen3","options":{},"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"get","parameters":{
		"type":"object","$defs":{"d":{"type":"string"}},"properties":{"a":{"anyOf":[{"type":"string"},{"type":["number","null"]}]},"b":{"type":"array","items":{"$ref":"#/$defs/d"},"enum":[["x"]],"description":"D"}}
	}}}]}`, srv.Requests()[0].Body)
}

func ndjsonLine(data string) string { return data + "\n" }

func TestHostileServers(t *testing.T) {
	llmtest.RunHostileSuite(t, llmtest.WireFormat{
		Provider: func(t *testing.T, base string, client *http.Client) llm.Provider {
			return newProvider(t, ollama.Options{BaseURL: base, HTTP: client})
		},
		Event: ndjsonLine,
		Text:  func(text string) string { return ndjsonLine(fmt.Sprintf(`{"message":{"content":%q}}`, text)) },
		Call: func(_ int, name, text string) string {
			return ndjsonLine(fmt.Sprintf(`{"message":{"tool_calls":[{"function":{"name":%q,"arguments":%s}}]}}`, name, text))
		},
		End:         ndjsonLine(`{"done":true,"done_reason":"stop"}`),
		StreamError: ndjsonLine(`{"error":"` + llmtest.Canary + `"}`),
		Comment:     "\n",
	})
}

// TestNothingFromEnvironment also provides a key of the operator's account, with which the official client would sign.
func TestNothingFromEnvironment(t *testing.T) {
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".ollama"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".ollama", "id_ed25519"), []byte("canary-of-the-operator"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	llmtest.RequireEnvironmentIgnored(t, []string{"OLLAMA_HOST", "OLLAMA_AUTH", "OLLAMA_API_KEY", "OLLAMA_MODELS"}, http.StatusOK, func(url string) llm.Provider {
		return newProvider(t, ollama.Options{BaseURL: url})
	})
}

func TestRequest(t *testing.T) {
	t.Parallel()
	srv := llmtest.NewServer(t, []llmtest.Reply{{UserText: "look", Pieces: []string{"ok"}, Stop: llm.StopLength, Usage: agentsvc.Usage{InputTokens: 7, OutputTokens: 3}}})
	half := 0.5
	p := newProvider(t, ollama.Options{Name: "mine", BaseURL: srv.URL + "/", Model: "m", Temperature: &half, MaxTokens: 9})
	var usage *agentsvc.Usage
	for c, err := range p.Stream(t.Context(), llm.Request{
		System: "Be kind.",
		Tools: []agentsvc.ToolSpec{
			{Name: "bare"},
			{Name: "get", Description: "gets", Parameters: []byte(`{"type":"object","properties":{"q":{"type":["string","null"]},"o":{"type":"object","properties":{"deep":{"type":"number"}}}},"required":["q"]}`)},
		},
		Conversation: []agentsvc.Entry{
			{Message: &agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{{Text: "data "}, {Data: &agentsvc.Data{Value: map[string]any{"a": 1.0}}}}}},
			{Message: &agentsvc.Message{Role: agentsvc.RoleAgent, ToolCalls: []agentsvc.ToolCall{{ID: "c1", Name: "get", Arguments: []byte(`{"z":1,"a":2}`)}}}},
			{Result: &agentsvc.ToolResult{Call: "c1", Name: "get", Text: "found"}},
			{Message: &agentsvc.Message{Role: agentsvc.RoleAgent, Parts: []agentsvc.Part{{File: &agentsvc.File{Name: "made.pdf"}}}}},
			{Message: &agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{{Text: "look"}, {File: &agentsvc.File{MediaType: "image/png", Bytes: []byte("hi")}}}}},
		},
	}) {
		if err != nil {
			t.Error(err)
		}
		if c.Usage != nil {
			usage = c.Usage
		}
	}
	llmtest.RequireSameJSON(t, `{
		"model": "m", "options": {"temperature": 0.5, "num_predict": 9},
		"tools": [
			{"type": "function", "function": {"name": "bare", "parameters": {"type": "object", "properties": {}}}},
			{"type": "function", "function": {"name": "get", "description": "gets", "parameters": {
				"type": "object", "required": ["q"],
				"properties": {"q": {"type": ["string", "null"]}, "o": {"type": "object", "properties": {"deep": {"type": "number"}}}}
			}}}
		],
		"messages": [
			{"role": "system", "content": "Be kind."},
			{"role": "user", "content": "data {\"a\":1}"},
			{"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": {"index": 0, "name": "get", "arguments": {"z": 1, "a": 2}}}]},
			{"role": "tool", "content": "found", "tool_name": "get", "tool_call_id": "c1"},
			{"role": "user", "content": "look", "images": ["aGk="]}
		]
	}`, srv.Requests()[0].Body)
	if diff := cmp.Diff(&agentsvc.Usage{Provider: "mine", Model: "m", InputTokens: 7, OutputTokens: 3}, usage); diff != "" {
		t.Error(diff)
	}
}
