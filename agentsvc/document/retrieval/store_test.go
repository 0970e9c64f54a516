package retrieval_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/document/corpus/corpustest"
	"stoa/agentsvc/document/retrieval"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/embedder/hashing"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/vectorstore"
	"stoa/tenancy/db"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var (
	ana = agentsvc.Owner{Issuer: "test", Subject: "ana"}
	bob = agentsvc.Owner{Issuer: "test", Subject: "bob"}
)

// testDocument is a document with its chunks.
type testDocument = corpustest.Document

// testStore is an indexed document store of the tenant acme.
type testStore struct {
	*corpus.Store
	corpustest.Indexer
}

// newTestStore indexes documents in a store named manual. Embedder and external store may be nil.
func newTestStore(t testing.TB, d *db.DB, e embedder.Embedder, external vectorstore.Store, docs ...testDocument) *testStore {
	t.Helper()
	s := &testStore{corpus.New(d, "acme", corpus.Limits{}), corpustest.Indexer{
		DB: d, Tenant: "acme", Embedder: e, External: external, Collection: collection,
		Spec: corpus.StoreSpec{Name: "manual", Source: "upload", Recipe: "r", Revision: 1},
	}}
	if e != nil {
		s.Spec.Embedder = e.Model()
	}
	s.Indexer.Index(t, docs...)
	return s
}

// collection names the collection of a generation.
func collection(generation int64) string {
	return corpus.CollectionName("acme", "manual", generation, "m")
}

// options are those of a searcher of the store.
func (s *testStore) options() retrieval.Options {
	o := retrieval.Options{Store: "manual", Corpus: s.Search, Embedder: s.Embedder, Log: slog.New(slog.DiscardHandler)}
	if s.External != nil {
		o.External, o.Collection = s.External, collection
	}
	return o
}

// newHashing returns the offline embedder.
func newHashing() embedder.Embedder { return hashing.New(embedder.Options{}) }

// scopeOf returns the scope of a run of owner.
func scopeOf(owner agentsvc.Owner) agentsvc.RunScope {
	return agentsvc.RunScope{Session: agentsvc.SessionKey{Owner: owner, Context: "c"}}
}

// search returns the documents that are found, with a page where it is not the first.
func search(t *testing.T, o retrieval.Options, q document.Query) document.Result {
	t.Helper()
	found, err := retrieval.NewSearcher(o).Search(t.Context(), scopeOf(q.Reader.Owner), q)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// documentsOf returns the ids of the documents of passages, in their order.
func documentsOf(passages []document.Passage) []string {
	ids := []string{}
	for _, p := range passages {
		ids = append(ids, p.Document)
	}
	return ids
}

// modelFunc is a model that answers with a text, or fails.
type modelFunc func(req llm.Request) (string, error)

// Stream implements [llm.Provider].
func (f modelFunc) Stream(_ context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		text, err := f(req)
		if err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		if yield(llm.Chunk{Text: text}, nil) {
			yield(llm.Chunk{Stop: llm.StopEnd}, nil)
		}
	}
}

// answer returns a model that always answers with text.
func answer(text string) llm.Provider {
	return modelFunc(func(llm.Request) (string, error) { return text, nil })
}

// fail returns a model that always fails.
func fail(err error) llm.Provider {
	return modelFunc(func(llm.Request) (string, error) { return "", err })
}

// failingEmbedder fails for a purpose.
type failingEmbedder struct {
	embedder.Embedder
	purpose embedder.Purpose
	err     error
}

// Embed implements [embedder.Embedder].
func (e failingEmbedder) Embed(ctx context.Context, payer agentsvc.Payer, p embedder.Purpose, texts []string) ([][]float32, error) {
	if p == e.purpose {
		return nil, e.err
	}
	return e.Embedder.Embed(ctx, payer, p, texts)
}

// brokenStore is a vector store that does not answer.
type brokenStore struct{ vectorstore.Store }

// Search implements [vectorstore.Store].
func (brokenStore) Search(context.Context, string, vectorstore.Query) ([]vectorstore.Match, error) {
	return nil, &vectorstore.UnavailableError{Store: "qdrant", Message: "is not reached", Err: errors.New("dial tcp 10.0.0.7:6333: refused")}
}
