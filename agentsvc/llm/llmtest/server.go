package llmtest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"stoa/agentsvc"
)

// Key is the API key that a [Server] requires.
const Key = "key-of-the-test"

// Server is a model server that plays a script over HTTP, streamed. Below URL+"/v1" it speaks OpenAI's chat completions
// and responses, below URL Anthropic's messages, Gemini's generateContent and Ollama's chat. It refuses what the
// vendors refuse: a missing key, a conversation out of order, a tool result without its call, a thought that is not
// returned.
type Server struct {
	URL          string
	script       []Reply
	openRequests atomic.Int64

	// mu guards requests.
	mu       sync.Mutex
	requests []Request
}

// Request is one recorded request.
type Request struct {
	Header http.Header
	URL    string
	Body   []byte
}

// NewServer starts a server that is closed at the end of the test.
func NewServer(t testing.TB, script []Reply) *Server {
	s := &Server{script: script}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.recordRequests(chatDialect))
	mux.HandleFunc("POST /v1/responses", s.recordRequests(responsesDialect))
	mux.HandleFunc("POST /v1/messages", s.recordRequests(messagesDialect))
	mux.HandleFunc("POST /v1beta/models/{call}", s.recordRequests(generateDialect))
	mux.HandleFunc("POST /api/chat", s.recordRequests(ollamaDialect))
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	s.URL = srv.URL
	return s
}

// OpenRequests returns the number of requests being answered.
func (s *Server) OpenRequests() int { return int(s.openRequests.Load()) }

// Requests returns the requests so far, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// dialect is one of the server's protocols.
type dialect struct {
	// apiKey returns the API key of a request.
	apiKey func(r *http.Request) string
	// readRequest returns what a request asks for, or an error where a real server would refuse it.
	readRequest func(r *http.Request, body []byte) (parsedRequest, error)
	// writeError answers with an error.
	writeError func(w http.ResponseWriter, status int, code string)
	// writeReply answers with a reply of the script.
	writeReply func(w http.ResponseWriter, r *http.Request, t Reply, a parsedRequest)
}

// parsedRequest is what the server needs to know of a request.
type parsedRequest struct {
	model string
	// text is the text that the conversation ends with; tool is the tool whose result that is, "" for a message.
	text string
	tool string
	// thinking reports that the request asks for thoughts.
	thinking bool
	// includeUsage reports that the request asks for usage.
	includeUsage bool
}

// recordRequests returns a handler that records requests and answers them in a dialect.
func (s *Server) recordRequests(d dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.openRequests.Add(1)
		defer s.openRequests.Add(-1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.requests = append(s.requests, Request{Header: r.Header.Clone(), URL: r.URL.String(), Body: body})
		s.mu.Unlock()
		s.serveRequest(w, r, d, body)
	}
}

// serveRequest answers a request by the script.
func (s *Server) serveRequest(w http.ResponseWriter, r *http.Request, d dialect, body []byte) {
	if d.apiKey(r) != Key {
		d.writeError(w, http.StatusUnauthorized, "invalid_api_key")
		return
	}
	a, err := d.readRequest(r, body)
	if err != nil {
		d.writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	reply, ok := s.findReply(a.text, a.tool)
	switch {
	case !ok:
		d.writeError(w, http.StatusUnprocessableEntity, "the script has no turn for this")
	case reply.Status != 0:
		setRetryAfter(w, reply)
		d.writeError(w, reply.Status, "scripted")
	default:
		d.writeReply(w, r, reply, a)
	}
}

// jsonErrorWriter returns a writeError whose body is made by shape and contains Canary.
func jsonErrorWriter(shape func(status int, message string) any) func(http.ResponseWriter, int, string) {
	return func(w http.ResponseWriter, status int, code string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(shape(status, Canary+": "+code))
	}
}

// bearerToken is the apiKey function of dialects that use the Authorization header.
func bearerToken(r *http.Request) string {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return key
}

// callID returns the id of a call, a new one if the script has none.
func callID(call agentsvc.ToolCall, prefix string) string {
	if call.ID != "" {
		return string(call.ID)
	}
	return prefix + agentsvc.NewID()
}

// splitInThree splits text into three pieces, of which the first may be empty: clients must join them.
func splitInThree(text string) []string {
	r := []rune(text)
	return []string{string(r[:len(r)/3]), string(r[len(r)/3 : len(r)/2]), string(r[len(r)/2:])}
}

// object is a JSON object to write.
type object = map[string]any

// findReply returns the reply for a conversation that ends with text, or with the result of tool if that is not empty.
func (s *Server) findReply(text, tool string) (Reply, bool) {
	for _, t := range s.script {
		if t.ToolName == tool && (tool != "" || t.UserText == text) {
			return t, true
		}
	}
	return Reply{}, false
}

// fillResult replaces {{result}} in a piece of text.
func fillResult(piece, result string) string { return strings.ReplaceAll(piece, "{{result}}", result) }

// sseWriter writes server-sent events and flushes each.
type sseWriter struct {
	w http.ResponseWriter
}

func newSSEWriter(w http.ResponseWriter) sseWriter {
	w.Header().Set("Content-Type", "text/event-stream")
	return sseWriter{w}
}

func (s sseWriter) writeJSON(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	s.writeData(string(text))
}

// writeEvent writes an event with a name.
func (s sseWriter) writeEvent(name string, v any) {
	_, _ = io.WriteString(s.w, "event: "+name+"\n")
	s.writeJSON(v)
}

func (s sseWriter) writeData(text string) {
	_, _ = io.WriteString(s.w, "data: "+text+"\n\n")
	s.w.(http.Flusher).Flush()
}

// setRetryAfter sets the Retry-After header of a reply, in seconds.
func setRetryAfter(w http.ResponseWriter, t Reply) {
	if t.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(t.RetryAfter.Seconds())))
	}
}
