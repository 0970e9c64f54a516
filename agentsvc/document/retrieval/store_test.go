package retrieval_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
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
type testDocument struct {
	id       string
	title    string
	chunks   []string
	metadata map[string]string
	access   document.Access
}

// testStore is an indexed document store of the tenant acme.
type testStore struct {
	*corpus.Store
	passes   *corpus.Passes
	embedder embedder.Embedder // nil = none
	external vectorstore.Store // nil = none
}

// newTestStore indexes documents in a store named manual.
func newTestStore(t *testing.T, d *db.DB, e embedder.Embedder, external vectorstore.Store, docs ...testDocument) *testStore {
	t.Helper()
	s := &testStore{corpus.New(d, "acme", corpus.Limits{}), corpus.NewPasses(d), e, external}
	spec := corpus.StoreSpec{Name: "manual", Source: "upload", Recipe: "r", Revision: 1}
	if e != nil {
		spec.Embedder = e.Model()
	}
	if _, err := s.Index.EnsureStore(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	s.add(t, docs...)
	return s
}

// add uploads and indexes documents.
func (s *testStore) add(t *testing.T, docs ...testDocument) {
	t.Helper()
	ctx := t.Context()
	byID := map[string]testDocument{}
	for _, doc := range docs {
		byID[doc.id] = doc
		u := corpus.Upload{ID: doc.id, Title: doc.title, MediaType: "text/plain", Body: []byte("x"), Metadata: doc.metadata, Access: doc.access}
		if _, _, err := s.Documents.Put(ctx, "manual", u); err != nil {
			t.Fatal(err)
		}
	}
	pass, found, err := s.passes.Claim(ctx, "test", time.Minute, nil)
	if err != nil || !found {
		t.Fatalf("claim a pass: %v, %v", found, err)
	}
	pending, err := s.Index.NextPending(ctx, "manual", "", len(docs)+1)
	if err != nil || len(pending) != len(docs) {
		t.Fatalf("%d documents are pending: %v", len(pending), err)
	}
	for _, p := range pending {
		s.commit(t, pass, p, byID[p.ID])
	}
	if err := s.passes.Release(ctx, pass, corpus.Release{After: time.Hour}); err != nil {
		t.Fatal(err)
	}
}

// collection names the collection of a generation.
func collection(generation int64) string {
	return corpus.CollectionName("acme", "manual", generation, "m")
}

// commit indexes a document.
func (s *testStore) commit(t *testing.T, pass corpus.Pass, p corpus.PendingDocument, doc testDocument) {
	t.Helper()
	ctx := t.Context()
	g, _, err := s.Search.Generations(ctx, "manual")
	if err != nil {
		t.Fatal(err)
	}
	c := corpus.Commit{Document: p.ID, Revision: p.Revision, Generation: g.Live}
	at := 0
	for i, text := range doc.chunks {
		chunk := document.Chunk{Ordinal: i, Start: at, End: at + len(text), Text: text, Place: document.Place{Page: i + 1}}
		c.Chunks = append(c.Chunks, corpus.EmbeddedChunk{Chunk: chunk})
		at += len(text) + 1
	}
	if s.embedder != nil {
		c.Model = s.embedder.Model()
		vectors, err := s.embedder.Embed(ctx, agentsvc.Payer{}, embedder.Document, doc.chunks)
		if err != nil {
			t.Fatal(err)
		}
		var external []vectorstore.Document
		for i, v := range vectors {
			if s.external == nil {
				c.Chunks[i].Vector, c.Chunks[i].TextHash = v, p.ID+doc.chunks[i]
			}
			external = append(external, vectorstore.Document{ID: s.Index.ChunkID("manual", p.ID, g.Live, p.Revision, i), Vector: v})
		}
		if s.external != nil {
			c.Collection = collection(g.Live)
			if err := errors.Join(s.Index.ReserveVectors(ctx, pass, c), s.external.UpsertDocuments(ctx, c.Collection, external)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Index.CommitDocument(ctx, pass, c); err != nil {
		t.Fatal(err)
	}
}

// options are those of a searcher of the store.
func (s *testStore) options() retrieval.Options {
	o := retrieval.Options{Store: "manual", Corpus: s.Search, Embedder: s.embedder, Log: slog.New(slog.DiscardHandler)}
	if s.external != nil {
		o.External, o.Collection = s.external, collection
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
