package corpus

import (
	"context"
	"fmt"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/tenancy/db"
)

// ListStores returns the state of the tenant's document stores, ordered by name. Its counts are of all documents: it is
// for callers that may read every document.
func (d *Documents) ListStores(ctx context.Context) ([]document.StoreStatus, error) {
	return d.listStores(ctx, "")
}

// CountByStore returns how many documents each store has that [Documents.ListStores] lists, by the store's name.
func (d *Documents) CountByStore(ctx context.Context) (map[string]int, error) {
	found, err := d.ListStores(ctx)
	counts := make(map[string]int, len(found))
	for _, s := range found {
		counts[s.Name] = int(s.Documents)
	}
	return counts, err
}

// StoreStatus returns the state of one document store, or [agentsvc.ErrNotFound].
func (d *Documents) StoreStatus(ctx context.Context, store string) (document.StoreStatus, error) {
	if store == "" || !isStorableText(store) {
		return document.StoreStatus{}, agentsvc.ErrNotFound
	}
	found, err := d.listStores(ctx, store)
	if err == nil && len(found) == 0 {
		err = agentsvc.ErrNotFound
	}
	if err != nil {
		return document.StoreStatus{}, err
	}
	return found[0], nil
}

// listStores returns the state of one store, or of all if store is "".
func (d *Documents) listStores(ctx context.Context, store string) (found []document.StoreStatus, err error) {
	// Documents that wait or have failed are counted, by indexes that have only these.
	in := func(state string) string {
		return ` FROM document d` + d.indexedBy("document_"+state) + ` WHERE d.tenant = s.tenant AND d.store = s.store AND d.state = '` + state + `'`
	}
	total := func(column, generation string) string {
		return `COALESCE((SELECT t.` + column + ` FROM document_total t WHERE t.tenant = s.tenant AND t.store = s.store AND t.generation = ` + generation + `), 0)`
	}
	err = d.read(ctx, "read the state of document stores", func(r db.Row) error {
		var s document.StoreStatus
		var building, oldest, updated int64
		err := r.Scan(&s.Name, &s.Source, &s.Error, &s.Generation, &building, &s.Embedder, &s.EmbeddedTokens, &updated,
			&s.Documents, &s.Pending, &s.Failed, &oldest, &s.Chunks, &s.VectorIndex)
		s.OldestPending, s.UpdatedAt = fromMicros(oldest), fromMicros(updated)
		switch {
		case s.Error != "":
			s.State = "failed"
		case s.Pending > 0 || building > 0:
			s.State = "indexing"
		default:
			s.State = "ready"
		}
		found = append(found, s)
		return err
	}, `SELECT s.store, s.source, s.error, s.generation, s.building, s.embedder, s.embedded_tokens, s.updated_at,
			`+total("documents", "0")+`, (SELECT COUNT(*)`+in("pending")+`), (SELECT COUNT(*)`+in("failed")+`),
			COALESCE((SELECT MIN(d.waiting_since)`+in("pending")+`), 0), `+total("chunks", "s.generation")+`,
			`+d.vectorIndexSQL()+`
		FROM document_store s WHERE s.tenant = $1 AND s.state = '' AND (CAST($2 AS TEXT) = '' OR s.store = $2) ORDER BY s.store`, d.tenant, store)
	return found, err
}

// vectorIndexSQL is the SQL of [document.StoreStatus.VectorIndex] of the row s of document_store: the index is used if it is there and
// has nearly all vectors.
func (d *Documents) vectorIndexSQL() string {
	const inGeneration = `FROM document_live l WHERE l.tenant = s.tenant AND l.store = s.store AND l.generation = s.generation`
	indexed := `FALSE`
	if d.h.Engine() == db.Postgres {
		// CASE, since PostgreSQL may evaluate the operands of AND in any order, and the second reads the whole generation.
		indexed = fmt.Sprintf(`CASE WHEN EXISTS (SELECT 1 FROM vector_index v WHERE v.tenant = s.tenant AND v.store = s.store AND v.generation = s.generation AND `+indexTableSQL+`)
			THEN (SELECT COALESCE(SUM(l.chunks), 0) > %[1]d AND COALESCE(SUM(l.chunks) FILTER (WHERE l.indexed_revision <> l.revision), 0) <= %[1]d `+inGeneration+`) ELSE FALSE END`,
			d.limits.ExactChunks)
	}
	// All documents of a generation are in one collection.
	return `CASE WHEN s.embedder = '' OR (SELECT l.collection ` + inGeneration + ` LIMIT 1) <> '' THEN ''
		WHEN ` + indexed + ` THEN '` + document.HNSW + `' ELSE '` + document.Exact + `' END`
}

// AllowRemoval confirms that the next complete listing of the store's source may remove any number of documents, and
// requests a pass. See [Index.DeleteUnlisted].
func (d *Documents) AllowRemoval(ctx context.Context, store string) error {
	return d.changePass(ctx, "allow the removal of documents", store, `removal_allowed = TRUE`)
}

// RequestListing is [Index.RequestPass] for a pass that begins with a listing of the source, whatever was listed before.
// A pass that runs is followed by one without a listing; one that waits for changes of its source lists it again.
func (d *Documents) RequestListing(ctx context.Context, store string) error {
	return d.changePass(ctx, "request a listing", store, `cursor = ''`)
}

// changePass changes the row of a store's pass by a constant assignment, and requests a pass.
func (d *Documents) changePass(ctx context.Context, what, store, assignment string) error {
	return d.runTx(ctx, what, func(t *tx) error {
		n, err := t.Exec(ctx, `UPDATE index_pass SET `+assignment+` WHERE tenant = $1 AND store = $2`, t.tenant, store)
		if err == nil && n == 0 {
			err = agentsvc.ErrNotFound
		}
		if err == nil {
			err = t.requestPass(ctx, store)
		}
		if err != nil {
			return err
		}
		return d.recordChange(ctx, t, "", document.Document{})
	})
}
