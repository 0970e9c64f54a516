package faults_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/llm/llmtest"
)

// modelServer is a model vendor's server: the emulated one of llmtest, which follows a script, behind a handler with
// the faults of vendors. The user's message decides: a barrier of its name blocks the call, a fault of its name
// answers instead of the script.
type modelServer struct {
	URL      string
	barriers requestBarriers

	mu        sync.Mutex
	calls     map[string][]time.Time // times of calls, by message
	completed map[string]int         // answers sent to the last byte, by message
	faults    map[string]http.HandlerFunc
}

// modelScript returns the replies of the emulated model.
func modelScript(tools *recorder) []llmtest.Reply {
	effect := func(text, tool, name string) llmtest.Reply {
		args, _ := json.Marshal(map[string]string{"url": tools.URL + "/" + name, "method": "POST"})
		return llmtest.Reply{UserText: text, Pieces: []string{"I shall."}, Calls: []agentsvc.ToolCall{{Name: tool, Arguments: args}}}
	}
	return []llmtest.Reply{
		{UserText: "hello", Pieces: []string{"Hello ", "to ", "you."}, Usage: agentsvc.Usage{InputTokens: 10, OutputTokens: 3}},
		{UserText: "poison", Pieces: []string{"never said"}},
		effect("once", "record", "once"),
		effect("again", "repeat", "again"),
		{ToolName: "record", Pieces: []string{"It is done."}},
		{ToolName: "repeat", Pieces: []string{"It is done."}},
	}
}

func newModelServer(t testing.TB, tools *recorder) *modelServer {
	t.Helper()
	m := &modelServer{calls: map[string][]time.Time{}, completed: map[string]int{}, faults: map[string]http.HandlerFunc{}}
	back, err := url.Parse(llmtest.NewServer(t, modelScript(tools)).URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(back)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	proxy.Transport, proxy.FlushInterval = transport, -1
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {} // the caller was killed
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		requested := lastUserText(body)
		m.mu.Lock()
		m.calls[requested] = append(m.calls[requested], time.Now())
		fault := m.faults[requested]
		m.mu.Unlock()
		m.barriers.waitIfBlocked(r, requested)
		if fault != nil {
			fault(w, r)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
		if r.Context().Err() == nil {
			m.mu.Lock()
			m.completed[requested]++
			m.mu.Unlock()
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	m.URL = server.URL
	return m
}

// lastUserText returns the text of the last user message of a request.
func lastUserText(body []byte) (text string) {
	var req struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	_ = json.Unmarshal(body, &req)
	for _, m := range req.Messages {
		if m.Role != "user" {
			continue
		}
		var parts []struct{ Text string }
		if json.Unmarshal(m.Content, &text) != nil && json.Unmarshal(m.Content, &parts) == nil && len(parts) > 0 {
			text = parts[0].Text
		}
	}
	return text
}

// countCalls returns how often the model was called for a message.
func (m *modelServer) countCalls(text string) int { return len(m.callTimes(text)) }

// countCompleted returns how often the model has answered a message to the last byte.
func (m *modelServer) countCompleted(text string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.completed[text]
}

// callTimes returns when the model was called for a message.
func (m *modelServer) callTimes(text string) []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls[text])
}

// setFault makes f answer the calls for a message.
func (m *modelServer) setFault(text string, f http.HandlerFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults[text] = f
}

// respondStatus answers with an error and, unless it is "", a Retry-After header.
func respondStatus(code int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, `{"error":{"message":"`+llmtest.Canary+`"}}`)
	}
}

// hangForever accepts a call and never answers.
func hangForever(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// respondComments sends a comment a second and nothing else.
func respondComments(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for r.Context().Err() == nil {
		_, _ = io.WriteString(w, ": wait\n\n")
		w.(http.Flusher).Flush()
		time.Sleep(time.Second)
	}
}

// respondStream answers with pieces of a stream, unchanged.
func respondStream(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range pieces {
			_, _ = io.WriteString(w, p)
		}
		w.(http.Flusher).Flush()
	}
}

// respondLongLine answers with one line of 100 MB.
func respondLongLine(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: ")
	block := strings.Repeat("x", 1<<20)
	for range 100 {
		if _, err := io.WriteString(w, block); err != nil {
			return
		}
	}
	_, _ = io.WriteString(w, "\n\n")
}

// deltaEvent returns one event of a streamed chat completion.
func deltaEvent(fields string) string {
	return `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{` + fields + `},"finish_reason":null}]}` + "\n\n"
}

// finishEvents returns the events that end a chat completion with a usage.
func finishEvents(reason, usage string) string {
	return `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}` + "\n\n" +
		`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":` + usage + "}\n\ndata: [DONE]\n\n"
}
