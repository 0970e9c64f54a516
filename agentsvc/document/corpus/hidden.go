package corpus

import (
	"context"
	"math"

	"stoa/tenancy/db"
	"stoa/tenancy/db/batchsize"
)

// A hidden revision is one that document_live does not name and that may have chunks. Its row in hidden_revision is written in
// the transaction that hides it, or before the first of its chunks, so that no chunk is without one of the two. Searches pass over
// its chunks. It is
//
//   - being written: [Index.CommitDocument] writes the chunks of a large document in several transactions, of which the last makes
//     all of them searchable. After a crash the next commit of the revision begins anew.
//   - left: it was replaced or deleted, and had too many chunks for that transaction. [Index.DeleteHidden] deletes them in several.
//
// On SQLite nothing else is written during a transaction, and the deletion of a chunk takes some milliseconds, most of them in the
// full-text index (BenchmarkLargeDocument).

// maxDeletedChunks bounds the chunks that a transaction deletes together with what they belong to. Those of most documents are.
const maxDeletedChunks = 25

// revisionRow is a row of document_live or hidden_revision.
type revisionRow struct {
	document             string
	generation, revision int64
	chunks               int64 // 0 in a row of hidden_revision
	collection           string
}

// inRevision is the condition on rows of chunk and chunk_vector of the revision that [revisionTx.args] are of.
const inRevision = ` WHERE tenant = $1 AND store = $2 AND document = $3 AND generation = $4 AND revision = $5`

// revisionTx is a transaction over the revisions of a store's documents.
type revisionTx struct {
	*tx
	store string
}

// of returns the transaction for the revisions of a store's documents.
func (t *tx) of(store string) revisionTx { return revisionTx{t, store} }

func (t revisionTx) args(r revisionRow, more ...any) []any {
	return append([]any{t.tenant, t.store, r.document, r.generation, r.revision}, more...)
}

// readLive returns the searchable revisions of a document, one of each generation, or of one that is not 0.
func (t revisionTx) readLive(ctx context.Context, document string, generation int64) (live []revisionRow, err error) {
	err = t.Query(ctx, func(r db.Row) error {
		l := revisionRow{document: document}
		err := r.Scan(&l.generation, &l.revision, &l.chunks, &l.collection)
		live = append(live, l)
		return err
	}, `SELECT generation, revision, chunks, collection FROM document_live WHERE tenant = $1 AND store = $2 AND document = $3 AND ($4 = 0 OR generation = $4)
		ORDER BY generation`, t.tenant, t.store, document, generation)
	return live, err
}

// hideRevisions prepares the end of searchable revisions whose rows of document_live the transaction then deletes or changes. It
// returns those whose chunks it deletes as well, by deleteRevisions; the others become hidden revisions. needsPass means that a
// pass has something to do then.
func (t revisionTx) hideRevisions(ctx context.Context, live []revisionRow) (small []revisionRow, needsPass bool, err error) {
	for _, l := range live {
		if l.chunks <= t.deletable {
			t.deletable -= l.chunks
			small = append(small, l)
			needsPass = needsPass || l.collection != ""
			continue
		}
		needsPass = true
		if err := t.insertHidden(ctx, l); err != nil {
			return nil, false, err
		}
	}
	return small, needsPass, nil
}

func (t revisionTx) insertHidden(ctx context.Context, r revisionRow) error {
	_, err := t.Exec(ctx, `INSERT INTO hidden_revision (tenant, store, document, generation, revision, collection) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (tenant, store, document, generation, revision) DO UPDATE SET collection = excluded.collection`, t.args(r, r.collection)...)
	return err
}

// checkHidden returns [ErrDocumentChanged] if a revision that is being written is no hidden revision any more.
func (t revisionTx) checkHidden(ctx context.Context, r revisionRow) error {
	found := false
	err := t.Query(ctx, func(db.Row) error { found = true; return nil }, `SELECT 1 FROM hidden_revision`+inRevision, t.args(r)...)
	if err == nil && !found {
		err = ErrDocumentChanged
	}
	return err
}

// deleteHiddenRow deletes the row of a hidden revision, and reports whether there was one.
func (t revisionTx) deleteHiddenRow(ctx context.Context, r revisionRow) (bool, error) {
	n, err := t.Exec(ctx, `DELETE FROM hidden_revision`+inRevision, t.args(r)...)
	return n > 0, err
}

// deleteRevision deletes up to limit chunks of a revision, the first ones, and notes their external vectors for removal. It
// returns their number.
func (t revisionTx) deleteRevision(ctx context.Context, r revisionRow, limit int64) (n int64, err error) {
	last := int64(-1)
	err = t.Query(ctx, func(row db.Row) error { return row.Scan(&last) },
		`SELECT COALESCE(MAX(ordinal), -1) FROM (SELECT ordinal FROM chunk`+inRevision+` ORDER BY ordinal LIMIT $6) x`, t.args(r, limit)...)
	if err != nil || last < 0 {
		return 0, err
	}
	args := t.args(r, last)
	if r.collection != "" {
		_, err := t.Exec(ctx, `INSERT INTO removed_chunk (tenant, store, collection, chunk, available_at)
			SELECT tenant, store, $7, id, 0 FROM chunk`+inRevision+` AND ordinal <= $6
			ON CONFLICT (tenant, store, collection, chunk) DO UPDATE SET available_at = 0`, append(args[:len(args):len(args)], r.collection)...)
		if err != nil {
			return 0, err
		}
	}
	if _, err := t.Exec(ctx, `DELETE FROM chunk_vector`+inRevision+` AND ordinal <= $6`, args...); err != nil {
		return 0, err
	}
	return t.Exec(ctx, `DELETE FROM chunk`+inRevision+` AND ordinal <= $6`, args...)
}

// deleteRevisions deletes all chunks of small revisions.
func (t revisionTx) deleteRevisions(ctx context.Context, small []revisionRow) error {
	for _, r := range small {
		if _, err := t.deleteRevision(ctx, r, math.MaxInt64); err != nil {
			return err
		}
	}
	return nil
}

// hideDocument deletes what a document is found by, in every generation, and notes its external vectors for removal.
func (t revisionTx) hideDocument(ctx context.Context, id string) error {
	small, err := t.prepareHiding(ctx, id)
	if err != nil {
		return err
	}
	return t.deleteLive(ctx, id, small)
}

// prepareHiding is hideRevisions for a document, in every generation. It may lock the pass.
func (t revisionTx) prepareHiding(ctx context.Context, id string) (small []revisionRow, err error) {
	live, err := t.readLive(ctx, id, 0)
	if err != nil {
		return nil, err
	}
	small, needsPass, err := t.hideRevisions(ctx, live)
	if err == nil && needsPass {
		err = t.requestPass(ctx, t.store)
	}
	return small, err
}

// deleteLive deletes what makes a document searchable, in every generation, and the chunks of small, the result of prepareHiding.
func (t revisionTx) deleteLive(ctx context.Context, id string, small []revisionRow) error {
	if err := t.deleteIndexed(ctx, t.store, id, 0); err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `DELETE FROM document_live WHERE tenant = $1 AND store = $2 AND document = $3`, t.tenant, t.store, id); err != nil {
		return err
	}
	return t.deleteRevisions(ctx, small)
}

// leftSQL is the condition that the row h of hidden_revision is left: its chunks will not be searchable. A revision that waits for
// its indexing in a generation of the store may be being written.
const leftSQL = `NOT EXISTS (SELECT 1 FROM document d JOIN document_store s ON s.tenant = d.tenant AND s.store = d.store
		WHERE d.tenant = h.tenant AND d.store = h.store AND d.id = h.document AND d.revision = h.revision AND d.state = 'pending'
			AND s.state = '' AND h.generation IN (s.generation, s.building))`

// DeleteHidden deletes the chunks of the hidden revisions of a store that are left, in short transactions, until there are no more
// or isOver returns true after one of them.
func (x *Index) DeleteHidden(ctx context.Context, store string, isOver func() bool) (more bool, err error) {
	size := int64(maxDeletedChunks)
	for {
		var all []revisionRow
		err := x.read(ctx, "find chunks that are not searchable", func(r db.Row) error {
			var h revisionRow
			err := r.Scan(&h.document, &h.generation, &h.revision, &h.collection)
			all = append(all, h)
			return err
		}, `SELECT h.document, h.generation, h.revision, h.collection FROM hidden_revision h WHERE h.tenant = $1 AND h.store = $2 AND `+leftSQL+`
			ORDER BY h.document, h.generation, h.revision LIMIT $3`, x.tenant, store, size)
		if err != nil || len(all) == 0 {
			return false, err
		}
		if size, err = x.deleteHiddenStep(ctx, store, all, size, leftSQL); err != nil {
			return false, err
		}
		if isOver() {
			return true, nil
		}
	}
}

// deleteHiddenStep deletes up to size chunks of hidden revisions, ordered by document, for which condition is still true of the row h.
// It returns the size of the next step.
func (x *Index) deleteHiddenStep(ctx context.Context, store string, all []revisionRow, size int64, condition string) (next int64, err error) {
	took, err := x.runTimedTx(ctx, "delete chunks that are not searchable", func(t *tx) error {
		left := size
		for _, h := range all {
			if left <= 0 {
				break
			}
			n, err := t.of(store).deleteHidden(ctx, h, left, condition)
			if err != nil {
				return err
			}
			left -= max(n, 1)
		}
		return nil
	})
	return batchsize.Next(size, took), err
}

// deleteHidden deletes up to limit chunks of a hidden revision, and its row if there are no more.
func (t revisionTx) deleteHidden(ctx context.Context, h revisionRow, limit int64, condition string) (n int64, err error) {
	if _, _, err := t.lockDocument(ctx, t.store, h.document); err != nil { // its commit waits
		return 0, err
	}
	isLeft, isLive := false, false
	// The row is locked as well: a document that is deleted has none, and another process that deletes the same chunks waits.
	err = t.Query(ctx, func(r db.Row) error { isLeft = true; return r.Scan(&isLive) }, `SELECT EXISTS (SELECT 1 FROM document_live l
			WHERE l.tenant = h.tenant AND l.store = h.store AND l.document = h.document AND l.generation = h.generation AND l.revision = h.revision)
		FROM hidden_revision h WHERE h.tenant = $1 AND h.store = $2 AND h.document = $3 AND h.generation = $4 AND h.revision = $5 AND `+condition+t.lockRow(),
		t.args(h)...)
	if err != nil || !isLeft {
		return 0, err
	}
	if !isLive { // the former version of the program makes one searchable without deleting the row
		n, err = t.deleteRevision(ctx, h, limit)
	}
	if err == nil && n < limit {
		_, err = t.deleteHiddenRow(ctx, h)
	}
	return n, err
}
