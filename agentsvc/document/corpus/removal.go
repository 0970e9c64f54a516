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
		// A whole collection includes its vectors. A reservation made meanwhile has a later available_at and stays.
		b.Exec(nil, `DELETE FROM removed_chunk WHERE tenant = $1 AND store = $2 AND collection = $3 AND (chunk = $4 OR CAST($4 AS TEXT) = '')
			AND available_at <= stoa_now()`, x.tenant, r.Store, r.Collection, r.Chunk)
	}
	if err := x.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("confirm removed vectors: %w", err)
	}
	return nil
}
