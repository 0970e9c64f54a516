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
	URL    string
	script []Turn
	open   atomic.Int64

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
func NewServer(t testing.TB, script []Turn) *Server {
	s := &Server{script: script}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.record(chat))
	mux.HandleFunc("POST /v1/responses", s.record(responses))
	mux.HandleFunc("POST /v1/messages", s.record(messages))
	mux.HandleFunc("POST /v1beta/models/{call}", s.record(generate))
	mux.HandleFunc("POST /api/chat", s.record(ollama))
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

// dialect is one of the protocols that the server speaks.
type dialect struct {
	// key returns the API key of a request.
	key func(r *http.Request) string
	// read returns what a request's body asks for, or what a real server would not accept about it.
	read func(r *http.Request, body []byte) (asked, error)
	// refuse answers with an error.
	refuse func(w http.ResponseWriter, status int, code string)
	// play answers with a turn.
	play func(w http.ResponseWriter, r *http.Request, t Turn, a asked)
}

// asked is what a request asks for.
type asked struct {
	model string
	text  string // what the conversation ends with
	tool  string // the tool whose result that is
	think bool   // the model is to think
	usage bool   // usage is to be told
}

func (s *Server) record(d dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.open.Add(1)
		defer s.open.Add(-1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.requests = append(s.requests, Request{Header: r.Header.Clone(), URL: r.URL.String(), Body: body})
		s.mu.Unlock()
		s.serve(w, r, d, body)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, d dialect, body []byte) {
	if d.key(r) != Key {
		d.refuse(w, http.StatusUnauthorized, "invalid_api_key")
		return
	}
	a, err := d.read(r, body)
	if err != nil {
		d.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	turn, ok := s.turn(a.text, a.tool)
	switch {
	case !ok:
		d.refuse(w, http.StatusUnprocessableEntity, "the script has no turn for this")
	case turn.Status != 0:
		retryAfter(w, turn)
		d.refuse(w, turn.Status, "scripted")
	default:
		d.play(w, r, turn, a)
	}
}

// refuseJSON answers with an error whose body is shaped by shape.
func refuseJSON(shape func(status int, message string) any) func(http.ResponseWriter, int, string) {
	return func(w http.ResponseWriter, status int, code string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(shape(status, Canary+": "+code))
	}
}

func bearer(r *http.Request) string {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return key
}

// id returns the id of a call, a new one where the script gives none.
func id(call agentsvc.ToolCall, prefix string) string {
	if call.ID != "" {
		return string(call.ID)
	}
	return prefix + agentsvc.NewID()
}

// thirds cuts text into three pieces, of which the first may be empty.
func thirds(text string) []string {
	r := []rune(text)
	return []string{string(r[:len(r)/3]), string(r[len(r)/3 : len(r)/2]), string(r[len(r)/2:])}
}

// object is a JSON object to write.
type object = map[string]any

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

// event writes an event that has a name.
func (s sse) event(name string, v any) {
	_, _ = io.WriteString(s.w, "event: "+name+"\n")
	s.data(v)
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
