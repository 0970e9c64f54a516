package corpus

import (
	"context"
	"errors"

	"stoa/agentsvc/document"
)

// Search finds chunks of a tenant. Reader and filter are conditions of each statement, so that they restrict what is ranked.
type Search struct{ rows }

// Scope is where a search looks: the live generation of a store, of that the documents which the reader may read and whose
// metadata has every value of the filter.
type Scope struct {
	Store  string
	Filter map[string]string
	Reader document.Reader
}

// Match is a chunk that a leg of a search has found, with the leg's score.
type Match struct {
	Chunk    string // id
	Document string
	Ordinal  int
	Score    float64
}

// MatchText returns up to limit chunks that have any of words (see package words), best first, with BM25 scores that are the
// same on both engines. bounded means that so many chunks have one of the words that not all were ranked.
func (s *Search) MatchText(ctx context.Context, scope Scope, words []string, limit int) (found []Match, bounded bool, err error) {
	return nil, false, errors.ErrUnsupported
}

// MatchVectors returns up to limit chunks by the cosine similarity of their vectors, made by model, and vector, best first. It
// compares every vector of the scope. It finds nothing in a generation whose vectors another model made.
func (s *Search) MatchVectors(ctx context.Context, scope Scope, model string, vector []float32, limit int) ([]Match, error) {
	return nil, errors.ErrUnsupported
}

// Generations returns the generations of a store, and the model of the vectors in the live one, "" = none. An external
// collection is searched for the live generation. The error is [agentsvc.ErrNotFound] if the store does not exist.
func (s *Search) Generations(ctx context.Context, store string) (g Generations, embedder string, err error) {
	return Generations{}, "", errors.ErrUnsupported
}

// FoundChunk is a chunk of a searchable document.
type FoundChunk struct {
	ID        string
	Document  string
	Title     string
	MediaType string
	URL       string
	Metadata  map[string]string
	document.Chunk
}

// LoadPassages returns the chunks with these ids, in their order. Those that are not in the scope are left out, whatever
// suggested them.
func (s *Search) LoadPassages(ctx context.Context, scope Scope, ids []string) ([]FoundChunk, error) {
	return nil, errors.ErrUnsupported
}

// Span is a range of ordinals of a document, both inclusive.
type Span struct {
	Document string
	From, To int
}

// LoadNeighbours returns the chunks of spans that are in the scope, ordered by document and ordinal.
func (s *Search) LoadNeighbours(ctx context.Context, scope Scope, spans []Span) ([]FoundChunk, error) {
	return nil, errors.ErrUnsupported
}
