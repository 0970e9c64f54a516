package retrieval

import (
	"context"
	"errors"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/words"
)

// Bounds of what a search waits for besides the platform's database.
const (
	embedTimeout    = 10 * time.Second
	externalTimeout = 5 * time.Second
	// maxExternal bounds the hits that an external store is asked for. It does not know readers and filters, so more
	// hits are requested until enough of them are left.
	maxExternal = 2000
)

// hit is a chunk of a list, with the score of its leg.
type hit struct {
	chunk string // id
	score float64
}

// list is what one leg has found for one wording, best first.
type list struct {
	hits []hit
	leg  document.Mode // Vector or Text
	// isFull means that the leg may have found more than it was asked for.
	isFull bool
}

// findChunks searches with all wordings and returns the chunks, best first, without their texts. The legs run at the same time: words need
// not wait for the embedder.
func (x *search) findChunks(ctx context.Context) ([]candidate, error) {
	texts, supposed := []string{x.query.Text}, []string(nil)
	if x.options.MultiQuery != nil || x.options.HyDE != nil && x.mode != document.Text {
		_ = x.runPart(ctx, PartExpand, func(ctx context.Context) error {
			texts, supposed = x.expandQuery(ctx)
			return nil // what failed is in the notes
		})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var byWords []list
	var wordsErr error
	var legs sync.WaitGroup
	defer legs.Wait() // after cancel has ended what is left
	defer cancel()
	if x.mode == document.Hybrid {
		legs.Go(func() { byWords, wordsErr = x.searchTexts(ctx, texts) })
	}
	var byVectors []list
	if x.mode != document.Text {
		var err error
		byVectors, err = x.searchVectors(ctx, texts, supposed)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if isCorpusError(err) {
			return nil, err
		}
		if err != nil {
			x.options.Log.WarnContext(ctx, "a document store is searched by words only", "store", x.options.Store, "error", err)
			x.notes.add(describeVectorFailure(err))
			if x.mode == document.Vector {
				byWords, wordsErr = x.searchTexts(ctx, texts)
			}
			x.mode = document.Text
		}
	} else {
		byWords, wordsErr = x.searchTexts(ctx, texts)
	}
	legs.Wait()
	if wordsErr != nil {
		return nil, wordsErr
	}
	return fuse(append(byVectors, byWords...), x.options.VectorWeight, x.options.Threshold), nil
}

// searchTexts searches by the words of each text. It may run while vectors are searched.
func (x *search) searchTexts(ctx context.Context, texts []string) (lists []list, err error) {
	for _, text := range texts {
		found, err := x.searchText(ctx, text)
		if err != nil {
			return nil, err
		}
		lists = append(lists, found)
	}
	return lists, nil
}

// searchText is the leg that searches by words.
func (x *search) searchText(ctx context.Context, text string) (l list, err error) {
	var found []corpus.Match
	var bounded bool
	err = x.runPart(ctx, PartWords, func(ctx context.Context) (err error) {
		found, bounded, err = x.options.Corpus.MatchText(ctx, x.scope, words.ExtractQuestion(text), x.candidates())
		return err
	})
	if err != nil {
		return list{}, &corpusError{err}
	}
	if bounded {
		x.notes.add("too many passages have a word of the query: not all of them were compared")
	}
	return newList(document.Text, found, x.candidates()), nil
}

// newList returns the list of the matches of a leg.
func newList(leg document.Mode, found []corpus.Match, limit int) list {
	l := list{leg: leg, isFull: len(found) >= limit, hits: make([]hit, len(found))}
	for i, m := range found {
		l.hits[i] = hit{m.Chunk, m.Score}
	}
	return l
}

// searchVectors is the leg that searches by vectors: of the wordings, and of supposed answers, which are embedded as
// texts of documents.
func (x *search) searchVectors(ctx context.Context, texts, supposed []string) (lists []list, err error) {
	var vectors [][]float32
	err = x.runPart(ctx, PartEmbed, func(ctx context.Context) (err error) {
		vectors, err = x.embedTexts(ctx, texts, supposed)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = x.runPart(ctx, PartVectors, func(ctx context.Context) (err error) {
		lists, err = x.matchVectors(ctx, vectors)
		return err
	})
	return lists, err
}

// matchVectors returns the chunks that are nearest to each of the vectors.
func (x *search) matchVectors(ctx context.Context, vectors [][]float32) (lists []list, err error) {
	isEmpty := true
	for _, v := range vectors {
		var l list
		if x.options.External != nil {
			l, err = x.searchExternal(ctx, v)
		} else {
			var found []corpus.Match
			found, err = x.options.Corpus.MatchVectors(ctx, x.scope, x.options.Model, v, x.candidates())
			l = newList(document.Vector, found, x.candidates())
			if err != nil {
				err = &corpusError{err}
			}
		}
		if err != nil {
			return nil, err
		}
		isEmpty = isEmpty && len(l.hits) == 0
		lists = append(lists, l)
	}
	if isEmpty {
		return lists, x.checkGeneration(ctx)
	}
	return lists, nil
}

// errNoVectors reports that the live generation was made with another embedder or vector store than the configured one.
var errNoVectors = errors.New("the vectors of the store are being made anew")

// checkGeneration returns errNoVectors while the store is being indexed anew. It is called if no vector was found.
func (x *search) checkGeneration(ctx context.Context) error {
	g, model, err := x.options.Corpus.Generations(ctx, x.options.Store)
	switch {
	case errors.Is(err, agentsvc.ErrNotFound):
		return nil
	case err != nil:
		return &corpusError{err}
	case g.Building != 0 || model != x.options.Model:
		return errNoVectors
	}
	return nil
}

// embedTexts returns the vectors of the query's wordings and then of the supposed answers. Without the latter the search
// goes on.
func (x *search) embedTexts(ctx context.Context, texts, supposed []string) (vectors [][]float32, err error) {
	ctx, cancel := context.WithTimeout(ctx, embedTimeout)
	defer cancel()
	payer := x.run.Payer()
	payer.Defer = x.writing.Go
	var answers [][]float32
	var group sync.WaitGroup
	if len(supposed) > 0 {
		group.Go(func() {
			var err error
			if answers, err = x.options.Embedder.Embed(ctx, payer, embedder.Document, supposed); err != nil {
				x.notes.add("the supposed answer could not be embedded")
			}
		})
	}
	vectors, err = x.options.Embedder.Embed(ctx, payer, embedder.Query, texts)
	group.Wait()
	if err != nil {
		return nil, &embedError{err}
	}
	return append(vectors, answers...), nil
}

// searchExternal searches an external store. Its hits are joined with the rows, so that only chunks that the reader may
// read get a rank; where too few are left, the store is asked for more.
func (x *search) searchExternal(ctx context.Context, vector []float32) (list, error) {
	g, _, err := x.options.Corpus.Generations(ctx, x.options.Store)
	if errors.Is(err, agentsvc.ErrNotFound) {
		return list{leg: document.Vector}, nil
	}
	if err != nil {
		return list{}, &corpusError{err}
	}
	want := x.candidates()
	for limit := want; ; limit = min(4*limit, maxExternal) {
		found, err := x.queryExternal(ctx, g.Live, vector, limit)
		if err != nil {
			return list{}, err
		}
		l := list{leg: document.Vector, isFull: len(found) >= limit}
		if l.hits, err = x.keepReadable(ctx, found); err != nil {
			return list{}, err
		}
		if len(l.hits) >= want || !l.isFull || limit == maxExternal {
			l.hits = l.hits[:min(len(l.hits), want)]
			return l, nil
		}
	}
}

// queryExternal asks the external store once.
func (x *search) queryExternal(ctx context.Context, generation int64, vector []float32, limit int) ([]vectorstore.Match, error) {
	ctx, cancel := context.WithTimeout(ctx, externalTimeout)
	defer cancel()
	// -1 is the least cosine similarity: the threshold is applied to all legs together, see fuse.
	return x.options.External.Search(ctx, x.options.Collection(generation), vectorstore.Query{Vector: vector, Limit: limit, MinScore: -1})
}

// keepReadable returns the hits whose chunks the rows have for the reader, in their order.
func (x *search) keepReadable(ctx context.Context, found []vectorstore.Match) ([]hit, error) {
	ids := make([]string, len(found))
	for i, m := range found {
		ids[i] = m.ID
	}
	chunks, err := x.options.Corpus.LoadPassages(ctx, x.scope, ids)
	if err != nil {
		return nil, &corpusError{err}
	}
	readable := make(map[string]bool, len(chunks))
	for _, c := range chunks {
		readable[c.ID] = true
	}
	var hits []hit
	for _, m := range found {
		if readable[m.ID] {
			hits = append(hits, hit{m.ID, float64(m.Score)})
			readable[m.ID] = false // a store may return an id twice
		}
	}
	return hits, nil
}

// corpusError is an error of the platform's database, without which there is no result.
type corpusError struct{ err error }

func (e *corpusError) Error() string { return "search documents: " + e.err.Error() }
func (e *corpusError) Unwrap() error { return e.err }

// isCorpusError reports whether err is of the platform's database.
func isCorpusError(err error) bool {
	var own *corpusError
	return errors.As(err, &own)
}

// embedError is an error of the embedder.
type embedError struct{ err error }

func (e *embedError) Error() string { return "embed the query: " + e.err.Error() }
func (e *embedError) Unwrap() error { return e.err }

// describeVectorFailure returns why a search left the vectors out, without internal text.
func describeVectorFailure(err error) string {
	var own *embedError
	switch {
	case errors.Is(err, errNoVectors):
		return "the documents are being indexed anew: they were searched by words only"
	case agentsvc.DetailOf[*agentsvc.ExhaustedBudget](err) != nil:
		return "a budget does not cover the embedder: the documents were searched by words only"
	case errors.As(err, &own):
		return "the embedder did not answer: the documents were searched by words only"
	}
	return "the vector store did not answer: the documents were searched by words only"
}
