package corpus

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
	"stoa/tenancy/db"
)

// ListStores returns the state of the tenant's document stores, ordered by name. Its counts are of all documents: it is
// for callers that may read every document.
func (d *Documents) ListStores(ctx context.Context) ([]document.StoreStatus, error) {
	return d.listStores(ctx, "")
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
	// Aggregates over the documents of a store, which the limit of documents bounds.
	const ofStore = ` FROM document d WHERE d.tenant = s.tenant AND d.store = s.store`
	err = d.read(ctx, "read the state of document stores", func(r db.Row) error {
		var s document.StoreStatus
		var building, oldest, updated int64
		err := r.Scan(&s.Name, &s.Source, &s.Error, &s.Generation, &building, &s.Embedder, &s.EmbeddedTokens, &updated,
			&s.Documents, &s.Pending, &s.Failed, &oldest, &s.Chunks)
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
			(SELECT COUNT(*)`+ofStore+`), (SELECT COUNT(*)`+ofStore+` AND d.state = 'pending'), (SELECT COUNT(*)`+ofStore+` AND d.state = 'failed'),
			COALESCE((SELECT MIN(d.waiting_since)`+ofStore+` AND d.state = 'pending'), 0),
			(SELECT CAST(COALESCE(SUM(l.chunks), 0) AS BIGINT) FROM document_live l WHERE l.tenant = s.tenant AND l.store = s.store AND l.generation = s.generation)
		FROM document_store s WHERE s.tenant = $1 AND s.state = '' AND (CAST($2 AS TEXT) = '' OR s.store = $2) ORDER BY s.store`, d.tenant, store)
	return found, err
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
