package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/document/corpus/corpustest"
)

// indexDocuments indexes documents of a document store of an app.
func (ts *testServer) indexDocuments(t *testing.T, app, store string, docs ...corpustest.Document) {
	t.Helper()
	id, err := ts.apps.FindAppID(t.Context(), app)
	if err != nil {
		t.Fatal(err)
	}
	built, _, release, err := ts.runtimes.Acquire(t.Context(), id)
	defer release()
	if err != nil {
		t.Fatal(err)
	}
	s, err := built.Documents().Store(store)
	if err != nil {
		t.Fatal(err)
	}
	corpustest.Indexer{DB: ts.db, Tenant: id, Spec: s.Spec}.Index(t, docs...)
}

// findCitations returns the value of the last member "citations" in an answer, which may be a stream; nil if there is none.
func findCitations(t *testing.T, answer string) (found []map[string]any) {
	t.Helper()
	const member = `"citations":`
	at := strings.LastIndex(answer, member)
	if at < 0 {
		return nil
	}
	if err := json.NewDecoder(strings.NewReader(answer[at+len(member):])).Decode(&found); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	return found
}

// TestCitationsInProtocols checks that every protocol shows the sources of an answer, blocking, streamed and read later: the same
// ones, and only those that the answer's marks select.
func TestCitationsInProtocols(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		h.createApp(t, "acme", `
llms:
  demo:
    provider: scripted
    script:
      - when: {text: "^warranty.$"}
        then: [{call: {tool: search_manual, arguments: {query: "warranty", limit: 5}}}]
      - when: {tool_result: search_manual}
        then: [{say: "Two years [1], and not [9]."}]
document_stores:
  manual: {source: {type: upload}}
agents:
  assistant: {llm: demo, document_stores: [manual]}
`)
		text := "The warranty lasts two years from the day of purchase."
		h.indexDocuments(t, "acme", "manual",
			corpustest.Document{ID: "warranty.md", Title: "Warranty", URL: "https://example.com/warranty", Chunks: []string{text}},
			corpustest.Document{ID: "other.md", Title: "Other", Chunks: []string{"What else is to be known about goods, batteries, parcels and the warranty of those."}},
		)
		token := h.createToken(t, "acme", "ana", nil)
		want := map[string]any{"n": 1.0, "store": "manual", "document": "warranty.md", "title": "Warranty", "url": "https://example.com/warranty", "quote": text}
		check := func(name, answer string) {
			t.Helper()
			list := findCitations(t, answer)
			if len(list) != 1 {
				t.Errorf("%s shows the citations %v in %s", name, list, answer)
				return
			}
			delete(list[0], "page") // depends on who has indexed the text
			if diff := cmp.Diff(want, list[0]); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		task := ""
		clients := h.newDialectClients(t, token)
		for _, d := range clients {
			answer := d.send("warranty?", "")
			check(d.name, answer)
			if task == "" {
				task = parseFacts(t, answer).ID
			}
		}
		for _, d := range clients {
			if d.get != nil {
				check(d.name+", read later", d.get(task))
			}
		}
		question := func(as messageStyle, id string) map[string]any {
			part := map[string]any{"text": "warranty?"}
			if as.kind != "" {
				part[as.kind] = "text"
			}
			return map[string]any{"message": map[string]any{as.id: id, "role": as.role, as.parts: []any{part}}}
		}
		for i, s := range []struct {
			name, path string
			body       func(id string) any
		}{
			{"extension stream", "/agents/assistant", func(id string) any { return newRPCCall("message/stream", question(snakeStyle, id)) }},
			{"versioned stream", "/v1/agents/assistant/message:stream", func(id string) any { return question(camelStyle, id) }},
			{"A2A stream", "/a2a/assistant", func(id string) any { return newRPCCall("SendStreamingMessage", question(a2a10Style, id)) }},
			{"OpenAI stream", "/openai/v1/chat/completions", func(string) any {
				return map[string]any{"model": "assistant", "stream": true, "messages": []any{map[string]any{"role": "user", "content": "warranty?"}}}
			}},
			{"OpenAI responses stream", "/openai/v1/responses", func(string) any { return map[string]any{"model": "assistant", "stream": true, "input": "warranty?"} }},
		} {
			status, answer := h.doRequest(t, "POST", s.path, token, s.body(fmt.Sprint("stream-", i)))
			if status != 200 {
				t.Errorf("%s: %d %s", s.name, status, answer)
				continue
			}
			check(s.name, answer)
		}
		check("WebSocket", h.sendOverWebSocket(t, token, question(camelStyle, "socket"), unknownIDs))
	})
}
