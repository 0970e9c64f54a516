package indexing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/vectorstore"
)

const (
	// embedBatch is how many texts are embedded by one call, so that a document of thousands keeps what it has when a
	// later call fails. An embedder may divide it further.
	embedBatch = 100
	// maxPause is the longest wait between two batches of one document. A longer one holds the pass.
	maxPause = 10 * time.Second
	// vectorCopies is how often a vector is in memory until its document is committed: as numbers, and as the bytes that are
	// written.
	vectorCopies = 2
	// charactersPerToken estimates the tokens of a text: vendors count them differently, and not all report them.
	charactersPerToken = 4
)

// newCollectionNote returns what notes of removals have as the collection: it begins with the vector store, because who
// reads the note has to find it when the document store is gone.
func newCollectionNote(vectorStore, collection string) string { return vectorStore + "/" + collection }

// parseCollectionNote is the inverse of newCollectionNote.
func parseCollectionNote(note string) (vectorStore, collection string) {
	vectorStore, collection, _ = strings.Cut(note, "/")
	return vectorStore, collection
}

// embedChunks gives the chunks of c their vectors: those of the same texts are used again, the rest is embedded. With an
// external vector store they go there.
// memory reserves what the vectors take.
func (r documentWorker) embedChunks(ctx context.Context, memory *capacity.MemoryReservation, title string, c *corpus.Commit) error {
	c.Model = r.store.Embedder.Model()
	err := r.runStep(ctx, stepEmbed, func(ctx context.Context) error { return r.findVectors(ctx, memory, title, c) })
	if err != nil || r.store.Vectors == nil {
		return err
	}
	return r.runStep(ctx, stepStore, func(ctx context.Context) error { return r.storeVectors(ctx, c) })
}

// findVectors sets the vectors of the chunks.
func (r documentWorker) findVectors(ctx context.Context, memory *capacity.MemoryReservation, title string, c *corpus.Commit) error {
	texts, positions := map[string]string{}, map[string][]int{}
	var hashes []string
	for i := range c.Chunks {
		text := c.Chunks[i].EmbeddedText(title)
		sum := sha256.Sum256([]byte(text))
		hash := hex.EncodeToString(sum[:])
		c.Chunks[i].TextHash = hash
		if _, ok := texts[hash]; !ok {
			hashes = append(hashes, hash)
		}
		texts[hash], positions[hash] = text, append(positions[hash], i)
	}
	known, missing := map[string][]float32{}, []string(nil)
	for part := range slices.Chunk(hashes, embedBatch) {
		found, err := r.app.Rows.Index.FindVectors(ctx, c.Model, part)
		if err != nil {
			return err
		}
		if err := memory.ReserveBytes(ctx, vectorBytes(slices.Collect(maps.Values(found)))); err != nil {
			return err
		}
		maps.Copy(known, found)
	}
	for _, hash := range hashes {
		if known[hash] == nil {
			missing = append(missing, hash)
		}
	}
	for len(missing) > 0 {
		batch := missing[:min(embedBatch, len(missing))]
		missing = missing[len(batch):]
		vectors, err := r.embedBatch(ctx, batch, texts)
		if err != nil {
			return err
		}
		if err := memory.ReserveBytes(ctx, vectorBytes(vectors)); err != nil {
			return err
		}
		for i, hash := range batch {
			known[hash] = vectors[i]
		}
	}
	dimension := len(known[hashes[0]])
	for _, hash := range hashes {
		switch {
		case len(known[hash]) != dimension:
			return &embedder.Error{Vendor: c.Model, Message: fmt.Sprintf("answered with a vector of %d numbers, not %d", len(known[hash]), dimension)}
		case !hasDirection(known[hash]):
			return &embedder.Error{Vendor: c.Model, Message: "answered with a vector that has no direction"}
		}
		for _, i := range positions[hash] {
			c.Chunks[i].Vector = known[hash]
		}
	}
	return nil
}

// vectorBytes returns what vectors take in memory.
func vectorBytes(vectors [][]float32) (n int64) {
	for _, v := range vectors {
		n += 4 * int64(len(v))
	}
	return n
}

// hasDirection reports whether the similarity with v is defined: its numbers are finite, and not all of them 0.
func hasDirection(v []float32) bool {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return sum > 0 && !math.IsInf(sum, 0) && !math.IsNaN(sum)
}

// embedBatch embeds the texts of hashes. What does not answer for a moment is asked again.
func (r documentWorker) embedBatch(ctx context.Context, hashes []string, texts map[string]string) ([][]float32, error) {
	batch := make([]string, len(hashes))
	var characters int64
	for i, hash := range hashes {
		batch[i] = texts[hash]
		characters += int64(utf8.RuneCountInString(texts[hash]))
	}
	ctx, span := startSpan(ctx, "embed texts", attribute.Int("stoa.texts", len(batch)))
	vectors, err := r.embedRetrying(ctx, batch)
	endSpan(span, err)
	if err != nil {
		return nil, err
	}
	// The statistics are not worth a failure of the document.
	if err := r.app.Rows.Index.AddEmbeddedTokens(ctx, r.pass.Store, (characters+charactersPerToken-1)/charactersPerToken); err != nil && ctx.Err() == nil {
		r.log().WarnContext(ctx, "the tokens of an embedding were not counted", "error", err)
	}
	return vectors, nil
}

// embedRetrying embeds texts. Once something was embedded in this slice, it repeats a call that may succeed in a moment:
// otherwise a document of many batches would begin again with each refusal.
func (r documentWorker) embedRetrying(ctx context.Context, batch []string) ([][]float32, error) {
	for attempt := 1; ; attempt++ {
		vectors, err := r.store.Embedder.Embed(ctx, agentsvc.Payer{}, embedder.Document, batch)
		if err == nil && len(vectors) != len(batch) {
			err = &embedder.Error{Vendor: r.store.Embedder.Model(), Message: fmt.Sprintf("answered with %d vectors for %d texts", len(vectors), len(batch))}
		}
		if err == nil {
			return vectors, nil
		}
		f := newFailure(&stepError{stepEmbed, err})
		pause := r.retry().delay(attempt, f.retryAfter)
		if ctx.Err() != nil || !r.answered.Load() || f.consequence != doubtful && f.retryAfter == 0 || attempt > r.retry().MaxRetries || pause > maxPause {
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// storeVectors writes the vectors of c to the external vector store and takes them out of c. Notes in the database have
// them removed again if the commit never happens.
func (r documentWorker) storeVectors(ctx context.Context, c *corpus.Commit) error {
	index := r.app.Rows.Index
	docs := make([]vectorstore.Document, len(c.Chunks))
	for i := range c.Chunks {
		docs[i] = vectorstore.Document{ID: index.ChunkID(r.pass.Store, c.Document, c.Generation, c.Revision, c.Chunks[i].Ordinal), Vector: c.Chunks[i].Vector}
		c.Chunks[i].Vector, c.Chunks[i].TextHash = nil, ""
	}
	if err := index.NoteVectors(ctx, r.pass, *c); err != nil {
		return err
	}
	return r.store.Vectors.UpsertDocuments(ctx, r.store.Collection(c.Generation), docs)
}
