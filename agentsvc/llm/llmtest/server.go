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

// Key is the API key that a [Server] wants.
const Key = "key-of-the-test"

// Server is a model server that plays a script over HTTP, streamed. It speaks OpenAI's chat completions and responses at
// URL+"/v1", and at URL Anthropic's messages, Gemini's generateContent and Ollama's chat. It refuses what the vendors
// refuse: a missing key, a conversation out of order, a tool result without its call, a thought that is not given back.
type Server struct {
	URL          string
	script       []Reply
	openRequests atomic.Int64

	mu       sync.Mutex
	requests []Request
}

// Request is what a client sent.
type Request struct {
	Header http.Header
	URL    string
	Body   []byte
}

// NewServer starts a server, which ends with the test.
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

// OpenRequests counts the requests that are being answered.
func (s *Server) OpenRequests() int { return int(s.openRequests.Load()) }

// Requests returns what was sent so far, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// dialect is one of the protocols that the server speaks.
type dialect struct {
	// apiKey returns the API key of a request.
	apiKey func(r *http.Request) string
	// readRequest returns what a request's body asks for, or what a real server would not accept about it.
	readRequest func(r *http.Request, body []byte) (parsedRequest, error)
	// writeError answers with an error.
	writeError func(w http.ResponseWriter, status int, code string)
	// writeReply answers with a turn.
	writeReply func(w http.ResponseWriter, r *http.Request, t Reply, a parsedRequest)
}

// parsedRequest is what a request asks for.
type parsedRequest struct {
	model        string
	text         string // what the conversation ends with
	tool         string // the tool whose result that is
	thinking     bool   // the model is to think
	includeUsage bool   // includeUsage is to be told
}

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

// jsonErrorWriter answers with an error whose body is shaped by shape.
func jsonErrorWriter(shape func(status int, message string) any) func(http.ResponseWriter, int, string) {
	return func(w http.ResponseWriter, status int, code string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(shape(status, Canary+": "+code))
	}
}

func bearerToken(r *http.Request) string {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return key
}

// callID returns the id of a call, a new one where the script gives none.
func callID(call agentsvc.ToolCall, prefix string) string {
	if call.ID != "" {
		return string(call.ID)
	}
	return prefix + agentsvc.NewID()
}

// splitInThree cuts text into three pieces, of which the first may be empty.
func splitInThree(text string) []string {
	r := []rune(text)
	return []string{string(r[:len(r)/3]), string(r[len(r)/3 : len(r)/2]), string(r[len(r)/2:])}
}

// object is a JSON object to write.
type object = map[string]any

// findReply returns the answer to a conversation that ends with text, which is the result of tool if that is not empty.
func (s *Server) findReply(text, tool string) (Reply, bool) {
	for _, t := range s.script {
		if t.ToolName == tool && (tool != "" || t.UserText == text) {
			return t, true
		}
	}
	return Reply{}, false
}

// fillResult puts a tool result's text into a piece of an answer.
func fillResult(piece, result string) string { return strings.ReplaceAll(piece, "{{result}}", result) }

// sseWriter writes server-sent events.
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

// writeEvent writes an event that has a name.
func (s sseWriter) writeEvent(name string, v any) {
	_, _ = io.WriteString(s.w, "event: "+name+"\n")
	s.writeJSON(v)
}

func (s sseWriter) writeData(text string) {
	_, _ = io.WriteString(s.w, "data: "+text+"\n\n")
	s.w.(http.Flusher).Flush()
}

func setRetryAfter(w http.ResponseWriter, t Reply) {
	if t.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(t.RetryAfter.Seconds())))
	}
}
