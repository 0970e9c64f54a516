package corpus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"stoa/agentsvc/document"
	"stoa/agentsvc/words"
	"stoa/tenancy/db"
	"stoa/tenancy/db/batchsize"
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
	Document string // its id
	// Revision is the one that was indexed. It identifies a content of the document: a random number that is compared for
	// equality alone. It is no revision of the app's configuration.
	Revision int64
	// Generation is that of the index, see [Generations].
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

// NoteVectors must be called before vectors are sent to an external store: it notes the chunks' vectors for removal, and
// [Index.CommitDocument] deletes the notes. Vectors of a commit that never happened are therefore removed later.
func (x *Index) NoteVectors(ctx context.Context, pass Pass, c Commit) error {
	if c.Collection == "" || len(c.Chunks) == 0 {
		return nil
	}
	return inBatches(len(c.Chunks), firstChunkBatch, func(from, to int) (time.Duration, error) {
		return x.runTimedTx(ctx, "note vectors that are about to be stored", func(t *tx) error { return noteVectors(ctx, t, pass, c, c.Chunks[from:to]) })
	})
}

// noteVectors notes the vectors of chunks of c.
func noteVectors(ctx context.Context, t *tx, pass Pass, c Commit, chunks []EmbeddedChunk) error {
	list := make([][]any, len(chunks))
	for i, chunk := range chunks {
		list[i] = []any{t.tenant, pass.Store, c.Collection, t.ChunkID(pass.Store, c.Document, c.Generation, c.Revision, chunk.Ordinal), int64(0)}
	}
	if err := t.lockPass(ctx, pass); err != nil {
		return err
	}
	if err := t.InsertRows(ctx, removedChunkTarget, list...); err != nil {
		return err
	}
	// By the database's clock, and also for notes of an attempt before this one.
	_, err := t.Exec(ctx, `UPDATE removed_chunk SET available_at = stoa_now() + $5 WHERE tenant = $1 AND store = $2 AND collection = $3 AND `+t.inList("chunk", "$4"),
		t.tenant, pass.Store, c.Collection, encodeJSON(chunkIDs(list)), noteDelay.Microseconds())
	return err
}

// firstChunkBatch is how many chunks a transaction inserts at first. A document with no more is committed by one transaction.
const firstChunkBatch = batchsize.First

// inBatches calls f for parts of n rows until none is left or the error is not nil. f returns the result of runTimedTx.
func inBatches(n int, size int64, f func(from, to int) (time.Duration, error)) error {
	for from := 0; from < n; {
		to := min(from+int(size), n)
		took, err := f(from, to)
		if err != nil {
			return err
		}
		from, size = to, batchsize.Next(size, took)
	}
	return nil
}

// CommitDocument makes a revision of a document searchable in a generation, in place of the revision before. It renews the lease.
// The chunks of a large document are written in several transactions: until the last of them the revision before stays
// searchable, and what was written before an error is deleted by the next commit of the revision, or by [Index.DeleteHidden].
// Errors: [ErrPassLost], [ErrDocumentChanged] (a deletion or a newer version wins), [agentsvc.CodeExhausted] naming the limit.
func (x *Index) CommitDocument(ctx context.Context, pass Pass, c Commit) error {
	if err := c.check(); err != nil {
		return err
	}
	w := &commitWriter{x: x, pass: pass, c: c}
	if len(c.Chunks) <= firstChunkBatch {
		_, err := w.write(ctx, 0, len(c.Chunks))
		return err
	}
	if err := w.deleteRemnant(ctx); err != nil {
		return err
	}
	return inBatches(len(c.Chunks), firstChunkBatch, func(from, to int) (time.Duration, error) { return w.write(ctx, from, to) })
}

// chunkNamespace is the name space of the ids of chunks. It was chosen at random and never changes.
var chunkNamespace = uuid.MustParse("5c1d0a3e-7b1f-4a86-9d53-0f8f2c6f4e21")

// noteDelay is how long a commit may follow its [Index.NoteVectors] before its vectors count as left over. It is
// longer than any lease.
const noteDelay = 15 * time.Minute

var (
	removedChunkTarget = db.NewInsertTarget("removed_chunk", "tenant TEXT, store TEXT, collection TEXT, chunk TEXT, available_at BIGINT",
		"tenant, store, collection, chunk")
	chunkTarget = db.NewInsertTarget("chunk", `tenant TEXT, store TEXT, document TEXT, generation BIGINT, revision BIGINT, ordinal BIGINT, id TEXT, start_at BIGINT,
		end_at BIGINT, page BIGINT, heading TEXT, sheet TEXT, line BIGINT, word_count BIGINT, words TEXT, text TEXT`, "")
	vectorTarget = db.NewInsertTarget("chunk_vector", `tenant TEXT, store TEXT, document TEXT, generation BIGINT, revision BIGINT, ordinal BIGINT, id TEXT, model TEXT,
		text_hash TEXT, vector BYTEA`, "")
)

// chunkIDs returns the ids of rows of removedChunkTarget.
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

// commitWriter carries out [Index.CommitDocument].
type commitWriter struct {
	x    *Index
	pass Pass
	c    Commit
	// words is the number of words of the chunks that are written.
	words int64
}

// revision is the row of the revision that is committed.
func (w *commitWriter) revision() revisionRow {
	return revisionRow{w.c.Document, w.c.Generation, w.c.Revision, int64(len(w.c.Chunks)), w.c.Collection}
}

// deleteRemnant deletes what a commit of the revision has left that did not come to its end, for instance because its process was
// killed. What it has in an external vector store was noted again.
func (w *commitWriter) deleteRemnant(ctx context.Context) error {
	left := []revisionRow{w.revision()}
	left[0].collection = ""
	for size := int64(maxDeletedChunks); ; {
		found := false
		err := w.x.read(ctx, "look for a commit that was interrupted", func(db.Row) error { found = true; return nil },
			`SELECT 1 FROM hidden_revision`+inRevision, w.x.tenant, w.pass.Store, w.c.Document, w.c.Generation, w.c.Revision)
		if err != nil || !found {
			return err
		}
		if size, err = w.x.deleteHiddenStep(ctx, w.pass.Store, left, size, "TRUE"); err != nil {
			return err
		}
	}
}

// write writes the chunks of a range, and makes the revision searchable with the last of them. It returns the
// result of runTimedTx.
func (w *commitWriter) write(ctx context.Context, from, to int) (took time.Duration, err error) {
	var words int64
	took, err = w.x.runTimedTx(ctx, "make a document searchable", func(t *tx) error {
		title, state, err := w.checkCommit(ctx, t)
		if err != nil {
			return err
		}
		isRepeated := state.live == w.c.Revision // its chunks are there
		if from == 0 && !isRepeated {
			if err := t.h.CheckQuota(w.c.size(), db.StoresMore); err != nil {
				return err
			}
		}
		switch {
		case isRepeated:
		case to == len(w.c.Chunks):
			err = t.of(w.pass.Store).replaceLive(ctx, w.revision(), from > 0)
		case from == 0:
			err = t.of(w.pass.Store).insertHidden(ctx, w.revision())
		default:
			err = t.of(w.pass.Store).checkHidden(ctx, w.revision())
		}
		if err != nil {
			return err
		}
		if words, err = t.insertChunks(ctx, w.pass.Store, title, w.c, w.c.Chunks[from:to], isRepeated); err != nil || to < len(w.c.Chunks) {
			return err
		}
		return w.makeSearchable(ctx, t, title, state, w.words+words)
	})
	if err == nil {
		w.words += words
	}
	return took, err
}

// commitState is what a commit finds.
type commitState struct {
	Generations
	live int64 // the revision that is searchable in the generation of the commit, 0 = none
}

// checkCommit locks the document and the pass, and checks that the document may be committed. It returns the document's title.
func (w *commitWriter) checkCommit(ctx context.Context, t *tx) (title string, s commitState, err error) {
	pass, c := w.pass, w.c
	var revision int64
	found := false
	err = t.Query(ctx, func(r db.Row) error {
		found = true
		return r.Scan(&revision, &title)
	}, `SELECT revision, title FROM document WHERE tenant = $1 AND store = $2 AND id = $3`+t.lockRow(), t.tenant, pass.Store, c.Document)
	if err != nil {
		return "", s, err
	}
	if err := t.lockPass(ctx, pass); err != nil {
		return "", s, err
	}
	var others int64 // the number of chunks of other documents
	err = t.Query(ctx, func(r db.Row) error { return r.Scan(&s.Live, &s.Building, &s.live, &others) }, `SELECT generation, building,
			COALESCE((SELECT revision FROM document_live WHERE tenant = $1 AND store = $2 AND document = $3 AND generation = $4), 0),
			COALESCE((SELECT chunks FROM document_total WHERE tenant = $1 AND store = $2 AND generation = $4), 0)
				- COALESCE((SELECT chunks FROM document_live WHERE tenant = $1 AND store = $2 AND document = $3 AND generation = $4), 0)
		FROM document_store WHERE tenant = $1 AND store = $2 AND state = ''`, t.tenant, pass.Store, c.Document, c.Generation)
	switch {
	case err != nil:
		return "", s, err
	case !found || revision != c.Revision || c.Generation == 0 || c.Generation != s.Generations.Live && c.Generation != s.Building:
		return "", s, ErrDocumentChanged
	case others+int64(len(c.Chunks)) > t.limits.Chunks:
		return "", s, newLimitError(limitChunks, "the document has %d chunks or more, with which the document store would have %d, and it may have %d", len(c.Chunks), others+int64(len(c.Chunks)), t.limits.Chunks)
	}
	if title == "" {
		title = cutText(c.Title, maxTitleBytes)
	}
	return title, s, nil
}

// replaceLive hides the revision of a document before next in its generation. next is hidden no more; it was if parts of it are
// written.
func (t revisionTx) replaceLive(ctx context.Context, next revisionRow, isWritten bool) error {
	live, err := t.readLive(ctx, next.document, next.generation)
	if err != nil {
		return err
	}
	small, _, err := t.hideRevisions(ctx, live)
	if err != nil {
		return err
	}
	isHidden, err := t.deleteHiddenRow(ctx, next)
	switch {
	case err != nil:
		return err
	case isWritten && !isHidden:
		return ErrDocumentChanged // what was written before is deleted
	case !isWritten && isHidden: // it was searchable before, and few enough chunks are left of it
		next.collection = ""
		small = append(small, next)
	}
	if err := t.deleteIndexed(ctx, t.store, next.document, next.generation); err != nil {
		return err
	}
	return t.deleteRevisions(ctx, small)
}

// makeSearchable makes the revision of a commit the searchable one. words is the number of words of its chunks.
func (w *commitWriter) makeSearchable(ctx context.Context, t *tx, title string, s commitState, words int64) error {
	store, c := w.pass.Store, w.c
	if s.live != c.Revision {
		_, err := t.Exec(ctx, `INSERT INTO document_live (tenant, store, document, generation, revision, chunks, word_count, collection) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
			ON CONFLICT (tenant, store, document, generation) DO UPDATE
				SET revision = excluded.revision, chunks = excluded.chunks, word_count = excluded.word_count, collection = excluded.collection, indexed_revision = 0`,
			t.tenant, store, c.Document, c.Generation, c.Revision, int64(len(c.Chunks)), words, c.Collection)
		if err != nil {
			return err
		}
	}
	if c.Generation != s.Target() {
		return nil
	}
	_, err := t.Exec(ctx, `UPDATE document SET state = 'indexed', error = '', attempts = 0, title = $4, media_type = CASE WHEN media_type = '' THEN $5 ELSE media_type END,
			content_hash = CASE WHEN content_hash = '' THEN $6 ELSE content_hash END, updated_at = stoa_now()
		WHERE tenant = $1 AND store = $2 AND id = $3`, t.tenant, store, c.Document, title, cutText(c.MediaType, 255), cutText(c.ContentHash, 64))
	return err
}

// insertChunks inserts the rows of chunks of c, unless they are there, and deletes the notes of their external vectors. It returns the
// number of words.
func (t *tx) insertChunks(ctx context.Context, store, title string, c Commit, parts []EmbeddedChunk, areThere bool) (wordCount int64, err error) {
	// Bounded statements, since on PostgreSQL the arguments of one are in memory together.
	const perStatement = 200
	for part := range slices.Chunk(parts, perStatement) {
		var chunks, vectors [][]any
		var ids []string
		for _, k := range part {
			id := t.ChunkID(store, c.Document, c.Generation, c.Revision, k.Ordinal)
			if ids = append(ids, id); areThere {
				continue
			}
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
