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

// Index uploads documents and returns when they are searchable.
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
	for ctx, tick := t.Context(), time.Tick(20*time.Millisecond); !x.indexPending(t, rows, passes, byID); {
		select {
		case <-tick:
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
}

// indexPending indexes the pending documents in a pass, and reports whether none is left. A server that the test runs may
// hold the pass: then it indexes them.
func (x Indexer) indexPending(t testing.TB, rows *corpus.Store, passes *corpus.Passes, byID map[string]Document) bool {
	t.Helper()
	ctx := t.Context()
	pass, found, err := passes.Claim(ctx, "corpustest", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	if found {
		if pass.Store == x.Spec.Name {
			x.commitPending(t, rows, pass, byID)
		}
		if err := passes.Release(ctx, pass, corpus.Release{After: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	status, err := rows.Documents.StoreStatus(ctx, x.Spec.Name)
	if err != nil {
		t.Fatal(err)
	}
	if status.Failed > 0 {
		t.Fatalf("%d documents of %s have failed", status.Failed, x.Spec.Name)
	}
	return status.Pending == 0
}

// commitPending makes the pending documents searchable.
func (x Indexer) commitPending(t testing.TB, rows *corpus.Store, pass corpus.Pass, byID map[string]Document) {
	t.Helper()
	pending, err := rows.Index.NextPending(t.Context(), x.Spec.Name, "", len(byID)+1)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pending {
		x.commit(t, rows, pass, p, byID[p.ID])
	}
}

// commit makes a document searchable.
func (x Indexer) commit(t testing.TB, rows *corpus.Store, pass corpus.Pass, p corpus.PendingDocument, doc Document) {
	t.Helper()
	ctx := t.Context()
	g, err := rows.Index.EnsureStore(ctx, x.Spec)
	if err != nil {
		t.Fatal(err)
	}
	c := corpus.Commit{Document: p.ID, Revision: p.Revision, Generation: g.Target()}
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
	if err := errors.Join(rows.Index.NoteVectors(t.Context(), pass, *c), x.External.UpsertDocuments(t.Context(), c.Collection, external)); err != nil {
		t.Fatal(err)
	}
}
