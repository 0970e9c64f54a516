package corpus

import (
	"context"
	"fmt"

	"stoa/tenancy/db"
)

// SwitchGeneration makes the generation that is being built the live one, in one statement. It does nothing (switched is
// false) if none is being built, a document is pending, or more than maxLost documents that are searchable now would not be
// in the new generation.
func (x *Index) SwitchGeneration(ctx context.Context, pass Pass, maxLost int64) (switched bool, err error) {
	var n int64
	var b db.Batch
	b.Exec(&n, `UPDATE document_store SET generation = building, recipe = building_recipe, embedder = building_embedder, building = 0,
			building_recipe = '', building_embedder = '', updated_at = stoa_now()
		WHERE tenant = $1 AND store = $2 AND building <> 0 AND state = ''
			AND NOT EXISTS (SELECT 1 FROM document d WHERE d.tenant = $1 AND d.store = $2 AND d.state = 'pending')
			AND (SELECT COUNT(*) FROM (SELECT o.document FROM document_live o WHERE o.tenant = $1 AND o.store = $2 AND o.generation = document_store.generation
				EXCEPT SELECT l.document FROM document_live l WHERE l.tenant = $1 AND l.store = $2 AND l.generation = document_store.building) lost) <= $3
			AND EXISTS (SELECT 1 FROM index_pass p WHERE p.tenant = $1 AND p.store = $2 AND p.epoch = $4 AND p.holder = $5)`,
		x.tenant, pass.Store, maxLost, pass.Epoch, pass.Holder)
	if err := x.h.Do(ctx, &b); err != nil {
		return false, fmt.Errorf("switch to a new generation: %w", err)
	}
	return n > 0, nil
}

// DropGenerations deletes the rows of a store's generations other than the live one and the one being built, about limit
// rows a call, and notes their external collections for removal. It is called until more is false.
func (x *Index) DropGenerations(ctx context.Context, store string, limit int) (more bool, err error) {
	// No write adds rows to these generations, so that nothing has to be locked. A chunk of none of these rows is of a hidden revision.
	const obsolete = ` FROM document_live l JOIN document_store s ON s.tenant = l.tenant AND s.store = l.store
		WHERE l.tenant = $1 AND l.store = $2 AND l.generation NOT IN (s.generation, s.building)`
	err = x.runTx(ctx, "delete the rows of an earlier generation", func(t *tx) error {
		more = false
		// The name of a collection contains the generation, so that no other generation has vectors in it.
		n, err := t.Exec(ctx, `INSERT INTO removed_chunk (tenant, store, collection, chunk, available_at)
			SELECT DISTINCT l.tenant, l.store, l.collection, '', 0`+obsolete+` AND l.collection <> ''
			ON CONFLICT (tenant, store, collection, chunk) DO NOTHING`, t.tenant, store)
		if err == nil && n > 0 {
			err = t.requestPass(ctx, store)
		}
		if err != nil {
			return err
		}
		var all []revisionRow // without collections, whose notes stand for those of their vectors
		err = t.Query(ctx, func(r db.Row) error {
			var l revisionRow
			err := r.Scan(&l.document, &l.generation, &l.revision, &l.chunks)
			all = append(all, l)
			return err
		}, `SELECT l.document, l.generation, l.revision, l.chunks`+obsolete+` ORDER BY l.document, l.generation LIMIT $3`, t.tenant, store, int64(limit))
		if err != nil {
			return err
		}
		next := 0
		for ; next < len(all) && limit > 0; next++ {
			limit -= 1 + 2*int(min(all[next].chunks, maxDeletedChunks))
		}
		small, _, err := t.of(store).hideRevisions(ctx, all[:next])
		if err != nil {
			return err
		}
		for _, l := range all[:next] {
			if _, err := t.Exec(ctx, `DELETE FROM document_live`+inRevision, t.of(store).args(l)...); err != nil {
				return err
			}
		}
		if err := t.of(store).deleteRevisions(ctx, small); err != nil {
			return err
		}
		if more = limit <= 0; more {
			return nil
		}
		_, err = t.Exec(ctx, `DELETE FROM document_total WHERE tenant = $1 AND store = $2 AND generation <> 0
			AND generation NOT IN (SELECT s.generation FROM document_store s WHERE s.tenant = $1 AND s.store = $2
				UNION SELECT s.building FROM document_store s WHERE s.tenant = $1 AND s.store = $2)`, t.tenant, store)
		return err
	})
	return more, err
}

// DropStore makes a store invisible that has left the configuration, and begins to delete it, see [Index.ContinueDrop].
func (x *Index) DropStore(ctx context.Context, store string, limit int) (done bool, err error) {
	// In its own transaction: from now on no search finds a document of the store, and none is added.
	var b db.Batch
	b.Exec(nil, `UPDATE document_store SET state = 'deleting', updated_at = stoa_now() WHERE tenant = $1 AND store = $2 AND state = ''`, x.tenant, store)
	b.Exec(nil, `UPDATE removed_chunk SET available_at = 0 WHERE tenant = $1 AND store = $2 AND available_at > 0`, x.tenant, store)
	b.Exec(nil, `INSERT INTO removed_chunk (tenant, store, collection, chunk, available_at)
		SELECT tenant, store, collection, '', 0 FROM document_live WHERE tenant = $1 AND store = $2 AND collection <> ''
		UNION SELECT tenant, store, collection, '', 0 FROM hidden_revision WHERE tenant = $1 AND store = $2 AND collection <> ''
		UNION SELECT tenant, store, collection, '', 0 FROM removed_chunk WHERE tenant = $1 AND store = $2
		ON CONFLICT (tenant, store, collection, chunk) DO NOTHING`, x.tenant, store)
	if err := x.h.Do(ctx, &b); err != nil {
		return false, fmt.Errorf("hide a document store that has left the configuration: %w", err)
	}
	return x.ContinueDrop(ctx, store, limit)
}

// ContinueDrop deletes about limit rows of a store that DropStore has made invisible. It is called until done. With removals
// left (see [Index.ListRemovals]) it is not done until they are confirmed, with hidden revisions until [Index.DeleteHidden] has
// deleted them. A store that is visible was made again meanwhile, by the holder of a newer lease: nothing of it is deleted.
func (x *Index) ContinueDrop(ctx context.Context, store string, limit int) (done bool, err error) {
	if err := x.vectors.Drop(ctx, false); err != nil {
		return false, err
	}
	err = x.runTx(ctx, "delete a document store that has left the configuration", func(t *tx) error {
		done = false
		// An upload that has read the store's row before is complete, and its document is among those that are left.
		if err := t.lockTenant(ctx); err != nil {
			return err
		}
		visible := false
		err := t.Query(ctx, func(db.Row) error { visible = true; return nil }, `SELECT 1 FROM document_store WHERE tenant = $1 AND store = $2 AND state = ''`, t.tenant, store)
		if done = visible; err != nil || visible {
			return err
		}
		var all []revisionRow // one of each document, with all of its chunks
		err = t.Query(ctx, func(r db.Row) error {
			var l revisionRow
			err := r.Scan(&l.document, &l.chunks)
			all = append(all, l)
			return err
		}, `SELECT d.id, (SELECT CAST(COALESCE(SUM(l.chunks), 0) AS BIGINT) FROM document_live l WHERE l.tenant = d.tenant AND l.store = d.store AND l.document = d.id)
			FROM document d WHERE d.tenant = $1 AND d.store = $2 ORDER BY d.id LIMIT $3`+t.lockRow(), t.tenant, store, int64(limit))
		if err != nil {
			return err
		}
		// The notes for whole collections stand for those of their vectors.
		for _, table := range []string{"document_live", "hidden_revision"} {
			if _, err := t.Exec(ctx, `UPDATE `+table+` SET collection = '' WHERE tenant = $1 AND store = $2 AND collection <> ''`, t.tenant, store); err != nil {
				return err
			}
		}
		for _, l := range all {
			if limit <= 0 {
				return nil
			}
			if err := t.deleteDocument(ctx, store, l.document); err != nil {
				return err
			}
			limit -= 1 + 2*int(min(l.chunks, maxDeletedChunks))
		}
		if limit <= 0 {
			return nil
		}
		var left int64
		err = t.Query(ctx, func(r db.Row) error { return r.Scan(&left) }, `SELECT (SELECT COUNT(*) FROM removed_chunk WHERE tenant = $1 AND store = $2)
			+ (SELECT COUNT(*) FROM hidden_revision WHERE tenant = $1 AND store = $2) + (SELECT COUNT(*) FROM document WHERE tenant = $1 AND store = $2)`, t.tenant, store)
		if err != nil || left > 0 {
			return err
		}
		for _, table := range []string{"document_store", "index_pass", "document_total"} {
			if _, err := t.Exec(ctx, `DELETE FROM `+table+` WHERE tenant = $1 AND store = $2`, t.tenant, store); err != nil {
				return err
			}
		}
		done = true
		return nil
	})
	return done, err
}
