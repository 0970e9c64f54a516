// Package corpustest indexes documents for tests without sources, extraction and passes of an indexer.
package corpustest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/vectorstore"
	"stoa/tenancy/db"
)

// Document is a document with its chunks. Each chunk is a page.
type Document struct {
	ID       string
	Title    string
	URL      string
	Chunks   []string
	Metadata map[string]string
	Access   document.Access
}

// Indexer indexes documents of one store.
type Indexer struct {
	DB     *db.DB
	Tenant db.ID
	Spec   corpus.StoreSpec
	// Embedder makes the vectors; nil = none. External has them; nil = the database.
	Embedder   embedder.Embedder
	External   vectorstore.Store
	Collection func(generation int64) string
}

// Index uploads documents and makes them searchable. The pass of the store must not be held by another.
func (x Indexer) Index(t testing.TB, docs ...Document) {
	t.Helper()
	ctx := t.Context()
	rows, passes := corpus.New(x.DB, x.Tenant, corpus.Limits{}), corpus.NewPasses(x.DB)
	if _, err := rows.Index.EnsureStore(ctx, x.Spec); err != nil {
		t.Fatal(err)
	}
	byID := map[string]Document{}
	for _, doc := range docs {
		byID[doc.ID] = doc
		u := corpus.Upload{
			ID: doc.ID, Title: doc.Title, URL: doc.URL, MediaType: "text/plain", Body: []byte(strings.Join(doc.Chunks, "\n")), Metadata: doc.Metadata, Access: doc.Access,
		}
		if _, _, err := rows.Documents.Put(ctx, x.Spec.Name, u); err != nil {
			t.Fatal(err)
		}
	}
	pass, found, err := passes.Claim(ctx, "corpustest", time.Minute, nil)
	if err != nil || !found || pass.Store != x.Spec.Name {
		t.Fatalf("claim the pass of %s: %+v, %v", x.Spec.Name, pass, err)
	}
	pending, err := rows.Index.NextPending(ctx, x.Spec.Name, "", len(docs)+1)
	if err != nil || len(pending) != len(docs) {
		t.Fatalf("%d documents are pending: %v", len(pending), err)
	}
	for _, p := range pending {
		x.commit(t, rows, pass, p, byID[p.ID])
	}
	if err := passes.Release(ctx, pass, corpus.Release{After: time.Hour}); err != nil {
		t.Fatal(err)
	}
}

// commit makes a document searchable.
func (x Indexer) commit(t testing.TB, rows *corpus.Store, pass corpus.Pass, p corpus.PendingDocument, doc Document) {
	t.Helper()
	ctx := t.Context()
	g, _, err := rows.Search.Generations(ctx, x.Spec.Name)
	if err != nil {
		t.Fatal(err)
	}
	c := corpus.Commit{Document: p.ID, Revision: p.Revision, Generation: g.Live}
	var texts []string
	at := 0
	for i, text := range doc.Chunks {
		chunk := document.Chunk{Ordinal: i, Start: at, End: at + len(text), Text: text, Place: document.Place{Page: i + 1}}
		c.Chunks = append(c.Chunks, corpus.EmbeddedChunk{Chunk: chunk})
		texts = append(texts, chunk.EmbeddedText(doc.Title))
		at += len(text) + 1
	}
	if x.Embedder != nil {
		vectors, err := x.Embedder.Embed(ctx, agentsvc.Payer{}, embedder.Document, texts)
		if err != nil {
			t.Fatal(err)
		}
		x.addVectors(t, rows, pass, &c, vectors)
	}
	if err := rows.Index.CommitDocument(ctx, pass, c); err != nil {
		t.Fatal(err)
	}
}

// addVectors adds the vectors of the chunks to a commit, or to the external store.
func (x Indexer) addVectors(t testing.TB, rows *corpus.Store, pass corpus.Pass, c *corpus.Commit, vectors [][]float32) {
	t.Helper()
	c.Model = x.Embedder.Model()
	var external []vectorstore.Document
	for i, v := range vectors {
		if x.External == nil {
			c.Chunks[i].Vector, c.Chunks[i].TextHash = v, c.Document+c.Chunks[i].Text
		}
		external = append(external, vectorstore.Document{ID: rows.Index.ChunkID(x.Spec.Name, c.Document, c.Generation, c.Revision, i), Vector: v})
	}
	if x.External == nil {
		return
	}
	c.Collection = x.Collection(c.Generation)
	if err := errors.Join(rows.Index.ReserveVectors(t.Context(), pass, *c), x.External.UpsertDocuments(t.Context(), c.Collection, external)); err != nil {
		t.Fatal(err)
	}
}
