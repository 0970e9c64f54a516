// Package retrieval searches document stores. A [Searcher] searches one store: it asks the words and the vectors of the
// store separately (legs), fuses their lists by reciprocal rank, and returns passages that the reader may read.
//
// A search has these steps, each in a file of its own:
//
//  1. query.go checks the query and selects the mode.
//  2. model.go asks models for further wordings (multi-query) and for a supposed answer (HyDE).
//  3. leg.go searches by words and by vectors, in the platform's database or in an external vector store.
//  4. fuse.go fuses the lists; collapse.go removes near-duplicates.
//  5. model.go lets a model put the passages in order (rerank).
//  6. join.go joins adjacent chunks of a document to one passage.
//
// What a search can do without never fails it: a model, an embedder or a vector store that does not answer, or a budget
// that is used up, leaves its part out, and [document.Result].Degraded says so. The platform's database is the source of
// truth: without it there is no result, and nothing that only an external store knows is returned.
//
// For agents, [NewTool] makes a store a tool of the model, and [Context] puts passages before the model without being
// asked. Both number the passages in the turn (see [agentsvc.SourceRecorder]) and quote them as data (quote.go).
package retrieval

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/trail"
	"stoa/agentsvc/vectorstore"
)

// Corpus is what a search needs of the rows of a tenant. [*corpus.Search] implements it.
type Corpus interface {
	MatchText(ctx context.Context, scope corpus.Scope, words []string, limit int) (found []corpus.Match, bounded bool, err error)
	MatchVectors(ctx context.Context, scope corpus.Scope, model string, vector []float32, limit int) ([]corpus.Match, error)
	Generations(ctx context.Context, store string) (g corpus.Generations, embedder string, err error)
	LoadPassages(ctx context.Context, scope corpus.Scope, ids []string) ([]corpus.FoundChunk, error)
}

// Options configure a [Searcher]. Store and Corpus are required; the other fields switch parts on.
type Options struct {
	Store  string
	Corpus Corpus
	// Embedder makes the vectors of queries; nil: the store is searched by words only. Model is what the rows know as the
	// model of the vectors, Embedder.Model() if empty.
	Embedder embedder.Embedder
	Model    string
	// VectorWeight is how much vectors count relative to words, 0 = 1. It is less for an embedder that knows nothing but
	// words itself.
	VectorWeight float64
	// External has the vectors; nil: the platform's database has them. Collection returns the collection of a generation.
	External   vectorstore.Store
	Collection func(generation int64) string

	// TopK is the number of passages of a query without a limit, 0 = 10.
	TopK int
	// Threshold is the least cosine similarity of a passage, where vectors are searched.
	Threshold float64
	// HyDE makes up an answer to search with; nil: off.
	HyDE llm.Provider
	// Rerank puts the passages in order; nil: off. It gets RerankMaxResults passages, 0 = 20.
	Rerank           llm.Provider
	RerankMaxResults int
	// MultiQuery makes up MultiQueryCount further wordings, 0 = 3; nil: off.
	MultiQuery      llm.Provider
	MultiQueryCount int

	Hooks Hooks
	Log   *slog.Logger
}

// Bounds of a search.
const (
	// maxQueryBytes bounds the text of a query.
	maxQueryBytes = 8 << 10
	// maxLimit bounds the passages of a result.
	maxLimit = 100
	// maxFilter bounds the values of a filter, maxFilterBytes each of its names and values.
	maxFilter      = 20
	maxFilterBytes = 512
	// maxWordings bounds the further wordings of a query.
	maxWordings = 10
	// minCandidates is the least number of chunks that each leg is asked for, so that the lists overlap.
	minCandidates = 50
)

// Searcher searches one document store. It is immutable and safe for concurrent use.
type Searcher struct{ options Options }

// NewSearcher returns a searcher.
func NewSearcher(o Options) *Searcher {
	set := func(field *int, value, maximum int) {
		if *field <= 0 {
			*field = value
		}
		*field = min(*field, maximum)
	}
	set(&o.TopK, 10, maxLimit)
	set(&o.RerankMaxResults, 20, maxLimit)
	set(&o.MultiQueryCount, 3, maxWordings)
	if o.VectorWeight == 0 {
		o.VectorWeight = 1
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Model == "" && o.Embedder != nil {
		o.Model = o.Embedder.Model()
	}
	return &Searcher{o}
}

// Search returns the passages that match q, best first. The run of scope pays for it. The error has
// [agentsvc.CodeInvalid] if the query cannot be searched, and is the database's otherwise.
func (s *Searcher) Search(ctx context.Context, scope agentsvc.RunScope, q document.Query) (result document.Result, err error) {
	ctx, span := trail.StartSpan(ctx, "search documents")
	defer func() { trail.EndSpan(span, err) }()
	mode, note, err := s.checkQuery(&q)
	if err != nil {
		return document.Result{}, err
	}
	x := &search{Searcher: s, run: scope, query: q, mode: mode, scope: corpus.Scope{Store: s.options.Store, Filter: q.Filter, Reader: q.Reader}}
	x.notes.add(note)
	began := time.Now()
	defer func() { x.reportEnd(began, err) }()
	// The usage of the embedder is written while the vectors are compared, and before the search is answered.
	defer x.writing.Wait()
	if !hasWords(q.Text) {
		x.notes.add("the query has no words to search for")
		return x.newResult(nil), nil
	}
	fused, err := x.findChunks(ctx)
	if err != nil {
		return document.Result{}, err
	}
	passages, err := x.loadPassages(ctx, fused)
	if err != nil {
		return document.Result{}, err
	}
	return x.newResult(passages), nil
}

// search is the state of one search. It is used by one goroutine, except where a method says otherwise.
type search struct {
	*Searcher
	run   agentsvc.RunScope
	query document.Query
	mode  document.Mode
	scope corpus.Scope
	notes notes
	// writing are the writes of usage under way.
	writing sync.WaitGroup
}

// newResult returns the result with the notes of the search.
func (x *search) newResult(passages []document.Passage) document.Result {
	return document.Result{Passages: passages, Mode: x.mode, Degraded: x.notes.String()}
}

// candidates is the number of chunks that each leg is asked for.
func (x *search) candidates() int {
	n := max(minCandidates, 3*x.query.Limit)
	if x.options.Rerank != nil {
		n = max(n, x.options.RerankMaxResults)
	}
	return n
}
