package corpus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"stoa/agentsvc/document"
	"stoa/agentsvc/words"
	"stoa/tenancy/db"
)

// EmbeddedChunk is a chunk with its vector, nil if the store has no embedder. A vector that an external store has may be given
// as well: it is stored for [Index.FindVectors].
type EmbeddedChunk struct {
	document.Chunk
	// Vector is normalised when it is stored.
	Vector []float32
	// TextHash identifies the text that was embedded, for [Index.FindVectors]; "" without a vector.
	TextHash string
}

// Commit is an indexed document.
type Commit struct {
	Document   string // its id
	Revision   int64  // that was indexed
	Generation int64
	// Title, if not empty, replaces the title of a document that has none.
	Title     string
	MediaType string // as Title
	// Model identifies what made the vectors: provider, model, dimension and prefix. "" = there are none.
	Model string
	// Collection is the collection of the external vector store that has the vectors, "" = this database.
	Collection string
	Chunks     []EmbeddedChunk
	// ContentHash is the hex SHA-256 of the content, for documents that were not uploaded.
	ContentHash string
}

// ChunkID returns the id of a chunk: a UUID version 5 (RFC 9562) of its place in the corpus.
func (r rows) ChunkID(store, document string, generation, revision int64, ordinal int) string {
	name := make([]byte, 0, 128)
	for _, part := range [...]string{r.tenant, store, document} {
		name = append(strconv.AppendQuote(name, part), ' ')
	}
	for _, part := range [...]int64{generation, revision} {
		name = append(strconv.AppendInt(name, part, 10), ' ')
	}
	return uuid.NewSHA1(chunkNamespace, strconv.AppendInt(name, int64(ordinal), 10)).String()
}

// ReserveVectors must be called before vectors are sent to an external store: it notes the chunks' vectors for removal, and
// [Index.CommitDocument] deletes the notes. Vectors of a commit that never happened are therefore removed later.
func (x *Index) ReserveVectors(ctx context.Context, pass Pass, c Commit) error {
	if c.Collection == "" || len(c.Chunks) == 0 {
		return nil
	}
	list := make([][]any, len(c.Chunks))
	for i, chunk := range c.Chunks {
		list[i] = []any{x.tenant, pass.Store, c.Collection, x.ChunkID(pass.Store, c.Document, c.Generation, c.Revision, chunk.Ordinal), int64(0)}
	}
	return x.runTx(ctx, "note vectors that are about to be stored", func(t *tx) error {
		if err := t.lockPass(ctx, pass); err != nil {
			return err
		}
		if err := t.InsertRows(ctx, reservationTarget, list...); err != nil {
			return err
		}
		// By the database's clock, and also for notes of an attempt before this one.
		_, err := t.Exec(ctx, `UPDATE removed_chunk SET available_at = stoa_now() + $5 WHERE tenant = $1 AND store = $2 AND collection = $3 AND `+t.inList("chunk", "$4"),
			t.tenant, pass.Store, c.Collection, encodeJSON(chunkIDs(list)), reservationTime.Microseconds())
		return err
	})
}

// CommitDocument makes a revision of a document searchable in a generation, in place of the revision before, whose chunks it
// deletes. It renews the lease. Errors: [ErrPassLost], [ErrDocumentChanged] (a deletion or a newer version wins),
// [agentsvc.CodeExhausted] naming the limit.
func (x *Index) CommitDocument(ctx context.Context, pass Pass, c Commit) error {
	if err := c.check(); err != nil {
		return err
	}
	return x.runTx(ctx, "make a document searchable", func(t *tx) error { return t.commitDocument(ctx, x, pass, c) })
}

// chunkNamespace is the name space of the ids of chunks. It was chosen at random and never changes.
var chunkNamespace = uuid.MustParse("5c1d0a3e-7b1f-4a86-9d53-0f8f2c6f4e21")

// reservationTime is how long a commit may follow its [Index.ReserveVectors] before its vectors count as left over. It is
// longer than any lease.
const reservationTime = 15 * time.Minute

var (
	reservationTarget = db.NewInsertTarget("removed_chunk", "tenant TEXT, store TEXT, collection TEXT, chunk TEXT, available_at BIGINT",
		"tenant, store, collection, chunk")
	chunkTarget = db.NewInsertTarget("chunk", `tenant TEXT, store TEXT, document TEXT, generation BIGINT, revision BIGINT, ordinal BIGINT, id TEXT, start_at BIGINT,
		end_at BIGINT, page BIGINT, heading TEXT, sheet TEXT, line BIGINT, word_count BIGINT, words TEXT, text TEXT`, "")
	vectorTarget = db.NewInsertTarget("chunk_vector", `tenant TEXT, store TEXT, document TEXT, generation BIGINT, revision BIGINT, ordinal BIGINT, id TEXT, model TEXT,
		text_hash TEXT, vector BYTEA`, "")
)

// chunkIDs returns the ids of rows of reservationTarget.
func chunkIDs(list [][]any) []string {
	ids := make([]string, len(list))
	for i, row := range list {
		ids[i] = row[3].(string)
	}
	return ids
}

// check returns an error for a commit that the indexer must not make.
func (c Commit) check() error {
	seen := make(map[int]bool, len(c.Chunks))
	dimension := 0
	for _, chunk := range c.Chunks {
		switch {
		case chunk.Ordinal < 0 || seen[chunk.Ordinal]:
			return fmt.Errorf("document %q has the chunk %d twice", c.Document, chunk.Ordinal)
		case len(chunk.Vector) > 0 && c.Model == "":
			return fmt.Errorf("document %q has vectors of no model", c.Document)
		case len(chunk.Vector) > 0 && dimension > 0 && len(chunk.Vector) != dimension:
			return fmt.Errorf("document %q has vectors of %d and %d numbers", c.Document, dimension, len(chunk.Vector))
		}
		seen[chunk.Ordinal] = true
		dimension = max(dimension, len(chunk.Vector))
	}
	return nil
}

// size returns about how many bytes the rows of c have: the words of a chunk are about as long as its text.
func (c Commit) size() (n int64) {
	for _, chunk := range c.Chunks {
		n += int64(2*len(chunk.Text) + 4*len(chunk.Vector))
	}
	return n
}

// commitDocument carries out [Index.CommitDocument].
func (t *tx) commitDocument(ctx context.Context, x *Index, pass Pass, c Commit) error {
	var revision int64
	title, found := "", false
	err := t.Query(ctx, func(r db.Row) error {
		found = true
		return r.Scan(&revision, &title)
	}, `SELECT revision, title FROM document WHERE tenant = $1 AND store = $2 AND id = $3`+t.lockRow(), t.tenant, pass.Store, c.Document)
	if err != nil {
		return err
	}
	if err := t.lockPass(ctx, pass); err != nil {
		return err
	}
	var g Generations
	var live, others int64 // the revision that is live in the generation, the number of chunks of other documents
	err = t.Query(ctx, func(r db.Row) error { return r.Scan(&g.Live, &g.Building, &live, &others) }, `SELECT generation, building,
			COALESCE((SELECT revision FROM document_live WHERE tenant = $1 AND store = $2 AND document = $3 AND generation = $4), 0),
			(SELECT CAST(COALESCE(SUM(chunks), 0) AS BIGINT) FROM document_live WHERE tenant = $1 AND store = $2 AND generation = $4 AND document <> $3)
		FROM document_store WHERE tenant = $1 AND store = $2 AND state = ''`, t.tenant, pass.Store, c.Document, c.Generation)
	switch {
	case err != nil:
		return err
	case !found || revision != c.Revision || c.Generation == 0 || c.Generation != g.Live && c.Generation != g.Building:
		return ErrDocumentChanged
	case others+int64(len(c.Chunks)) > t.limits.Chunks:
		return newLimitError(limitChunks, "the document has %d chunks, with which the document store would have %d, and it may have %d", len(c.Chunks), others+int64(len(c.Chunks)), t.limits.Chunks)
	}
	if err := t.h.CheckQuota(c.size(), db.StoresMore); err != nil {
		return err
	}
	if title == "" {
		title = cutText(c.Title, maxTitleBytes)
	}
	if live != c.Revision { // a repeated commit has the same ids, which stay
		if err := t.noteRemovedChunks(ctx, pass.Store, c); err != nil {
			return err
		}
	}
	for _, table := range []string{"chunk_vector", "chunk"} {
		_, err := t.Exec(ctx, `DELETE FROM `+table+` WHERE tenant = $1 AND store = $2 AND document = $3 AND generation = $4`, t.tenant, pass.Store, c.Document, c.Generation)
		if err != nil {
			return err
		}
	}
	wordCount, err := t.insertChunks(ctx, x, pass.Store, title, c)
	if err != nil {
		return err
	}
	_, err = t.Exec(ctx, `INSERT INTO document_live (tenant, store, document, generation, revision, chunks, word_count, collection) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (tenant, store, document, generation) DO UPDATE
			SET revision = excluded.revision, chunks = excluded.chunks, word_count = excluded.word_count, collection = excluded.collection`,
		t.tenant, pass.Store, c.Document, c.Generation, c.Revision, int64(len(c.Chunks)), wordCount, c.Collection)
	if err != nil || c.Generation != g.Target() {
		return err
	}
	_, err = t.Exec(ctx, `UPDATE document SET state = 'indexed', error = '', attempts = 0, title = $4, media_type = CASE WHEN media_type = '' THEN $5 ELSE media_type END,
			content_hash = CASE WHEN content_hash = '' THEN $6 ELSE content_hash END, updated_at = stoa_now()
		WHERE tenant = $1 AND store = $2 AND id = $3`, t.tenant, pass.Store, c.Document, title, cutText(c.MediaType, 255), cutText(c.ContentHash, 64))
	return err
}

// noteRemovedChunks notes the external vectors of the document's revision before for removal.
func (t *tx) noteRemovedChunks(ctx context.Context, store string, c Commit) error {
	_, err := t.Exec(ctx, `INSERT INTO removed_chunk (tenant, store, collection, chunk, available_at)
		SELECT l.tenant, l.store, l.collection, k.id, 0 FROM document_live l
			JOIN chunk k ON k.tenant = l.tenant AND k.store = l.store AND k.document = l.document AND k.generation = l.generation AND k.revision = l.revision
		WHERE l.tenant = $1 AND l.store = $2 AND l.document = $3 AND l.generation = $4 AND l.collection <> ''
		ON CONFLICT (tenant, store, collection, chunk) DO UPDATE SET available_at = 0`, t.tenant, store, c.Document, c.Generation)
	return err
}

// insertChunks inserts the rows of chunks, and deletes the notes of their external vectors. It returns the number of words.
func (t *tx) insertChunks(ctx context.Context, x *Index, store, title string, c Commit) (wordCount int64, err error) {
	// Bounded statements, since on PostgreSQL the arguments of one are in memory together.
	const perStatement = 200
	for from := 0; from < len(c.Chunks); from += perStatement {
		var chunks, vectors [][]any
		var ids []string
		for _, k := range c.Chunks[from:min(from+perStatement, len(c.Chunks))] {
			id := x.ChunkID(store, c.Document, c.Generation, c.Revision, k.Ordinal)
			ids = append(ids, id)
			found := words.List(k.EmbeddedText(title))
			wordCount += int64(len(found))
			chunks = append(chunks, []any{
				t.tenant, store, c.Document, c.Generation, c.Revision, int64(k.Ordinal), id, int64(k.Start), int64(k.End), int64(k.Place.Page),
				cutText(k.Place.Heading, maxTextBytes), cutText(k.Place.Sheet, maxTextBytes), int64(k.Place.Line), int64(len(found)), strings.Join(found, " "), cutText(k.Text, maxTextBytes),
			})
			if len(k.Vector) == 0 {
				continue
			}
			vector := encodeVector(k.Vector)
			if vector == nil {
				return 0, fmt.Errorf("the vector of chunk %d of document %q is zero or not finite", k.Ordinal, c.Document)
			}
			vectors = append(vectors, []any{t.tenant, store, c.Document, c.Generation, c.Revision, int64(k.Ordinal), id, c.Model, k.TextHash, vector})
		}
		if err := errors.Join(t.InsertRows(ctx, chunkTarget, chunks...), t.InsertRows(ctx, vectorTarget, vectors...)); err != nil {
			return 0, err
		}
		if c.Collection != "" {
			_, err := t.Exec(ctx, `DELETE FROM removed_chunk WHERE tenant = $1 AND store = $2 AND collection = $3 AND `+t.inList("chunk", "$4"),
				t.tenant, store, c.Collection, encodeJSON(ids))
			if err != nil {
				return 0, err
			}
		}
	}
	return wordCount, nil
}

// maxTextBytes bounds a text of a chunk. Chunking makes far smaller ones.
const maxTextBytes = 1 << 20
