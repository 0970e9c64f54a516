// Package embeddertest emulates vendors' embedding servers for tests: whatever their dialect, a text's vector counts
// its letters, so texts of the same letters are near each other.
package embeddertest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"unicode"
)

// Dimension is the length of the vectors.
const Dimension = 27

// Server speaks the dialects of openai (/embeddings), ollama (/api/embed) and cohere (/v2/embed).
type Server struct {
	*httptest.Server

	mu         sync.Mutex
	requests   []Request
	failStatus int
	embedText  func(text string) []float32
}

// Request is what a client sent.
type Request struct {
	Path, Key string
	Body      map[string]any
}

// Texts are the texts of the request.
func (r Request) Texts() (texts []string) {
	for _, field := range []string{"input", "texts"} {
		list, _ := r.Body[field].([]any)
		for _, text := range list {
			texts = append(texts, text.(string))
		}
	}
	return texts
}

// NewServer starts a server that stops with the test.
func NewServer(t testing.TB) *Server {
	s := &Server{embedText: LetterVector}
	s.Server = httptest.NewServer(http.HandlerFunc(s.handleEmbed))
	t.Cleanup(s.Close)
	return s
}

// FailWith has the server answer every request with an HTTP status, 0 for success again.
func (s *Server) FailWith(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failStatus = status
}

// SetEmbedText has the server make vectors by f.
func (s *Server) SetEmbedText(f func(text string) []float32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.embedText = f
}

// Requests returns what came in so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request{}, s.requests...)
}

// LetterVector is the vector of a text.
func LetterVector(text string) []float32 {
	v := make([]float32, Dimension)
	v[Dimension-1] = 0.1 // a text without letters has a direction as well
	for _, r := range text {
		if r = unicode.ToLower(r); r >= 'a' && r <= 'z' {
			v[r-'a']++
		}
	}
	return v
}

func (s *Server) handleEmbed(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	req := Request{Path: r.URL.Path, Key: r.Header.Get("Authorization")}
	if json.Unmarshal(raw, &req.Body) != nil {
		http.Error(w, "a secret body", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, req)
	failStatus, embedText := s.failStatus, s.embedText
	s.mu.Unlock()
	if failStatus != 0 {
		http.Error(w, "a secret body", failStatus)
		return
	}
	texts := req.Texts()
	vectors := make([]any, len(texts))
	for i, text := range texts {
		vectors[i] = embedText(text)
	}
	var answer any
	switch r.URL.Path {
	case "/embeddings":
		data := make([]any, len(vectors))
		for i, v := range vectors { // in reverse: the index tells
			data[len(data)-1-i] = map[string]any{"object": "embedding", "index": i, "embedding": v}
		}
		answer = map[string]any{"object": "list", "data": data}
	case "/api/embed":
		answer = map[string]any{"model": req.Body["model"], "embeddings": vectors}
	case "/v2/embed":
		answer = map[string]any{"id": "x", "embeddings": map[string]any{"float": vectors}}
	default:
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}
