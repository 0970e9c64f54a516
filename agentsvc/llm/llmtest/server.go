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
)

// Key is the API key that a [Server] wants.
const Key = "key-of-the-test"

// Server is a model server that plays a script over HTTP. It speaks OpenAI's chat completions at URL+"/v1", streamed.
type Server struct {
	URL    string
	script []Turn
	open   atomic.Int64

	mu       sync.Mutex
	requests []Request
}

// Request is what a client sent.
type Request struct {
	Header http.Header
	Body   []byte
}

// NewServer starts a server, which ends with the test.
func NewServer(t testing.TB, script []Turn) *Server {
	s := &Server{script: script}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.record(s.chatCompletions))
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	s.URL = srv.URL
	return s
}

// Open counts the requests that are being answered.
func (s *Server) Open() int { return int(s.open.Load()) }

// Requests returns what was sent so far, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

func (s *Server) record(next func(http.ResponseWriter, *http.Request, []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.open.Add(1)
		defer s.open.Add(-1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.requests = append(s.requests, Request{Header: r.Header.Clone(), Body: body})
		s.mu.Unlock()
		next(w, r, body)
	}
}

// turn returns the answer to a conversation that ends with text, which is the result of tool if that is not empty.
func (s *Server) turn(text, tool string) (Turn, bool) {
	for _, t := range s.script {
		if t.Tool == tool && (tool != "" || t.Text == text) {
			return t, true
		}
	}
	return Turn{}, false
}

// fill puts a tool result's text into a piece of an answer.
func fill(piece, result string) string { return strings.ReplaceAll(piece, "{{result}}", result) }

// sse writes server-sent events.
type sse struct {
	w http.ResponseWriter
}

func newSSE(w http.ResponseWriter) sse {
	w.Header().Set("Content-Type", "text/event-stream")
	return sse{w}
}

func (s sse) data(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	s.raw(string(text))
}

func (s sse) raw(text string) {
	_, _ = io.WriteString(s.w, "data: "+text+"\n\n")
	s.w.(http.Flusher).Flush()
}

func retryAfter(w http.ResponseWriter, t Turn) {
	if t.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(t.RetryAfter.Seconds())))
	}
}
