package corpus

import (
	"context"
	"fmt"

	"stoa/tenancy/db"
)

// Removal is a note that an external vector store still has to delete a vector.
type Removal struct {
	Store      string
	Collection string
	Chunk      string // "" = the whole collection
}

// ListRemovals returns up to n due removals of a store.
func (x *Index) ListRemovals(ctx context.Context, store string, n int) ([]Removal, error) {
	var found []Removal
	err := x.read(ctx, "list vectors to remove", func(r db.Row) error {
		one := Removal{Store: store}
		err := r.Scan(&one.Collection, &one.Chunk)
		found = append(found, one)
		return err
	}, `SELECT collection, chunk FROM removed_chunk WHERE tenant = $1 AND store = $2 AND available_at <= stoa_now() ORDER BY collection, chunk LIMIT $3`,
		x.tenant, store, int64(n))
	return found, err
}

// ConfirmRemovals deletes the notes of removals that the external store has carried out.
func (x *Index) ConfirmRemovals(ctx context.Context, done []Removal) error {
	if len(done) == 0 {
		return nil
	}
	var b db.Batch
	for _, r := range done {
		// A whole collection includes its vectors. A note made meanwhile has a later available_at and stays.
		b.Exec(nil, `DELETE FROM removed_chunk WHERE tenant = $1 AND store = $2 AND collection = $3 AND (chunk = $4 OR CAST($4 AS TEXT) = '')
			AND available_at <= stoa_now()`, x.tenant, r.Store, r.Collection, r.Chunk)
	}
	if err := x.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("confirm removed vectors: %w", err)
	}
	return nil
}

// NoteUnusedCollections notes whole collections for removal, and returns their number: those of earlier generations of which only
// single vectors are noted, because no document was ever committed with vectors in them. current is the collection of the live
// generation. It does nothing while a generation is being built: the name of the live one is not known then.
func (x *Index) NoteUnusedCollections(ctx context.Context, pass Pass, current string) (n int64, err error) {
	err = x.runTx(ctx, "look for collections of vectors that are not used", func(t *tx) (err error) {
		if err = t.lockPass(ctx, pass); err != nil {
			return err
		}
		// A generation that is neither live nor being built never becomes either again.
		n, err = t.Exec(ctx, `INSERT INTO removed_chunk (tenant, store, collection, chunk, available_at)
			SELECT DISTINCT r.tenant, r.store, r.collection, '', 0 FROM removed_chunk r JOIN document_store s ON s.tenant = r.tenant AND s.store = r.store
			WHERE r.tenant = $1 AND r.store = $2 AND r.collection <> $3 AND r.chunk <> '' AND r.available_at <= stoa_now() AND s.state = '' AND s.building = 0
				AND NOT EXISTS (SELECT 1 FROM document_live l WHERE l.tenant = r.tenant AND l.store = r.store AND l.collection = r.collection)
			ON CONFLICT (tenant, store, collection, chunk) DO NOTHING`, t.tenant, pass.Store, current)
		return err
	})
	return n, err
}
