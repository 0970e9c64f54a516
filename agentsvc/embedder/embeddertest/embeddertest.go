// Package embeddertest emulates the vendors' embedding servers for tests, and holds the suite of all embedders
// ([RunSuite]). In every dialect, a text's vector counts its letters, so texts with the same letters are similar.
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

// Dimension is the length of the vectors: one element for each letter, and one that is never 0.
const Dimension = 27

// Server emulates OpenAI (/embeddings), Ollama (/api/embed) and Cohere (/v2/embed).
type Server struct {
	*httptest.Server

	// mu guards the fields below.
	mu         sync.Mutex
	requests   []Request
	failStatus int
	embedText  func(text string) []float32
}

// Request is one recorded request.
type Request struct {
	Path, Key string
	Body      map[string]any
}

// Texts returns the texts of the request, in any dialect.
func (r Request) Texts() (texts []string) {
	for _, field := range []string{"input", "texts"} {
		list, _ := r.Body[field].([]any)
		for _, text := range list {
			texts = append(texts, text.(string))
		}
	}
	return texts
}

// NewServer starts a server that is closed at the end of the test.
func NewServer(t testing.TB) *Server {
	s := &Server{embedText: LetterVector}
	s.Server = httptest.NewServer(http.HandlerFunc(s.handleEmbed))
	t.Cleanup(s.Close)
	return s
}

// FailWith makes the server answer every request with an HTTP status; 0 restores normal answers.
func (s *Server) FailWith(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failStatus = status
}

// SetEmbedText replaces the function that makes vectors.
func (s *Server) SetEmbedText(f func(text string) []float32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.embedText = f
}

// Requests returns the requests so far, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request{}, s.requests...)
}

// LetterVector returns the vector of a text.
func LetterVector(text string) []float32 {
	v := make([]float32, Dimension)
	v[Dimension-1] = 0.1 // a text without letters has a direction too
	for _, r := range text {
		if r = unicode.ToLower(r); r >= 'a' && r <= 'z' {
			v[r-'a']++
		}
	}
	return v
}

// handleEmbed records and answers a request. Bodies of errors contain the word "secret", which no error of an embedder
// may.
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
		for i, v := range vectors { // in reverse: a client must use the index
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
